/* source.h - the tensors of the model to quantise, with their roles and numbers.
 *
 * A method may change the linear weights of layers; all other tensors are copied. Tensors are views
 * into the walk's checkpoint. */
#ifndef MODEL_SERVER_QUANTIZE_SOURCE_H
#define MODEL_SERVER_QUANTIZE_SOURCE_H
#include "model-server/model/walk.h"

struct source_tensor {
    const struct tensor *t;
    struct arch_use use; /* role W_ROLES: none; layer -1: outside the layers */
    uint32_t unit;       /* 0: outside the layers; otherwise 1 + layer */
    bool linear;         /* a weight matrix of a layer, [rows][cols] */
    uint64_t rows, cols;
};
struct weights_source {
    struct walk *walk;
    struct source_tensor *tensors; /* [n] sorted by unit, then by name */
    uint32_t n, n_units;
    uint64_t identity; /* hash of the files' names, sizes and times */
};

/* Lists the tensors. `walk` is borrowed. ERR_VALIDATION: the checkpoint is already quantised. */
int source_open(struct weights_source *s, struct walk *walk, const char *dir, struct err *e);
void source_close(struct weights_source *s); /* all zero is fine */
/* Finds a tensor by role, layer, expert (or -1) and suffix. NULL: there is none. */
const struct source_tensor *source_find(const struct weights_source *s, enum role r, int layer,
                                        int expert, const char *suffix);
/* Reads elements [at, at + n) as fp32. For GGUF blocks `at` and n are multiples of the block. */
void source_numbers(const struct tensor *t, uint64_t at, uint64_t n, float *out);
#endif
