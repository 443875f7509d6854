/* tensor_parse.h - shared by the parsers of tensor files: private to this folder. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_TENSOR_PARSE_H
#define MODEL_SERVER_MODEL_CHECKPOINT_TENSOR_PARSE_H
#include "model-server/model/checkpoint/tensor_file.h"
#include <stdbool.h>

/* Sorts the tensors by name; ERR_VALIDATION if two have the same name. */
int tensor_file_sort(struct tensor_file *s, struct err *e);
/* True if it has no control characters, so that messages can contain it. */
bool tensor_name_is_plain(const char *s);

/* One view of a storage, as described in torch's pickles. Names are views of the pickle. */
struct torch_tensor {
    const char *name, *key; /* key: the member of the archive that holds the storage */
    uint32_t n_name, n_key;
    enum tensor_type type;
    int n_dims;
    uint64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    uint64_t offset, storage; /* in elements: its offset, and the storage's size */
};
struct torch_tensors {
    struct torch_tensor *v; /* malloc'ed */
    uint32_t n;
};
/* The tensors of a state dict: a pickle of the opcodes that torch.save() writes for a mapping
 * from names to tensors. This is a parser, not an interpreter of pickle: nothing is imported or
 * called, and any other opcode, global or value is refused. ERR_VALIDATION gives the position of
 * the opcode. */
int torch_pickle(struct torch_tensors *out, const uint8_t *p, size_t n, struct err *e);
#endif
