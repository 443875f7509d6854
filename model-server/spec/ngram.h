/* ngram.h - guesses at what comes next, from what was there before: text that repeats itself (code,
 * summaries, answers that quote their prompt) is its own draft model. Prompt lookup decoding
 * (Saxena 2023), on tokens. */
#ifndef MODEL_SERVER_SPEC_NGRAM_H
#define MODEL_SERVER_SPEC_NGRAM_H
#include <stdint.h>

enum { NGRAM_LEAST = 2, NGRAM_MOST = 8 }; /* tokens that must, and at most do, agree */

struct ngram {
    uint32_t at;    /* ids[at..] came after the same tokens as those at the end */
    uint32_t match; /* how many tokens agree; 0: nothing was found */
};
/* Where in ids[0..n) the tokens at its end stood before: the longest agreement, of those as long
 * the latest one. Linear in n. */
struct ngram ngram_find(const uint32_t *ids, uint32_t n);
#endif
