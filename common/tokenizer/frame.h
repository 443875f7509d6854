/* frame.h - special tokens around the ids of one text or of two, and the texts cut to a length that
 * leaves room for them, as the "post_processor" of tokenizer.json has it.
 *
 * The ids come from tokenizer_encode() without TOK_ADD_SPECIAL. Thread-safe. */
#ifndef COMMON_TOKENIZER_FRAME_H
#define COMMON_TOKENIZER_FRAME_H
#include "common/tokenizer/tokenizer.h"

struct tok_part {
    const uint32_t *id;
    uint32_t n;
};
/* How many special tokens stand around one text, or around a pair. */
uint32_t tok_frame_special(const struct tokenizer *t, bool pair);
/* The texts cut to `most` tokens together: the longer one first, then in equal parts (Hugging
 * Face's longest_first). `b` NULL: there is one. `left`: what is cut off is the beginning. */
void tok_frame_cut(struct tok_part *a, struct tok_part *b, uint32_t most, bool left);
/* ids, and types where it is not NULL, of all of it: a->n + b->n + tok_frame_special() of each. */
void tok_frame(const struct tokenizer *t, const struct tok_part *a, const struct tok_part *b,
               uint32_t *ids, uint8_t *types);
#endif
