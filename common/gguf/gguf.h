/* gguf.h - reads one GGUF file: metadata by key, tensors in blocks.
 *
 * The file is untrusted: every count, length, offset and name is checked before it is used. Values
 * and tensors point into the mapping until gguf_close(). Immutable after opening. Little-endian,
 * versions 2 and 3 (which differ in nothing else). Format:
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef COMMON_GGUF_GGUF_H
#define COMMON_GGUF_GGUF_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Encodings of a tensor: name, number in the file, elements per block, bytes per block. The last
 * ones are unsupported and listed to be rejected by name. */
#define GGUF_PACKINGS(X)                                                                           \
    X(F32, 0, 1, 4)                                                                                \
    X(F16, 1, 1, 2)                                                                                \
    X(BF16, 30, 1, 2)                                                                              \
    X(F64, 28, 1, 8)                                                                               \
    X(I8, 24, 1, 1)                                                                                \
    X(I16, 25, 1, 2)                                                                               \
    X(I32, 26, 1, 4)                                                                               \
    X(I64, 27, 1, 8)                                                                               \
    X(Q4_0, 2, 32, 18)                                                                             \
    X(Q4_1, 3, 32, 20)                                                                             \
    X(Q5_0, 6, 32, 22)                                                                             \
    X(Q5_1, 7, 32, 24)                                                                             \
    X(Q8_0, 8, 32, 34)                                                                             \
    X(Q2_K, 10, 256, 84)                                                                           \
    X(Q3_K, 11, 256, 110)                                                                          \
    X(Q4_K, 12, 256, 144)                                                                          \
    X(Q5_K, 13, 256, 176)                                                                          \
    X(Q6_K, 14, 256, 210)                                                                          \
    X(Q8_1, 9, 32, 36)                                                                             \
    X(Q8_K, 15, 256, 292)                                                                          \
    X(IQ2_XXS, 16, 256, 66)                                                                        \
    X(IQ2_XS, 17, 256, 74)                                                                         \
    X(IQ3_XXS, 18, 256, 98)                                                                        \
    X(IQ1_S, 19, 256, 50)                                                                          \
    X(IQ4_NL, 20, 32, 18)                                                                          \
    X(IQ3_S, 21, 256, 110)                                                                         \
    X(IQ2_S, 22, 256, 82)                                                                          \
    X(IQ4_XS, 23, 256, 136)                                                                        \
    X(IQ1_M, 29, 256, 56)                                                                          \
    X(TQ1_0, 34, 256, 54)                                                                          \
    X(TQ2_0, 35, 256, 66)                                                                          \
    X(MXFP4, 39, 32, 17)                                                                           \
    X(NVFP4, 40, 64, 36)                                                                           \
    X(Q1_0, 41, 128, 18)                                                                           \
    X(Q2_0, 42, 64, 18)

enum gguf_packing {
#define X(name, number, elements, bytes) GGUF_##name,
    GGUF_PACKINGS(X)
#undef X
        GGUF_N_PACKINGS
};
/* A tensor of n elements has n / elements blocks of `bytes` each. */
struct gguf_packing_info {
    const char *name;
    uint32_t number, elements, bytes;
};
/* By enum gguf_packing, not by the number in the file. */
extern const struct gguf_packing_info gguf_packings[GGUF_N_PACKINGS];

/* Type numbers of the file format. */
enum gguf_type {
    GGUF_T_U8,
    GGUF_T_I8,
    GGUF_T_U16,
    GGUF_T_I16,
    GGUF_T_U32,
    GGUF_T_I32,
    GGUF_T_F32,
    GGUF_T_BOOL,
    GGUF_T_STRING,
    GGUF_T_ARRAY,
    GGUF_T_U64,
    GGUF_T_I64,
    GGUF_T_F64,
    GGUF_T_N
};

/* A string of the file. */
struct gguf_str {
    const char *p; /* not NUL-terminated */
    size_t n;
};
/* True if the bytes are those of `text`, which is NUL-terminated. */
bool gguf_str_is(const struct gguf_str *s, const char *text);
/* A metadata value: a scalar or a list of scalars, as it lies in the file (unaligned,
 * little-endian). Read by the functions below. */
struct gguf_value {
    const char *key;     /* owned by the gguf */
    enum gguf_type type; /* element type, if it is a list */
    bool list;
    uint64_t n; /* number of elements; 1 if it is not a list */
    const uint8_t *data, *end;
};

enum { GGUF_MAX_DIMS = 4 };
/* Elements of the innermost dimension are adjacent: dims {in, out} is a matrix [out][in]. */
struct gguf_tensor {
    const char *name; /* owned by the gguf */
    enum gguf_packing packing;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* innermost dimension first; unused ones are 1 */
    uint64_t begin, bytes;        /* offset and size in the data section */
    const uint8_t *data;
};

/* An open file. Fields are read-only for its users. */
struct gguf {
    const char *path; /* owned */
    const uint8_t *map;
    size_t map_size; /* 0: parsed from the caller's memory */
    uint32_t version;
    char *names; /* of keys and tensors */
    struct gguf_value *values;
    struct gguf_tensor *tensors; /* sorted by name */
    uint32_t n_values, n_tensors;
};

/* Errors are one line that begins with the path: ERR_VALIDATION for invalid content, ERR_SYSTEM for
 * system errors. A failed open needs no close. */
int gguf_open(struct gguf *g, const char *path, struct err *e); /* maps the whole file */
/* As gguf_open(), over `n` bytes of the caller's memory, which must outlive `g`. */
int gguf_parse(struct gguf *g, const char *path, const uint8_t *bytes, size_t n, struct err *e);
/* Unmaps the file: all values, tensors and strings of it are invalid afterwards. */
void gguf_close(struct gguf *g);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */
/* NULL: absent. By bisection. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* A scalar by key. Absent or of another kind: the default, or false. */
bool gguf_number(const struct gguf *g, const char *key, double *out); /* any numeric type */
bool gguf_bool(const struct gguf *g, const char *key, bool def);
bool gguf_text(const struct gguf *g, const char *key, struct gguf_str *out); /* valid UTF-8 */
/* A list of numbers or booleans, or NULL; a list of strings, or NULL. */
const struct gguf_value *gguf_numbers(const struct gguf *g, const char *key);
const struct gguf_value *gguf_strings(const struct gguf *g, const char *key);
/* Element i of such a list (i < n); 0 for another type. */
double gguf_number_at(const struct gguf_value *v, uint64_t i);
/* Iterates over the strings of a list: *at begins as v->data; false at the end. */
bool gguf_next(const struct gguf_value *v, const uint8_t **at, struct gguf_str *out);
#endif
