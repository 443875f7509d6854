/* loader_impl.h - what the files of the loader share: tensors by name. See loader.h for errors. */
#ifndef MODEL_SERVER_MODEL_LOADER_IMPL_H
#define MODEL_SERVER_MODEL_LOADER_IMPL_H
#include "model-server/model/loader/loader.h"

enum { NAME_MAX_LEN = 200 };

/* The tensor with a name of the family's files, or NULL. */
const struct tensor *loader_look(const struct loader *l, const char *name);
/* Writes the name of a role's tensor with a suffix: among several names the one that the
 * checkpoint has, else (or without a checkpoint) the last. */
void loader_name(const struct loader *l, enum role role, int layer, int expert, const char *suffix,
                 char out[NAME_MAX_LEN]);
/* The tensor with this name; without a checkpoint a random one [rows, cols]. NULL: an error. */
const struct tensor *loader_find(struct loader *l, const char *name, int64_t rows, int64_t cols);
/* Its numbers, aligned to `size` bytes, which loader_drop() releases. */
const void *loader_source(struct loader *l, const struct tensor *t, size_t size);
bool loader_is_plain(const struct tensor *t); /* 16 or 32 bits */
/* The type of a plain tensor's numbers; 0, or an error. */
int loader_type(struct loader *l, const struct tensor *t, enum dtype *out);
/* Always an error: the shape must be rows x cols, or with cols 0 rows. */
int loader_wrong_shape(struct loader *l, const struct tensor *t, int64_t rows, int64_t cols);
/* A part that begins `at` elements later. */
struct mat_part loader_part_at(struct mat_part p, size_t at);
/* The matrix of a role whose tensor has groups (decoder_spec.groups). False: it has none. */
bool loader_grouped(struct loader *l, enum role role, int layer, int64_t rows, int64_t cols,
                    struct mat_part *out);
/* The matrix of one expert in a file of MLX. It has all experts of a layer in one tensor,
 * `switch_mlp` in all families. False: there is none. */
bool loader_switch_mlp(struct loader *l, enum role role, int layer, int expert, int64_t rows,
                       int64_t cols, struct mat_part *out);
/* The quantised matrix [rows, cols] whose tensors are named `base` and a suffix; it is dequantised
 * when it is packed, only this rank's slice. An empty part after an error. */
struct mat_part loader_stored(struct loader *l, const char *base, int64_t rows, int64_t cols,
                              stored_find *find, const void *ctx);
#endif
