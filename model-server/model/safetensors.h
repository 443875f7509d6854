/* safetensors.h - one safetensors file: 8 bytes of header length, a JSON header, raw tensors.
 *
 * The bytes come from strangers: every offset, size and name is checked before anything points into
 * the file. Tensors are views into the mapping; close() ends them all. Immutable after opening.
 * Format: https://huggingface.co/docs/safetensors */
#ifndef MODEL_SERVER_MODEL_SAFETENSORS_H
#define MODEL_SERVER_MODEL_SAFETENSORS_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* name in the header, bits of one element */
#define TENSOR_TYPES(X)                                                                            \
    X(F32, 32)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(I32, 32)                                                                                     \
    X(I16, 16)                                                                                     \
    X(I8, 8)                                                                                       \
    X(U64, 64)                                                                                     \
    X(U32, 32)                                                                                     \
    X(U16, 16)                                                                                     \
    X(U8, 8)                                                                                       \
    X(BOOL, 8)                                                                                     \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E8M0, 8)

enum tensor_type {
#define X(name, bits) T_##name,
    TENSOR_TYPES(X)
#undef X
        T_N,
    T_BLOCKS = T_N /* of a GGUF file: packed numbers, or rows in another order; no file of ours has
                      it by name */
};
const char *tensor_type_name(enum tensor_type t);

enum { TENSOR_MAX_DIMS = 8 };
struct tensor {
    const char *name;
    const char *file; /* path, for messages */
    enum tensor_type type;
    int n_dims;
    uint64_t dims[TENSOR_MAX_DIMS];
    uint64_t begin, bytes; /* in the data section */
    const void *data;      /* not necessarily aligned to its type by the format */
    /* T_BLOCKS: enum gguf_packing; and, where its rows lie in pairs that rotate, how many rows make
     * a head, else 0. */
    int packing;
    uint32_t paired;
};

struct safetensors {
    const char *path;   /* owned */
    const uint8_t *map; /* NULL when parsed from foreign memory */
    size_t map_size;
    cJSON *header;          /* owns the names */
    struct tensor *tensors; /* sorted by name */
    uint32_t n;
};

/* All fail with one line that begins with the path: ERR_VALIDATION for what the file says,
 * ERR_SYSTEM for what the system says. A failed open needs no close. */
int safetensors_open(struct safetensors *s, const char *path, struct err *e);
/* The same over `n` bytes of the caller's memory, which must outlive `s`. */
int safetensors_parse(struct safetensors *s, const char *path, const uint8_t *bytes, size_t n,
                      struct err *e);
void safetensors_close(struct safetensors *s);
/* Always -1: the shape is not `want`, as "64, 32", that config.json means. */
int tensor_wrong_shape(const struct tensor *t, const char *want, struct err *e);
/* Of a tensor in an opened file: its pages will not be read again soon. They stay readable. */
void tensor_release(const struct tensor *t);
const struct tensor *safetensors_find(const struct safetensors *s, const char *name); /* or NULL */
#endif
