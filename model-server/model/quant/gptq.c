/* GPTQ as AutoGPTQ writes it (arXiv 2210.17323): codes packed along the inputs, low bits first, 32
 * bits to a word; zero points along the outputs, one less than they are in version 1. */
#include "model-server/model/quant/stored.h"

static int check(struct stored_matrix *m, struct err *e)
{
    const uint32_t per = 32 / m->how->bits;
    if (m->cols % per)
        return stored_not_multiple(m, "columns", m->cols, per, e);
    if (m->rows % per)
        return stored_not_multiple(m, "rows", m->rows, per, e);
    if (stored_expect(m->t[STORED_CODES], T_I32, (uint64_t)m->cols / per, (uint64_t)m->rows, e) ||
        stored_expect_scales(m, true, e))
        return -1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    return !zeros ? stored_no_zeros(m, e)
                  : stored_expect(zeros, T_I32, m->groups, (uint64_t)m->rows / per, e);
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    const uint32_t bits = m->how->bits, per = 32 / bits, mask = (1u << bits) - 1;
    for (uint32_t c = 0; c < n_cols; c++) {
        const int64_t word = (col + c) / per * m->rows + row;
        const uint32_t shift = (uint32_t)((col + c) % per) * bits;
        for (uint32_t r = 0; r < n_rows; r++)
            t[c][r] = (float)(stored_u32(m->t[STORED_CODES], word + r) >> shift & mask);
    }
}

/* The greatest zero point wraps around when one is taken from 0: so it does when it is added. */
static float zero(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const uint32_t bits = m->how->bits, per = 32 / bits, mask = (1u << bits) - 1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (!zeros)
        return (float)(1u << (bits - 1));
    uint32_t word = stored_u32(zeros, (int64_t)group * (m->rows / per) + row / per);
    return (float)(((word >> (row % per * bits)) + m->how->zero_bias) & mask);
}

const struct stored_format stored_gptq = {
    .words = (const char *const[]){"gptq", "marlin", NULL},
    .suffix = {".qweight", ".scales", ".qzeros", ".g_idx"},
    .check = check,
    .codes = codes,
    .zero = zero,
    .form = keep_form,
    .codes_rows = keep_rows,
};
