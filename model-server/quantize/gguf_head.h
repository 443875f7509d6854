/* gguf_head.h - builds the header of a GGUF file: metadata, then the tensor list.
 *
 * Metadata are copied from a GGUF source, or derived from config.json and tokenizer.json of a
 * folder as llama.cpp's converter does. Format:
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef MODEL_SERVER_QUANTIZE_GGUF_HEAD_H
#define MODEL_SERVER_QUANTIZE_GGUF_HEAD_H
#include "common/buf.h"
#include "common/err.h"
#include "common/gguf/set.h"
#include "model-server/model/arch.h"

enum { GGUF_ALIGN = 32 };
struct gguf_head {
    struct buf values, tensors;
    uint64_t n_values, n_tensors;
};

/* Appends a key of metadata with a number. */
void gguf_head_u32(struct gguf_head *h, const char *key, uint32_t v);

/* Copies all metadata of a file except general.file_type. */
void gguf_head_copy(struct gguf_head *h, const struct gguf *g);
/* For a folder: its family in GGUF, and whether rows of q and k are stored in pairs there. NULL
 * with ERR_VALIDATION: writing this model_type is not supported. */
struct gguf_made {
    const char *type, *name; /* model_type; general.architecture */
    bool paired;
};
const struct gguf_made *gguf_made_find(const char *type, struct err *e);
int gguf_head_make(struct gguf_head *h, const struct gguf_made *f, const char *dir,
                   const struct decoder_spec *s, struct err *e);
/* Writes the frequency factors of a Llama 3 rotary scaling to out[dim / 2]. False: other scaling.
 */
bool gguf_rope_factors(const struct decoder_spec *s, float *out);

void gguf_head_tensor(struct gguf_head *h, const char *name, enum gguf_packing p, int n_dims,
                      const uint64_t *dims, uint64_t at);
/* Writes the complete, padded header to `out` and empties `h`. */
int gguf_head_finish(struct gguf_head *h, struct buf *out, struct err *e);
#endif
