/* gguf_latent.h - the matrix from the latent vector to keys and values (W_KV_B). Newer files
 * store it as two: that of the keys, transposed, and that of the values (llama.cpp's absorbed
 * MLA). */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_GGUF_LATENT_H
#define MODEL_SERVER_MODEL_CHECKPOINT_GGUF_LATENT_H
#include "common/gguf/gguf.h"
#include "model-server/model/checkpoint/tensor_file.h"

/* Joins `k` [heads, rank, nope] and `v` [heads, v, rank] to heads of [nope + v, rank], in fp32:
 * sets dims, bytes and data of `t`; the caller frees the data. t->file is named in errors.
 * ERR_VALIDATION: the two do not match. */
int gguf_latent_join(const struct gguf_tensor *k, const struct gguf_tensor *v, struct tensor *t,
                     struct err *e);
/* Rows of matrices of this packing can be read as numbers. */
bool gguf_row_readable(enum gguf_packing p);
/* Dequantises row `row` of such a tensor, whose rows are whole blocks. */
void gguf_read_row(const struct gguf_tensor *t, uint64_t row, float *out);
#endif
