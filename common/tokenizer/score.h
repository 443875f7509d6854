/* score.h - the scores of a vocabulary, as the reference reads them.
 *
 * serde_json is not exact in the last bit of a double: it takes digits into 64 bits, then
 * multiplies or divides once. Scores decide ties by that bit. */
#ifndef COMMON_TOKENIZER_SCORE_H
#define COMMON_TOKENIZER_SCORE_H
#include <stddef.h>

/* The value of a JSON number (jr_number()'s text). */
double score_of(const char *text, size_t n);
#endif
