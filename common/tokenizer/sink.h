/* sink.h - output of the models: ids, and offsets in the original text. */
#ifndef COMMON_TOKENIZER_SINK_H
#define COMMON_TOKENIZER_SINK_H
#include "common/tokenizer/text.h"

struct sink {
    const struct text *text;
    struct tok_ids *out;
    bool offsets, oom;
    uint32_t word; /* the piece of the text whose tokens are appended */
};

int sink_grow(struct sink *k); /* ensures space for at least one more */

/* Appends a token for the bytes [start, end) of the text. */
static inline void sink_put(struct sink *k, uint32_t id, uint32_t start, uint32_t end)
{
    struct tok_ids *o = k->out;
    if (o->n == o->cap && sink_grow(k) != 0)
        return;
    if (k->offsets) { /* sink_grow() allocates `at` and `word` together with `id` */
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
        o->at[o->n] = text_origin(k->text, start, end);
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
        o->word[o->n] = k->word;
    }
    o->id[o->n++] = id;
}
#endif
