/* ngram.h - drafts from n-grams of the sequence itself: repetitive text (code, summaries, answers
 * that quote their prompt) is its own draft model. Prompt lookup decoding (Saxena 2023), on
 * tokens. */
#ifndef MODEL_SERVER_SPEC_NGRAM_H
#define MODEL_SERVER_SPEC_NGRAM_H
#include <stdint.h>

enum { NGRAM_LEAST = 2, NGRAM_MOST = 8 }; /* least and most matching tokens */

struct ngram {
    uint32_t at;    /* ids[at..] follow an earlier occurrence of the last tokens */
    uint32_t match; /* number of matching tokens; 0: no match */
};
/* Finds an earlier occurrence of the last tokens of ids[0..n): the longest match, among equals
 * the latest one. Linear in n. */
struct ngram ngram_find(const uint32_t *ids, uint32_t n);
#endif
