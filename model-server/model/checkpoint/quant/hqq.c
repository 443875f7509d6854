/* HQQ (https://mobiusml.github.io/hqq_blog/) in safetensors. The numbers of a matrix, row after
 * row, are those of another one, [numbers / group, group] with `axis` 1 and its transposed shape
 * [group, numbers / group] with 0. That one is packed along its rows: a byte has codes of rows that
 * lie a half, a quarter ... of them apart, the first in the highest bits; 3 bits, ten to a word. A
 * number is (code - zero) * scale, and zero points are no integers. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"

enum { N_BITS = STORED_FURTHER, GROUP_SIZE, AXIS };

/* A number beside the matrix, in 32 bits of either kind. */
static double number_of(const struct tensor *t)
{
    if (!t || t->bytes != 4 || (t->type != T_I32 && t->type != T_F32))
        return -1;
    return t->type == T_I32 ? (double)(int32_t)stored_u32(t, 0) : (double)stored_number(t, 0);
}

/* Bits of a stored code; 0: `.nbits` is none. Those of 1.58 bits take 2. */
static uint32_t stored_bits(const struct stored_matrix *m)
{
    static const uint8_t bits[] = {0, 1, 2, 3, 4, 8, 8, 0, 8};
    const double n = number_of(m->t[N_BITS]), whole = n > 1 && n < 2 ? 2 : n;
    for (uint32_t i = 0; i < sizeof(bits); i++)
        if (i == whole)
            return bits[i];
    return 0;
}

/* Codes to a byte, of 3 bits to a word. */
static uint32_t per_word(uint32_t bits) { return bits == 3 ? 10 : 8 / bits; }

/* Rows of the packed matrix. */
static int64_t packed_rows(const struct stored_matrix *m)
{
    const int64_t n = m->how.group, groups = m->rows * m->cols / n;
    const uint32_t per = per_word(m->how.bits);
    return ((m->by_column ? n : groups) + per - 1) / per;
}

static int check_terms(const struct stored_matrix *m, const struct tensor *t, struct err *e)
{
    const uint64_t n = (uint64_t)(m->rows * m->cols / m->how.group);
    if (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s` has dtype %s; it must be F32, F16 or BF16", t->file,
                       t->name, tensor_type_name(t->type));
    return t->bytes * 8 == n * tensor_type_bits(t->type)
               ? 0
               : tensor_wrong_shape(t, "one number for each group", e);
}

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    const uint32_t bits = stored_bits(m);
    const double group = number_of(m->t[GROUP_SIZE]), axis = number_of(m->t[AXIS]);
    const int64_t n = m->rows * m->cols;
    if (!bits || !(group >= 1 && group <= INT32_MAX) || n % (int64_t)group ||
        (axis != 0 && axis != 1) || !m->t[STORED_ZEROS])
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: no `.zero`, `.nbits` (1 to 6 or 8), `.group_size` that "
                       "divides the matrix and `.axis` are beside it",
                       t->file, t->name);
    m->how.bits = bits;
    m->how.group = (uint32_t)group;
    m->by_column = axis == 0;
    m->group = m->by_column || m->cols % m->how.group ? 1 : m->how.group;
    m->groups = (uint32_t)(m->cols / m->group);
    const enum tensor_type type = bits == 3 ? T_I32 : T_U8;
    const int64_t wide = m->by_column ? n / m->how.group : m->how.group;
    return stored_expect(t, type, (uint64_t)packed_rows(m), (uint64_t)wide, e) ||
                   check_terms(m, m->t[STORED_SCALES], e) || check_terms(m, m->t[STORED_ZEROS], e)
               ? -1
               : 0;
}

static uint8_t code(const struct stored_matrix *m, int64_t row, int64_t col)
{
    const struct tensor *t = m->t[STORED_CODES];
    const uint32_t bits = m->how.bits, per = per_word(bits);
    const int64_t i = row * m->cols + col, rows = packed_rows(m);
    const int64_t wide = m->by_column ? m->rows * m->cols / m->how.group : m->how.group;
    const int64_t of = i / wide, at = of % rows * wide + i % wide;
    const uint32_t word = bits == 3 ? stored_u32(t, at) : ((const uint8_t *)t->data)[at];
    return (uint8_t)(word >> (per - 1 - (uint32_t)(of / rows)) * bits & ((1u << bits) - 1));
}

static void terms(const struct stored_matrix *m, int64_t row, int64_t col, float *scale,
                  float *less)
{
    const int64_t i = row * m->cols + col, n = m->how.group;
    const int64_t group = m->by_column ? i % (m->rows * m->cols / n) : i / n;
    *scale = stored_number(m->t[STORED_SCALES], group);
    *less = stored_number(m->t[STORED_ZEROS], group) * *scale;
}

const struct stored_format stored_hqq = {
    .words = (const char *const[]){NULL},
    .suffix = {".W_q", ".scale", ".zero", [N_BITS] = ".nbits", ".group_size", ".axis"},
    .check = check,
    .code = code,
    .terms = terms,
    .numbers = affine_numbers,
    .form = affine_form,
    .codes_rows = affine_rows,
};
