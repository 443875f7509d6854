/* stored.h - dequantises matrices that a checkpoint stores quantised.
 *
 * In nearly every format element (r, c) is (code(r, c) - zero(r, g)) * scale(r, g), where g is
 * the group that contains column c. A format is one file of this folder: names and shapes of its
 * tensors, and the positions of codes and zeros in them. The rest is here. A format with another
 * formula (blocks.c) computes the numbers of a row itself.
 *
 * config.json defines a format's parameters. The contents of the file decide which matrices are
 * quantised: those with a plain ".weight" in 16 or 32 bits are not, but for stored.plain. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_H
#define MODEL_SERVER_MODEL_CHECKPOINT_QUANT_STORED_H
#include "model-server/backend/backend.h"
#include "model-server/model/checkpoint/tensor_file.h"

struct stored_matrix;
struct stored_format;

/* Quantisation of a checkpoint. All zero: it is not quantised. */
struct stored {
    const struct stored_format *format;
    const char *method;       /* name in its config; NULL: it is not quantised */
    uint32_t bits;            /* of a code */
    uint32_t group;           /* columns that share a scale; 0: all of a row */
    uint32_t row_block;       /* rows that share a scale: 1, more with blocks; 0: all rows */
    uint32_t zero_bias;       /* difference between a zero point and its stored value */
    bool symmetric, is_float; /* codes are e4m3 */
    bool divides;             /* the tensor's scale divides */
    bool plain;               /* matrices in 16 and 32 bits are of the format as well; if it has
                                 scales, those beside which there are some */
    bool varies;              /* matrices may have other formats, bits and groups: vary.c */
    float scale_by;           /* factor of stored scales; 0: 1 */
    uint32_t turns;           /* blocks begin anew with each of so many equal runs of rows; 0: 1 */
    bool keep;                /* keep codes if possible, for products in `arith` */
    enum arith arith;
};

/* Reads quantization_config (or compression_config) of `dir`/config.json, else
 * quantize_config.json, else quant_config.json. ERR_VALIDATION, one line that begins with the
 * path, for an unsupported method or parameter. */
int stored_read(struct stored *s, const char *dir, struct err *e);

/* Checks that --quantize (`word`, NULL: none, parsed by quant_parse() as `quant`) matches the
 * checkpoint. ERR_VALIDATION if not. *scheme: what remains to be done at load. */
int stored_agree(const struct stored *s, const char *word, enum quant quant, enum quant *scheme,
                 struct err *e);

enum stored_tensor {
    STORED_CODES,
    STORED_SCALES,
    STORED_ZEROS,
    STORED_GROUPS,
    STORED_FURTHER, /* the first tensor that only one format has */
    STORED_TENSORS = STORED_FURTHER + 4
};

/* Finds a tensor by its whole name, or NULL. */
typedef const struct tensor *stored_find(const void *ctx, const char *name);

struct stored_matrix {
    struct stored how;                      /* of this matrix */
    const struct tensor *t[STORED_TENSORS]; /* NULL: there is none */
    int64_t rows, cols;
    /* columns of a group, their number; with STORED_GROUPS columns have any group */
    uint32_t group, groups;
    uint32_t row_block;             /* rows that share a scale */
    int64_t turn;                   /* rows of a turn */
    int64_t scale_row, scale_group; /* strides of the scales, in elements */
    uint32_t nested_block;          /* bitsandbytes: scales that share a scale, and their offset */
    float nested_offset;
    bool by_column; /* hqq.c: a group is a column of the packed matrix */
    float mean;     /* ternary.c: of the magnitudes of the masters; 0: there are none */
};

/* Opens the matrix [rows, cols] whose tensors are named `base` and a suffix. Types, shapes and
 * group indices are checked, so that nothing is read outside the tensors later. ERR_VALIDATION:
 * one line that names the tensor. The matrix is a view of the tensors. */
int stored_open(struct stored_matrix *m, const struct stored *how, const char *base, int64_t rows,
                int64_t cols, stored_find *find, const void *ctx, struct err *e);

/* A slice of a matrix: rows `row`, row + step, ... (step > 0), and columns [col, col + cols). */
struct stored_slice {
    int64_t row, rows, step, col, cols;
};

/* Dequantises rows [row, row + rows) and columns [col, col + cols) to type `to`, rounded to
 * nearest even, into `out` [rows][cols]; on the device's host threads if it has some. */
void stored_numbers(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                    int64_t cols, enum dtype to, void *out, const struct backend_ops *ops,
                    struct device *dev);

/* The form of the slice as codes, if a format that the device supports in m->how.arith can
 * represent it. False: it must be dequantised. */
bool stored_form(const struct stored_matrix *m, const struct stored_slice *s,
                 const struct backend_ops *ops, struct format *f);
/* Writes the codes of the slice to arrays that begin at c->codes, which the caller frees. False:
 * codes are not possible, or out of memory; then dequantise. */
bool stored_codes(const struct stored_matrix *m, const struct stored_slice *s, struct mat_codes *c,
                  const struct backend_ops *ops, struct device *dev);

/* ---------------------------------------------------------------- for the formats */

enum { STORED_TILE = 64 };
/* [column][row] of a piece of a matrix. */
typedef float stored_tile[STORED_TILE][STORED_TILE];

struct stored_format {
    const char *const *words; /* its values of --quantize; NULL-terminated */
    const char *suffix[STORED_TENSORS];
    const char *lone; /* suffix of the codes where there is no `.weight`; NULL: suffix[0] */
    /* With stored.varies: chooses format and parameters of the matrix by its tensors' types; NULL:
     * all matrices are of this format. And sets bits, group and the like by their shapes, which
     * check() then checks. */
    void (*choose)(struct stored *how, const char *base, stored_find *find, const void *ctx);
    void (*vary)(struct stored_matrix *m);
    /* Checks types and shapes of m->t, whose codes and scales exist; fills the rest of `m`. */
    int (*check)(struct stored_matrix *m, struct err *e);
    /* Codes of n_rows x n_cols (at most a tile) from (row, col). */
    void (*codes)(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t);
    float (*zero)(const struct stored_matrix *m, int64_t row, uint32_t group); /* NULL: 0 */
    /* Instead of both: numbers [col, col + n) of a row. NULL: codes, zeros and scales. */
    void (*numbers)(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out);
    /* Of affine.c: a code, and what is done with it: code * scale - less, the same for m->group
     * columns (1: each has its own). */
    uint8_t (*code)(const struct stored_matrix *m, int64_t row, int64_t col);
    void (*terms)(const struct stored_matrix *m, int64_t row, int64_t col, float *scale,
                  float *less);
    bool again; /* --quantize may quantise its numbers again */
    /* If numbers [col, col + cols) of the rows are 4-bit codes times a scale for each group of 32
     * columns, as in QUANT_INT4: the scales, [rows][groups]. False: they are not. NULL: they
     * never are. */
    bool (*scales)(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                   int64_t cols, uint16_t *out);
    /* The form of the slice as codes; false: not possible. And n_rows of them (at most
     * STORED_TILE) from `row` on, to rows from `to` on of the arrays; false: a scale is out of
     * range. Both NULL: never possible. */
    bool (*form)(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
    bool (*codes_rows)(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to);
    /* For forms that are `ordered`: the slice's column of each column of codes, [s->cols]. */
    void (*order)(const struct stored_matrix *m, const struct stored_slice *s, uint32_t *out);
};
extern const struct stored_format stored_gptq, stored_awq, stored_scaled, stored_scaled_inv,
    stored_packed, stored_mxfp4, stored_mxfp4_packed, stored_mxfp4_bytes, stored_mixed, stored_mlx,
    stored_blocks, stored_nvfp4, stored_nvfp4_packed, stored_nf4, stored_fp4, stored_llm_int8,
    stored_ternary, stored_ternary_masters, stored_torchao, stored_torchao_pairs,
    stored_torchao_tiles, stored_torchao_float, stored_hqq, stored_rounded;

/* Checks that a tensor of n_dims dimensions is a x b (or a), of `type`. -1 and one line that
 * names it. */
int stored_expect(const struct tensor *t, enum tensor_type type, uint64_t a, uint64_t b,
                  struct err *e);
/* modelopt's scales of blocks are [rows, 1, columns, 1]. */
bool stored_in_four(const struct tensor *scales);
/* Checks the scales: [rows / row_block, groups] with any of F32, F16 and BF16; by_column:
 * transposed. Beside codes in e4m3 also E8M0: U8 and F8_E8M0, 2^(byte - 127), 255 is NaN. */
int stored_expect_scales(struct stored_matrix *m, bool by_column, struct err *e);
/* Always -1: the shape of the matrix cannot be packed. */
int stored_not_multiple(const struct stored_matrix *m, const char *what, int64_t n, uint32_t of,
                        struct err *e);
/* `form` and `codes_rows` of the formats with codes minus zero points times scales. */
bool keep_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
bool keep_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
               const struct stored_slice *s, const struct mat_codes *c, int64_t to);
/* The same of codes and terms, whose bits are m->how.bits; and their `numbers`. */
bool affine_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
bool affine_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                 const struct stored_slice *s, const struct mat_codes *c, int64_t to);
void affine_numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out);
/* The same of bytes in rows: int8 with a scale for each row, or one for all rows: the row's
 * factor; e4m3 with scales for the tensor, rows or blocks. */
bool scaled_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f);
bool scaled_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                 const struct stored_slice *s, const struct mat_codes *c, int64_t to);
/* `order` of matrices with STORED_GROUPS, of whole rows: sorted by group, ascending. */
void keep_order(const struct stored_matrix *m, const struct stored_slice *s, uint32_t *order);
/* Element i of a tensor of scales, or of numbers in 16 or 32 bits. */
float stored_number(const struct tensor *t, int64_t i);
/* Scale of a row and group, any type. */
float stored_scale(const struct stored_matrix *m, int64_t row, uint32_t group);
/* vary.c. The tensor whose name is `base` and the suffix, or NULL. */
const struct tensor *stored_beside(const char *base, const char *suffix, stored_find *find,
                                   const void *ctx);
/* Sets the group: that of config.json if `n` of them cover a row, else an nth of a row. */
void stored_vary_group(struct stored_matrix *m, uint64_t n);
/* For missing zero points: 0 if config.json says that they are not needed, else -1. */
int stored_no_zeros(const struct stored_matrix *m, struct err *e);

/* The format does not guarantee alignment. */
static inline uint32_t stored_u32(const struct tensor *t, int64_t i)
{
    uint32_t u;
    __builtin_memcpy(&u, (const char *)t->data + i * 4, 4);
    return u;
}
#endif
