/* gguf_lists.h - a GGUF file's tokenizer without its long lists in JSON.
 *
 * Vocabulary and merges of BPE are lists in the file: of 262,144 tokens they would become 33 MB of
 * tokenizer.json, which is read again at once. */
#ifndef COMMON_TOKENIZER_GGUF_LISTS_H
#define COMMON_TOKENIZER_GGUF_LISTS_H
#include "common/buf.h"
#include "common/gguf/vocab.h"
#include "common/tokenizer/scored.h"
#include <stdbool.h>

struct gguf_lists {
    struct buf json; /* tokenizer.json; with `apart` its vocabulary and its merges are empty */
    bool apart;
    struct gguf_vocab vocab; /* views into the file; its `merges` are texts, or NULL */
    struct scored_piece
        *pieces; /* [vocab.n] by id: merges are made of them; NULL: the file has merges */
};

/* As gguf_tokenizer(). `g` must outlive it. A failed open needs no close. */
int gguf_lists_open(struct gguf_lists *l, const struct gguf *g, const char *unlisted,
                    struct err *e);
void gguf_lists_close(struct gguf_lists *l);
#endif
