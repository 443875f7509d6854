/* frame.h - adds special tokens to the ids of one text or a pair, as specified by "post_processor"
 * in tokenizer.json. Texts are truncated to leave space for them.
 *
 * The ids come from tokenizer_encode() without TOK_ADD_SPECIAL. Thread-safe. */
#ifndef COMMON_TOKENIZER_FRAME_H
#define COMMON_TOKENIZER_FRAME_H
#include "common/tokenizer/tokenizer.h"

struct tok_part {
    const uint32_t *id;
    uint32_t n;
};
/* Number of special tokens added to one text, or to a pair. */
uint32_t tok_frame_special(const struct tokenizer *t, bool pair);
/* Truncates the texts to `most` tokens in total: first the longer one, then equally (Hugging Face's
 * longest_first). `b` NULL: a single text. `left`: truncates at the start. */
void tok_frame_cut(struct tok_part *a, struct tok_part *b, uint32_t most, bool left);
/* The index of the first token of `b`, or of `a` if it is NULL, in what tok_frame() writes. */
uint32_t tok_frame_first(const struct tokenizer *t, const struct tok_part *a,
                         const struct tok_part *b);
/* Writes ids, and types if not NULL, of the whole: a->n + b->n + tok_frame_special() each. */
void tok_frame(const struct tokenizer *t, const struct tok_part *a, const struct tok_part *b,
               uint32_t *ids, uint8_t *types);
/* Those types [n], or NULL if all are 0, which is what models take that have none. */
const uint8_t *tok_frame_types(const uint8_t *types, uint32_t n);
#endif
