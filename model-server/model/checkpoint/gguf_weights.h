/* gguf_weights.h - the tensors of a GGUF file under the names of a family.
 *
 * Changes by llama.cpp's converters are reverted. Experts become separate tensors again, and
 * small vectors are copied and corrected. Matrices with another order of rows are marked
 * (T_BLOCKS), and reordered when they are packed. The rest are views of the file. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_GGUF_WEIGHTS_H
#define MODEL_SERVER_MODEL_CHECKPOINT_GGUF_WEIGHTS_H
#include "common/gguf/set.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/tensor_file.h"

struct gguf_weights {
    struct gguf_set set;
    struct tensor *tensors; /* sorted by name */
    uint32_t n, cap;
    void **owned; /* names and copies */
    uint32_t n_owned, cap_owned;
    uint32_t stack; /* layers of the first of two stacks; 0: one stack */
};

/* ERR_VALIDATION names a tensor that the family does not use, or that is not supported. A failed
 * open needs no close. */
int gguf_weights_open(struct gguf_weights *w, const char *path, const struct arch *a,
                      struct err *e);
/* The same for the projector behind a model's path, under the names of a tower. ERR_VALIDATION if
 * there is none. */
int gguf_tower_open(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e);
void gguf_weights_close(struct gguf_weights *w); /* all zero is fine */
/* Name of the packing of most of the bytes ("Q4_K"); NULL: nothing is packed. */
const char *gguf_weights_packing(const struct gguf_weights *w);
/* or NULL */
const struct tensor *gguf_weights_find(const struct gguf_weights *w, const char *name);
#endif
