/* tensor_file.h - one file of tensors: safetensors, or what torch.save() writes.
 *
 * The bytes come from strangers: every offset, size and name is checked before anything points into
 * the file, and nothing in it is executed. Tensors are views into the mapping; close() ends them
 * all. Immutable after opening. Formats:
 *   safetensors  8 bytes of header length, a JSON header, raw tensors (safetensors.c;
 *                https://huggingface.co/docs/safetensors)
 *   torch        a zip archive of one pickle and one stored member a storage, since PyTorch 1.6
 *                (torch_zip.c, torch_pickle.c; the opcodes are those of Python's pickletools) */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_TENSOR_FILE_H
#define MODEL_SERVER_MODEL_CHECKPOINT_TENSOR_FILE_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
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
    T_BLOCKS = T_N /* of a GGUF file: packed numbers, or rows in another order; never the type of a
                      file in our formats */
};
const char *tensor_type_name(enum tensor_type t);
uint64_t tensor_type_bits(enum tensor_type t); /* of one element */

enum { TENSOR_MAX_DIMS = 8 };
struct tensor {
    const char *name;
    const char *file; /* path, for messages */
    enum tensor_type type;
    int n_dims;
    uint64_t dims[TENSOR_MAX_DIMS];
    uint64_t begin, bytes; /* in the data section */
    const void *data;      /* the format does not guarantee alignment to its type */
    /* T_BLOCKS: enum gguf_packing; the file's row and column of each row and column, NULL: same
     * order; and the factor of its numbers, 0: none. */
    int packing;
    const uint32_t *row_at, *col_at;
    float times;
    bool in_memory; /* `data` is a copy, not part of a mapped file */
    bool found;     /* by checkpoint_find() */
};

struct tensor_file {
    const char *path;   /* owned */
    const uint8_t *map; /* NULL when parsed from foreign memory */
    size_t map_size;
    cJSON *header;          /* safetensors: owns the names */
    char *names;            /* torch: the same */
    struct tensor *tensors; /* sorted by name */
    uint32_t n;
};

/* Maps a file and reads its directory; the first bytes determine the format. All functions fail
 * with one line that begins with the path: ERR_VALIDATION for invalid content, ERR_SYSTEM for
 * errors of the system. A failed open needs no close. */
int tensor_file_open(struct tensor_file *s, const char *path, struct err *e);
/* Parses one format in `n` bytes of the caller's memory, which must outlive `s`. */
int safetensors_parse(struct tensor_file *s, const char *path, const uint8_t *bytes, size_t n,
                      struct err *e);
int torch_parse(struct tensor_file *s, const char *path, const uint8_t *bytes, size_t n,
                struct err *e);
void tensor_file_close(struct tensor_file *s);
const struct tensor *tensor_file_find(const struct tensor_file *s, const char *name); /* or NULL */
/* Always -1: the shape is not `want`, as "64, 32", which follows from config.json. */
int tensor_wrong_shape(const struct tensor *t, const char *want, struct err *e);
/* Releases the pages of a tensor of a mapped file, which will not be read again soon. They stay
 * readable. */
void tensor_release(const struct tensor *t);
#endif
