/* AWQ's "gemm" files (arXiv 2306.00978): codes and zero points of 4 bits packed along the outputs,
 * eight to a word, in the order that its kernel unpacks them. */
#include "model-server/model/checkpoint/quant/stored.h"

enum { PER = 8 };
/* Position in its word of the n-th of eight outputs: nibble i is output 0, 2, 4, 6, 1, 3, 5,
 * 7. */
static const uint8_t shift_of[PER] = {0, 16, 4, 20, 8, 24, 12, 28};

static int check(struct stored_matrix *m, struct err *e)
{
    if (m->rows % PER)
        return stored_not_multiple(m, "rows", m->rows, PER, e);
    const uint64_t words = (uint64_t)m->rows / PER;
    if (stored_expect(m->t[STORED_CODES], T_I32, (uint64_t)m->cols, words, e) ||
        stored_expect_scales(m, true, e))
        return -1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    return !zeros ? stored_no_zeros(m, e) : stored_expect(zeros, T_I32, m->groups, words, e);
}

static uint32_t nibble(const struct tensor *t, int64_t line, int64_t rows, int64_t row)
{
    return stored_u32(t, line * (rows / PER) + row / PER) >> shift_of[row % PER] & 15;
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    for (uint32_t c = 0; c < n_cols; c++)
        for (uint32_t r = 0; r < n_rows; r++)
            t[c][r] = (float)nibble(m->t[STORED_CODES], col + c, m->rows, row + r);
}

static float zero(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const struct tensor *zeros = m->t[STORED_ZEROS];
    return zeros ? (float)nibble(zeros, group, m->rows, row) : 8;
}

const struct stored_format stored_awq = {
    .words = (const char *const[]){"awq", "gptq", "marlin", NULL},
    .suffix = {".qweight", ".scales", ".qzeros"},
    .check = check,
    .codes = codes,
    .zero = zero,
    .form = keep_form,
    .codes_rows = keep_rows,
};
