/* torchao, from 0.14 on: transformers flattens its tensor classes to `._weight_qdata` and others,
 * whose types and shapes show the class. (Earlier files are pickles of Python classes.)
 *   Int8Tensor, IntxUnpackedToInt8Tensor: signed codes in bytes, scales and zero points
 *     [rows, groups].
 *   Float8Tensor: e4m3 with scales for the tensor, rows or blocks.
 *   Int4Tensor: signed codes of 4 bits, low nibble first; scales [groups, rows], and numbers of
 *     that shape which are added.
 *   Int4TilePackedTo4dTensor: the layout of PyTorch's tinygemm, codes less 8; scales and added
 *     numbers [groups, rows, 2]. Rows and columns are padded. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"

enum { PRE_SCALE = STORED_FURTHER, HALF = 8, BYTE_HALF = 128 };

static int8_t byte_at(const struct tensor *t, int64_t i) { return ((const int8_t *)t->data)[i]; }

/* A factor of the inputs, which numbers of weights cannot have. */
static int no_pre_scale(const struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[PRE_SCALE];
    return !t ? 0
              : err_set(e, ERR_VALIDATION, "%s: tensor `%s`: scaled inputs are not supported",
                        t->file, t->name);
}

/* ---------------------------------------------------------------- codes in bytes */

static bool pairs(const struct stored_matrix *m)
{
    const struct tensor *t = m->t[STORED_CODES];
    return t->n_dims == 2 && t->dims[1] * 2 == (uint64_t)m->cols;
}

static void vary_bytes(struct stored_matrix *m)
{
    const struct tensor *s = m->t[STORED_SCALES];
    const bool two = pairs(m);
    m->how.format = two ? &stored_torchao_pairs : m->how.format;
    stored_vary_group(m, s->n_dims == 2 ? s->dims[two ? 0 : 1] : 1);
}

/* Codes of 4 bits lie in bytes, too. */
static bool are_small(const struct stored_matrix *m)
{
    for (int64_t i = 0; i < m->rows * m->cols; i++)
        if (byte_at(m->t[STORED_CODES], i) < -HALF || byte_at(m->t[STORED_CODES], i) >= HALF)
            return false;
    return true;
}

static int check_bytes(struct stored_matrix *m, struct err *e)
{
    const uint64_t rows = (uint64_t)m->rows, blocks = m->groups;
    const struct tensor *zeros = m->t[STORED_ZEROS], *scales = m->t[STORED_SCALES];
    if (scales->n_dims == 0 || scales->dims[0] == 1)
        m->row_block = (uint32_t)m->rows;
    if (no_pre_scale(m, e) || stored_expect(m->t[STORED_CODES], T_I8, rows, (uint64_t)m->cols, e) ||
        stored_expect_scales(m, false, e))
        return -1;
    if (zeros && zeros->bytes == 1 && byte_at(zeros, 0) == 0)
        zeros = m->t[STORED_ZEROS] = NULL; /* one for all */
    if (zeros && stored_expect(zeros, T_I8, m->row_block == 1 ? rows : 1, blocks, e))
        return -1;
    m->how.symmetric = true;
    for (uint64_t i = 0; zeros && i < zeros->bytes; i++)
        m->how.symmetric &= byte_at(zeros, (int64_t)i) == 0;
    m->how.bits = are_small(m) ? 4 : 8;
    return 0;
}

static void codes_bytes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                        uint32_t n_cols, stored_tile t)
{
    const int half = m->how.bits == 4 ? HALF : BYTE_HALF;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < n_cols; c++)
            t[c][r] = (float)(byte_at(m->t[STORED_CODES], (row + r) * m->cols + col + c) + half);
}

static float zero_bytes(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const int half = m->how.bits == 4 ? HALF : BYTE_HALF;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    return (float)(half + (zeros ? byte_at(zeros, row / m->row_block * m->groups + group) : 0));
}

/* A scale for a row is the row's factor, which has more bits than a group's scale. */
static bool as_factors(const struct stored_matrix *m) { return m->groups == 1 && m->how.symmetric; }

static bool form_bytes(const struct stored_matrix *m, const struct stored_slice *s,
                       struct format *f)
{
    return as_factors(m) ? scaled_form(m, s, f) : keep_form(m, s, f);
}

static bool rows_bytes(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    return as_factors(m) ? scaled_rows(m, row, n_rows, s, c, to)
                         : keep_rows(m, row, n_rows, s, c, to);
}

/* ---------------------------------------------------------------- codes of 4 bits */

static int check_pairs(struct stored_matrix *m, struct err *e)
{
    const uint64_t rows = (uint64_t)m->rows;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    m->how.bits = 4;
    if (no_pre_scale(m, e) ||
        stored_expect(m->t[STORED_CODES], m->t[STORED_CODES]->type == T_U8 ? T_U8 : T_I8, rows,
                      (uint64_t)m->cols / 2, e) ||
        stored_expect_scales(m, true, e))
        return -1;
    return zeros ? stored_expect(zeros, m->t[STORED_SCALES]->type, m->groups, rows, e)
                 : stored_no_zeros(m, e);
}

static uint8_t code_pairs(const struct stored_matrix *m, int64_t row, int64_t col)
{
    const int8_t byte = byte_at(m->t[STORED_CODES], row * (m->cols / 2) + col / 2);
    return (uint8_t)(((uint8_t)byte >> col % 2 * 4 & 15) ^ HALF);
}

static void terms_pairs(const struct stored_matrix *m, int64_t row, int64_t col, float *scale,
                        float *less)
{
    const uint32_t group = (uint32_t)(col / m->group);
    *scale = stored_scale(m, row, group);
    *less = HALF * *scale -
            (m->t[STORED_ZEROS] ? stored_number(m->t[STORED_ZEROS], group * m->rows + row) : 0);
}

/* ---------------------------------------------------------------- tinygemm's tiles */

/* A tile has 8 rows and 128 columns: 32 lanes, each with four words of 8 codes. A lane has one
 * row, and of each 16 columns two pairs, 8 apart. */
enum { TILE_ROWS = 8, TILE_COLS = 128, STEP = 16, PAD_COLS = 1024 };
static const int64_t lanes = 32, words_each = 4;

static uint64_t up_to(int64_t n, int64_t of) { return (uint64_t)((n + of - 1) / of * of); }

static void vary_tiles(struct stored_matrix *m)
{
    const struct tensor *s = m->t[STORED_SCALES];
    const uint64_t cols = up_to(m->cols, PAD_COLS);
    m->how.group = s->n_dims == 3 && s->dims[0] && cols % s->dims[0] == 0
                       ? (uint32_t)(cols / s->dims[0])
                       : m->how.group;
}

static int check_tiles(struct stored_matrix *m, struct err *e)
{
    const struct tensor *q = m->t[STORED_CODES], *s = m->t[STORED_SCALES];
    const uint64_t rows = up_to(m->rows, TILE_ROWS), cols = up_to(m->cols, PAD_COLS);
    m->how.bits = 4;
    if (no_pre_scale(m, e))
        return -1;
    if (q->type != T_I32)
        return stored_expect(q, T_I32, rows, 0, e);
    if (q->n_dims != 4 || q->dims[0] != rows / TILE_ROWS || q->dims[1] != cols / TILE_COLS ||
        q->dims[2] != (uint64_t)lanes || q->dims[3] != (uint64_t)words_each)
        return tensor_wrong_shape(q, "tiles of 8 rows and 128 columns", e);
    if (s->type != T_BF16)
        return stored_expect(s, T_BF16, rows, 0, e);
    if (s->n_dims != 3 || s->dims[0] * m->group != cols || s->dims[1] != rows || s->dims[2] != 2)
        return tensor_wrong_shape(s, "two numbers for each group and row", e);
    m->scale_row = 2;
    m->scale_group = (int64_t)rows * 2;
    return 0;
}

static uint8_t code_tiles(const struct stored_matrix *m, int64_t row, int64_t col)
{
    static const uint8_t shift_of[TILE_ROWS] = {0, 16, 4, 20, 8, 24, 12, 28};
    const int64_t tiles = (int64_t)m->t[STORED_CODES]->dims[1], in = col % TILE_COLS;
    const int64_t tile = row / TILE_ROWS * tiles + col / TILE_COLS;
    const int64_t lane = row % TILE_ROWS * 4 + in % 8 / 2, word = in / (STEP * 2LL);
    const int64_t code = in % (STEP * 2LL) / 8 * 2 + in % 2;
    return stored_u32(m->t[STORED_CODES], (tile * lanes + lane) * words_each + word) >>
               shift_of[code] &
           15;
}

static void terms_tiles(const struct stored_matrix *m, int64_t row, int64_t col, float *scale,
                        float *less)
{
    const struct tensor *s = m->t[STORED_SCALES];
    const int64_t at = col / m->group * m->scale_group + row * m->scale_row;
    *scale = stored_number(s, at);
    *less = HALF * *scale - stored_number(s, at + 1);
}

/* ---------------------------------------------------------------- which one it is */

static void choose(struct stored *how, const char *base, stored_find *find, const void *ctx)
{
    const struct tensor *t = stored_beside(base, "._weight_qdata", find, ctx);
    how->symmetric = true;
    if (t && stored_beside(base, "._weight_scale_and_zero", find, ctx)) {
        how->format = &stored_torchao_tiles;
    } else if (t && t->type == T_F8_E4M3) {
        how->format = &stored_torchao_float;
        how->is_float = true;
        how->bits = 8;
    }
}

#define SUFFIX(scales)                                                                             \
    {                                                                                              \
        "._weight_qdata", scales, "._weight_zero_point", [PRE_SCALE] = "._weight_act_pre_scale"    \
    }
static const char *const words[] = {NULL};
const struct stored_format stored_torchao = {
    .words = words,
    .suffix = SUFFIX("._weight_scale"),
    .choose = choose,
    .vary = vary_bytes,
    .check = check_bytes,
    .codes = codes_bytes,
    .zero = zero_bytes,
    .form = form_bytes,
    .codes_rows = rows_bytes,
};
const struct stored_format stored_torchao_pairs = {
    .words = words,
    .suffix = SUFFIX("._weight_scale"),
    .check = check_pairs,
    .code = code_pairs,
    .terms = terms_pairs,
    .numbers = affine_numbers,
    .form = affine_form,
    .codes_rows = affine_rows,
};
const struct stored_format stored_torchao_tiles = {
    .words = words,
    .suffix = SUFFIX("._weight_scale_and_zero"),
    .vary = vary_tiles,
    .check = check_tiles,
    .code = code_tiles,
    .terms = terms_tiles,
    .numbers = affine_numbers,
    .form = affine_form,
    .codes_rows = affine_rows,
};
