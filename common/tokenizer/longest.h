/* longest.h - parts of the tokenizer.json of a tokenizer that cuts a text into the longest tokens
 * from its beginning on (RWKV's World models). It is WordPiece without a prefix, of bytes as
 * GPT-2's characters, with the whole text as one word. All are appended. */
#ifndef COMMON_TOKENIZER_LONGEST_H
#define COMMON_TOKENIZER_LONGEST_H
#include "common/buf.h"

/* `"normalizer":..,"pre_tokenizer":..,"decoder":..` */
void longest_put_steps(struct buf *b);
/* The model up to its vocabulary, of which `unknown` [n] is the token for texts that have no
 * tokens. `"text":id` of all tokens follow, then "}}". */
void longest_put_model(struct buf *b, const char *unknown, size_t n);
/* The text of a token of n bytes, as JSON. */
void longest_put_bytes(struct buf *b, const char *bytes, size_t n);
#endif
