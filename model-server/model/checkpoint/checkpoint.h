/* checkpoint.h - the weights of a model: one file of tensors, or shards with an index, in a
 * folder; or a GGUF file, whose tensors are found by the names of such a folder.
 *
 * Read-only views; close() unmaps everything. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_CHECKPOINT_H
#define MODEL_SERVER_MODEL_CHECKPOINT_CHECKPOINT_H
#include "model-server/model/checkpoint/gguf_weights.h"
#include "model-server/model/checkpoint/tensor_file.h"

enum { TENSOR_NAME_CAP = 256 };

struct checkpoint {
    char *dir;
    cJSON *index; /* NULL: a single file */
    const char *index_name;
    struct tensor_file *files;
    uint32_t n_files;
    uint64_t bytes; /* of all files */
    struct gguf_weights gguf;
    const char *outer; /* before all names of a model that is inside another one; else "" */
};

/* `a` defines the names of a GGUF file's tensors; NULL is allowed for a folder. Errors are one
 * line naming the file (and tensor). A failed open needs no close. */
int checkpoint_open(struct checkpoint *c, const char *dir, const struct arch *a, struct err *e);
/* The same for the weights of a vision tower, whose names `a` has. They are in the files of the
 * model's folder, or in the projector of a GGUF model. */
int checkpoint_open_tower(struct checkpoint *c, const char *dir, const struct arch *a,
                          struct err *e);
void checkpoint_close(struct checkpoint *c);
/* Returns the tensor of this name, or of `outer` and this name; or NULL. Records that it was found
 * (unused.h): one thread. */
const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name);
/* The same with any of the family's spellings: arch_name_in_file(). */
const struct tensor *checkpoint_find_weight(const struct checkpoint *c, const struct arch *a,
                                            const char *name);
/* Always -1: the error names the file that lacks `name`. */
int checkpoint_missing(const struct checkpoint *c, const char *name, struct err *e);
#endif
