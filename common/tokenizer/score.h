/* score.h - parses vocabulary scores exactly as the reference implementation.
 *
 * serde_json's doubles are not exact in the last bit: it reads digits into 64 bits, then multiplies
 * or divides once. That bit decides ties. */
#ifndef COMMON_TOKENIZER_SCORE_H
#define COMMON_TOKENIZER_SCORE_H
#include <stddef.h>

/* The value of a JSON number (jr_number()'s text). */
double score_of(const char *text, size_t n);
#endif
