/* source.h - the tensors of a model that is to be quantised: what each is for, and its numbers.
 *
 * Linear weights of layers are what a method may change; all others are copied. Views of the walk's
 * checkpoint. */
#ifndef MODEL_SERVER_QUANTIZE_SOURCE_H
#define MODEL_SERVER_QUANTIZE_SOURCE_H
#include "model-server/model/walk.h"

struct source_tensor {
    const struct tensor *t;
    struct arch_use use; /* role W_ROLES: none; layer -1: of no layer */
    uint32_t unit;       /* 0: of no layer; else 1 + layer */
    bool linear;         /* a matrix of a layer that is multiplied with, [rows][cols] */
    uint64_t rows, cols;
};
struct weights_source {
    struct walk *walk;
    struct source_tensor *tensors; /* by unit, then as the files have them by name */
    uint32_t n, n_units;
    uint64_t identity; /* of the files: names, sizes, times */
};

/* `walk` outlives it. ERR_VALIDATION: the checkpoint is quantised already. */
int source_open(struct weights_source *s, struct walk *walk, const char *dir, struct err *e);
void source_close(struct weights_source *s); /* all zero is fine */
/* Tensor of a role and layer (and expert, or -1) with this suffix, or NULL. */
const struct source_tensor *source_find(const struct weights_source *s, enum role r, int layer,
                                        int expert, const char *suffix);
/* Elements [at, at + n) of a plain tensor, or of one in blocks of GGUF (whole blocks). */
void source_numbers(const struct tensor *t, uint64_t at, uint64_t n, float *out);
#endif
