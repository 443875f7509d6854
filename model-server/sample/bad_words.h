/* bad_words.h - words that an answer must not hold, each a sequence of tokens.
 *
 * vLLM's rule: a token that would complete one of them behind what was generated is masked. The
 * prompt does not count, and other ways to spell the same text are other words. */
#ifndef MODEL_SERVER_SAMPLE_BAD_WORDS_H
#define MODEL_SERVER_SAMPLE_BAD_WORDS_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bad_words {   /* zero: none */
    uint32_t *id;    /* one word behind the other */
    uint32_t *len;   /* [n] tokens of each */
    size_t n_ids, n; /* n_ids: of all together */
    bool looks_back; /* one of them has several tokens; set by bad_words_copy() */
};

/* A copy, of words that have at least one token, all of them below `vocab`. ERR_VALIDATION. */
int bad_words_copy(struct bad_words *out, const struct bad_words *from, uint32_t vocab,
                   struct err *e);
void bad_words_free(struct bad_words *b);
/* Which tokens may not follow generated[0..n_generated), the answer so far, into out[b->n]; some
 * may be there twice. Returns how many. Where nothing looks back, `generated` is not read. */
size_t bad_words_next(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      uint32_t *out);
/* -inf for these. */
void bad_words_forbid(const struct bad_words *b, const uint32_t *generated, size_t n_generated,
                      float *row);
#endif
