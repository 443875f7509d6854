/* gguf_latent.h - the matrix from the latent vector to keys and values (W_KV_B), which newer files
 * have in two: that of the keys, turned, and that of the values (llama.cpp's absorbed MLA). */
#ifndef MODEL_SERVER_MODEL_GGUF_LATENT_H
#define MODEL_SERVER_MODEL_GGUF_LATENT_H
#include "common/gguf/gguf.h"
#include "model-server/model/tensor_file.h"

/* `k` [heads, rank, nope] and `v` [heads, v, rank] as heads of [nope + v, rank], in fp32: dims,
 * bytes and data of `t`, whose data is the caller's to free. t->file is told in errors.
 * ERR_VALIDATION: the two do not fit each other. */
int gguf_latent_join(const struct gguf_tensor *k, const struct gguf_tensor *v, struct tensor *t,
                     struct err *e);
#endif
