/* gguf_weights.h - the tensors of a GGUF file under the names that a family gives them.
 *
 * What llama.cpp's converters did to the weights is undone: experts are tensors of their own again,
 * small vectors are copied and set right, and matrices whose rows lie in another order say so
 * (T_BLOCKS), to be set right when they are packed. The rest are views of the file. */
#ifndef MODEL_SERVER_MODEL_GGUF_WEIGHTS_H
#define MODEL_SERVER_MODEL_GGUF_WEIGHTS_H
#include "common/gguf/set.h"
#include "model-server/model/arch.h"
#include "model-server/model/tensor_file.h"

struct gguf_weights {
    struct gguf_set set;
    struct tensor *tensors; /* sorted by name */
    uint32_t n, cap;
    void **owned; /* names and copies */
    uint32_t n_owned, cap_owned;
};

/* ERR_VALIDATION names a tensor that the family has no use for, or none that is read here. A failed
 * open needs no close. */
int gguf_weights_open(struct gguf_weights *w, const char *path, const struct arch *a,
                      struct err *e);
void gguf_weights_close(struct gguf_weights *w); /* all zero is fine */
/* What most of the bytes are packed as, by name ("Q4_K"); NULL: no numbers are packed. */
const char *gguf_weights_packing(const struct gguf_weights *w);
const struct tensor *gguf_weights_find(const struct gguf_weights *w,
                                       const char *name); /* or NULL */
#endif
