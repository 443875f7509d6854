/* likely.h - PLaMo 2's tokenizer: the most probable way to split a text as it is, without normal
 * forms and words, and bytes for characters that no token has.
 *
 * Scores are counted in 1/10000. Of ways with one sum, that with the longest first token is taken,
 * then with the longest second one. As parts of a tokenizer.json that only readers here know:
 * model.from_end of unigram.h. */
#ifndef COMMON_TOKENIZER_LIKELY_H
#define COMMON_TOKENIZER_LIKELY_H
#include "common/buf.h"
#include <stdbool.h>

/* `"normalizer":..,"pre_tokenizer":..,"decoder":..`. */
void likely_put_steps(struct buf *b);
/* The model's object up to its vocabulary, which `]}` ends. */
void likely_put_model(struct buf *b);
/* A token [text, score], `first` of all or after others. Not `is_text`: no part of a text is it. */
void likely_put(struct buf *b, const char *s, size_t n, double score, bool is_text, bool first);
#endif
