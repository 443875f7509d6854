/* matrix.h - matrices at the interface of a backend: where their numbers come from, and what a
 * packed one looks like as bytes. Part of backend.h.
 *
 * A loader describes a matrix by strided parts of a checkpoint (struct mat_desc). A backend packs
 * them into its own layout (struct weight), which only struct weight_image exposes. */
#ifndef MODEL_SERVER_BACKEND_MATRIX_H
#define MODEL_SERVER_BACKEND_MATRIX_H
#include "common/err.h"
#include "model-server/backend/format.h"
#include <stddef.h>
#include <stdint.h>

enum dtype { DT_F32, DT_F16, DT_BF16, DT_N };
static inline size_t dtype_size(enum dtype t) { return t == DT_F32 ? 4 : 2; }
const char *dtype_name(enum dtype t); /* "float32", "float16", "bfloat16" */

/* Schemes of --quantize: a format and an arithmetic. Symmetric, without zero points. A number
 * that is not finite makes its row (of weights) or its token (of activations) NaN, and nothing
 * else.
 *   INT8  8-bit weights, a scale per output row; activations and sums stay fp32.
 *   W8A8  the same weights; activations are rounded to 8 bits with a scale per token; exact sums.
 *   INT4  4-bit weights, a scale per row and group of 32 columns; activations are rounded to 8 bits
 *         with a scale per token and group; sums exact within a group, fp32 over groups.
 *   FP8   8-bit floating-point weights (e4m3), a scale per output row; activations as with INT8.
 * A device may round activations to 16 bits instead, in INT8, FP8 and INT4: its describe() and its
 * documentation say so. */
enum quant { QUANT_NONE, QUANT_INT8, QUANT_W8A8, QUANT_INT4, QUANT_FP8, QUANT_N };
const char *quant_name(enum quant q);            /* "none", "int8", "w8a8", "int4", "fp8" */
const struct format *quant_format(enum quant q); /* NULL: none */
enum arith quant_arith(enum quant q);
/* Parses a value of --quantize: NULL, "", none and auto; int8 and eetq; w8a8; int4; fp8. Values
 * for checkpoints that are already quantised need no work at load: gptq, awq, marlin,
 * compressed-tensors. ERR_VALIDATION for any other. */
int quant_parse(const char *word, enum quant *out, struct err *e);
enum { QUANT_MAX_COLS = 65536 }; /* of a quantised matrix: exact sums fit 32 bits */

/* Numbers stored in a format: rows of `cols`, a multiple of its groups and blocks, which start at
 * the beginning of the row. */
struct mat_codes {
    struct format format;
    uint8_t *codes;           /* [rows][cols] */
    uint16_t *scale, *offset; /* f16 [rows][cols / block], |scale| <= 256 */
    float *scales;     /* the same of SCALE_F32 (e4m3), any number: [rows][format_blocks()] */
    int8_t *by, *less; /* [rows][cols / group] */
    float *factor;     /* [rows], of formats with `factors` */
    uint32_t *order;   /* of formats with `ordered`: column k here is column order[k] of the matrix,
                          the same for all of its parts */
};

/* A matrix in the checkpoint: element (r, c) is data[r * row_stride + c * col_stride]. With
 * strides, transposed storage (GPT-2) and tensor-parallel slices need no copy. */
struct random_tensor; /* random_tensor.h */
struct stored_matrix; /* model/checkpoint/quant/stored.h */
enum source {
    SOURCE_NUMBERS, /* `data` has them */
    SOURCE_RANDOM,  /* no data: place 0 is element `first` of `random`, in bfloat16 */
    SOURCE_STORED,  /* internal to the loader, never passed to a backend: `data` is still to be
                       computed from `stored` */
    SOURCE_CODES    /* `codes` instead of data; for all parts of a matrix, or for none */
};
struct mat_part {
    const void *data;
    enum dtype dtype;
    int64_t rows, cols, row_stride, col_stride; /* in elements */
    enum source source;
    uint64_t first;
    union {
        const struct random_tensor *random;
        const struct stored_matrix *stored;
        const struct mat_codes *codes;
        /* SOURCE_NUMBERS with QUANT_INT4: NULL, or the numbers are 4-bit numbers already, stored
         * as fp32 in contiguous rows. Scale (r, g), in bfloat16, is scales[r * groups + g] of
         * ceil(cols / 32) groups. It is used instead of a fitted scale. */
        const uint16_t *scales;
    };
    /* The checkpoint's tensor that contains the matrix, from element `first` on, for observers of
     * the load; NULL: none. */
    const char *name;
};

/* A matrix to load: `n_parts` parts stacked by rows (q over k over v, gate over up), all with the
 * same cols. The backend copies and packs; the source may be unmapped afterwards. */
struct mat_desc {
    const struct mat_part *parts;
    int n_parts;
    enum dtype dtype; /* storage type on the device; with `quant`: type of the activations, if the
                         device rounds them */
    enum quant quant; /* each rank of a matrix split by columns quantises its own slice */
    enum arith arith; /* arithmetic of products with parts that are SOURCE_CODES: EXACT or INT8;
                         with e4m3, of which are all parts or none, EXACT */
    /* Rows of whole texts are multiplied, never that of a next token alone: forms that pay for
     * many rows are preferred. The bits of a row do not depend on the number of rows either way. */
    bool whole;
};
struct weight; /* opaque: a packed matrix [rows, cols] */

/* A packed matrix as bytes, for a file of packed weights. `head` is everything except its memory,
 * in the backend's own layout. `piece` is the memory; unused pieces have 0 bytes. */
enum { WEIGHT_HEAD = 128, WEIGHT_PIECES = 3, WEIGHT_ALIGN = 4096 };
struct weight_image {
    uint8_t head[WEIGHT_HEAD];
    struct weight_piece {
        const void *data;
        uint64_t bytes;
    } piece[WEIGHT_PIECES];
};
#endif
