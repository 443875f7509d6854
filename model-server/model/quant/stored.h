/* stored.h - matrices that a checkpoint keeps quantised, as numbers.
 *
 * Nearly every format says the same: element (r, c) is (code(r, c) - zero(r, g)) * scale(r, g),
 * where g is the group of columns that c belongs to. A format is one file of this folder: what its
 * tensors are called, their shapes, where codes and zeros lie in them. The rest is here. A format
 * that says something else (blocks.c) makes the numbers of a row itself.
 *
 * config.json gives a format's parameters; which matrices have it is what the file holds: those
 * whose plain ".weight" is there in 16 or 32 bits are not quantised. */
#ifndef MODEL_SERVER_MODEL_QUANT_STORED_H
#define MODEL_SERVER_MODEL_QUANT_STORED_H
#include "model-server/backend/backend.h"
#include "model-server/model/tensor_file.h"

struct stored_matrix;
struct stored_format;

/* Of a checkpoint. All zero: it is not quantised. */
struct stored {
    const struct stored_format *format;
    const char *method;       /* as its config calls it; NULL: it is not quantised */
    uint32_t bits;            /* of a code */
    uint32_t group;           /* columns that share a scale; 0: all of a row */
    uint32_t row_block;       /* rows that share a scale: 1, of blocks more; 0: all rows */
    uint32_t zero_bias;       /* what a zero point is above what is stored */
    bool symmetric, is_float; /* codes are e4m3 */
    bool divides;             /* the scale of all of a tensor does */
    float scale_by;           /* scales are what is stored times this; 0: 1 */
    bool keep;                /* as codes, what can be, for products in `arith` */
    enum arith arith;
};

/* From quantization_config (or compression_config) of `dir`/config.json, else
 * quantize_config.json, else quant_config.json. ERR_VALIDATION, one line that begins with the
 * path, for a method or parameter that is not read here. */
int stored_read(struct stored *s, const char *dir, struct err *e);

/* The words of --quantize that name a way to store, not to quantise at load: gptq, awq, marlin,
 * compressed-tensors, bitsandbytes, bitsandbytes-nf4, bitsandbytes-fp4. */
bool stored_word(const char *word);
/* Does --quantize (`word`, NULL: none, which quant_parse() read as `quant`) agree with how the
 * checkpoint is stored? ERR_VALIDATION where it does not. *scheme: what is left to do at load. */
int stored_agree(const struct stored *s, const char *word, enum quant quant, enum quant *scheme,
                 struct err *e);

enum stored_tensor {
    STORED_CODES,
    STORED_SCALES,
    STORED_ZEROS,
    STORED_GROUPS,
    STORED_FURTHER, /* the first of what only one format has */
    STORED_TENSORS = STORED_FURTHER + 4
};

struct stored_matrix {
    const struct stored *how;
    const struct tensor *t[STORED_TENSORS]; /* NULL: there is none */
    int64_t rows, cols;
    uint32_t group, groups; /* columns of one, how many; with STORED_GROUPS any column is of any */
    uint32_t row_block;     /* rows that share a scale */
    int64_t scale_row, scale_group; /* strides of the scales, in elements */
    uint32_t nested_block; /* of bitsandbytes: scales that share a scale, and what is added */
    float nested_offset;
};

/* Finds a tensor by its whole name, or NULL. */
typedef const struct tensor *stored_find(const void *ctx, const char *name);

/* The matrix [rows, cols] whose tensors are called `base` and a suffix. Types, shapes and group
 * indices are checked, so that nothing is read outside the tensors later. ERR_VALIDATION: one line
 * that names the tensor. The matrix is a view of the tensors. */
int stored_open(struct stored_matrix *m, const struct stored *how, const char *base, int64_t rows,
                int64_t cols, stored_find *find, const void *ctx, struct err *e);

/* A slice of a matrix: rows `row`, row + step, ... (step > 0), and columns [col, col + cols). */
struct stored_slice {
    int64_t row, rows, step, col, cols;
};

/* Rows [row, row + rows) and columns [col, col + cols) as `to`, rounded to nearest even, into `out`
 * [rows][cols]; on the device's host threads where it has some. */
void stored_numbers(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                    int64_t cols, enum dtype to, void *out, const struct backend_ops *ops,
                    struct device *dev);

/* What the slice is as codes, where it can be said in a format that the device takes in
 * m->how->arith. False: numbers are to be made. */
bool stored_form(const struct stored_matrix *m, const struct stored_slice *s,
                 const struct backend_ops *ops, struct format *f);
/* The codes of the slice, into arrays that begin at c->codes, which the caller frees. False: they
 * cannot be kept, or there is no memory for them; numbers can be made. */
bool stored_codes(const struct stored_matrix *m, const struct stored_slice *s, struct mat_codes *c,
                  const struct backend_ops *ops, struct device *dev);

/* ---------------------------------------------------------------- for the formats */

enum { STORED_TILE = 64 };
/* [column][row] of a piece of a matrix. */
typedef float stored_tile[STORED_TILE][STORED_TILE];

struct stored_format {
    const char *const *words; /* of --quantize that mean it; NULL-terminated */
    const char *suffix[STORED_TENSORS];
    /* Types and shapes of m->t, of which the codes and scales are there; fills the rest of `m`. */
    int (*check)(struct stored_matrix *m, struct err *e);
    /* Codes of n_rows x n_cols (at most a tile) from (row, col). */
    void (*codes)(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t);
    float (*zero)(const struct stored_matrix *m, int64_t row, uint32_t group); /* NULL: 0 */
    /* Instead of both: numbers [col, col + n) of a row. NULL: codes, zeros and scales. */
    void (*numbers)(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out);
    bool again; /* --quantize may quantise its numbers once more */
    /* Where numbers [col, col + cols) of the rows are codes of 4 bits times a scale for each group
     * of 32 columns, as QUANT_INT4 has them: the scales, [rows][groups]. False: they are not. NULL:
     * they never are. */
    bool (*scales)(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                   int64_t cols, uint16_t *out);
    /* What the codes of the slice are; false: they are not kept. And n_rows of them (at most
     * STORED_TILE) from `row` on as rows from `to` on of the arrays; false: there is a scale beyond
     * all reason. Both NULL: they never are. */
    bool (*form)(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
    bool (*codes_rows)(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to);
    /* Of forms that are `ordered`: which column of the matrix each one of the codes is, [cols]. */
    void (*order)(const struct stored_matrix *m, uint32_t *out);
};
extern const struct stored_format stored_gptq, stored_awq, stored_scaled, stored_scaled_inv,
    stored_packed, stored_mxfp4, stored_blocks, stored_nvfp4, stored_nvfp4_packed, stored_nf4,
    stored_fp4, stored_llm_int8;

/* A tensor of n_dims dimensions a x b (or a), of `type`. -1 and one line that names it. */
int stored_expect(const struct tensor *t, enum tensor_type type, uint64_t a, uint64_t b,
                  struct err *e);
/* The scales are [rows / row_block, groups] with any of F32, F16 and BF16; by_column: transposed.
 * (Formats that check theirs may have E8M0 too: U8 and F8_E8M0, 2^(byte - 127), 255 is NaN.) */
int stored_expect_scales(struct stored_matrix *m, bool by_column, struct err *e);
/* Always -1: the shape of the matrix is none that can be packed. */
int stored_not_multiple(const struct stored_matrix *m, const char *what, int64_t n, uint32_t of,
                        struct err *e);
/* `form` and `codes_rows` of the formats that are codes less zero points times scales. */
bool keep_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
bool keep_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
               const struct stored_slice *s, const struct mat_codes *c, int64_t to);
/* `order` of matrices with STORED_GROUPS: those of a group together, groups ascending. */
void keep_order(const struct stored_matrix *m, uint32_t *order);
/* Scale of a row and group, any type. */
float stored_scale(const struct stored_matrix *m, int64_t row, uint32_t group);
/* There are no zero points: 0 where config.json says that they are not needed, else -1. */
int stored_no_zeros(const struct stored_matrix *m, struct err *e);

/* The format promises no alignment. */
static inline uint32_t stored_u32(const struct tensor *t, int64_t i)
{
    uint32_t u;
    __builtin_memcpy(&u, (const char *)t->data + i * 4, 4);
    return u;
}
#endif
