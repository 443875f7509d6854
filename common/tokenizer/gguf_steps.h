/* gguf_steps.h - parts of the tokenizer.json that a GGUF file's tokenizer stands for. All are
 * appended; steps are `"normalizer":..,"pre_tokenizer":..,"decoder":..`, models the object. */
#ifndef COMMON_TOKENIZER_GGUF_STEPS_H
#define COMMON_TOKENIZER_GGUF_STEPS_H
#include "common/buf.h"
#include "common/gguf/vocab.h"

/* Words of bytes. */
void gguf_put_steps(struct buf *b, const struct gguf_pre *p);
/* `"text":id` of all tokens. */
void gguf_put_vocab(struct buf *b, const struct gguf_vocab *v);

/* WordPiece, unigrams and the longest tokens: gguf_words.c. Scores must be finite (ERR_VALIDATION).
 */
void gguf_put_word_steps(struct buf *b, const struct gguf_vocab *v);
void gguf_put_word_model(struct buf *b, const struct gguf_vocab *v);
void gguf_put_unigram_steps(struct buf *b, const struct gguf_vocab *v);
int gguf_put_unigram(struct buf *b, const struct gguf_vocab *v, struct err *e);
/* The model of GGUF_LIKELY. */
int gguf_put_likely(struct buf *b, const struct gguf_vocab *v, struct err *e);
/* The model of GGUF_LONGEST. */
void gguf_put_longest(struct buf *b, const struct gguf_vocab *v);
#endif
