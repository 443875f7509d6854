/* sibling.h - the second-best first draft of a sequence, verified in the same step as its drafts:
 * a draft tree of two branches (docs/decisions/speculation.md).
 *
 * A sibling is a separate span after the sequence's own. It shares the sequence's block table
 * except for the block of its position, which is a scratch block. The preceding tokens of that
 * block are copied into it, except the last known token, whose keys are computed with the
 * sibling. If the model samples the sibling, the scratch block is copied back.
 *
 * Scratch blocks are numbered after those that the router owns. A sequence keeps its scratch
 * block after its first sibling, because a step that was enqueued ahead may still use it. One
 * thread. */
#ifndef MODEL_SERVER_ENGINE_SIBLING_H
#define MODEL_SERVER_ENGINE_SIBLING_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { SIBLINGS_MOST = 16 }; /* sequences with a scratch block at a time */

struct siblings {   /* scratch blocks of an engine */
    uint32_t first; /* number of the first one; 0: siblings are off */
    bool taken[SIBLINGS_MOST];
};

struct sibling { /* of a sequence; zero-initialise */
    bool on;     /* the next step verifies it */
    bool right;  /* the last step sampled it: its block has to be copied back */
    uint32_t token;
    struct siblings *of;    /* owner of `block`; NULL: none is taken */
    uint32_t block, *table; /* scratch block; block table, owned */
    const float *row;       /* hidden row that the step stores for a draft head; or NULL */
};

/* Takes a scratch block and allocates a table of `most` blocks, unless `b` has them. 1: done. 0: no
 * block is free. -1: out of memory. */
int sibling_take(struct sibling *b, struct siblings *of, uint32_t most, struct err *e);
void sibling_free(struct sibling *b);
/* Tokens of a sibling's span after n known tokens: 2 if the last known one is in the same block. */
static inline uint32_t sibling_tokens(uint32_t n, uint32_t block_size)
{
    return n % block_size ? 2 : 1;
}
#endif
