/* sibling.h - the second-best first draft of a sequence, verified beside its drafts: a tree of two
 * branches (docs/decisions/speculation.md).
 *
 * A sibling is a span of its own behind the sequence's. Its block table is the sequence's, but for
 * the block of its position, which is a scratch block. The tokens of that block before it are
 * copied there, but for the last known one, whose keys are computed with the sibling. If the model
 * chooses the sibling, the scratch block is copied back.
 *
 * Scratch blocks lie behind those that the router owns. A sequence keeps one from its first sibling
 * on, so that a step that was run ahead may wait for its turn. One thread. */
#ifndef MODEL_SERVER_ENGINE_SIBLING_H
#define MODEL_SERVER_ENGINE_SIBLING_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { SIBLINGS_MOST = 16 }; /* sequences that may have one at a time */

struct siblings {   /* of an engine */
    uint32_t first; /* the first scratch block; 0: there are none, and nobody has a sibling */
    bool taken[SIBLINGS_MOST];
};

struct sibling { /* of a sequence; zero-initialise */
    bool on;     /* the next step verifies it */
    bool right;  /* the last one did, and it was chosen: its block is to be copied back */
    uint32_t token;
    struct siblings *of; /* not NULL: the scratch block `block` and the table are its own */
    uint32_t block, *table;
    const float *row; /* of a draft head: what the step leaves for it; or NULL */
};

/* A scratch block, and a table of `most` blocks, unless it has them: 1. 0: there is no block left.
 * -1: no memory. */
int sibling_take(struct sibling *b, struct siblings *of, uint32_t most, struct err *e);
void sibling_free(struct sibling *b);
/* Tokens of its span: the last of n known ones is in the same block, or in the one before. */
static inline uint32_t sibling_tokens(uint32_t n, uint32_t block_size)
{
    return n % block_size ? 2 : 1;
}
#endif
