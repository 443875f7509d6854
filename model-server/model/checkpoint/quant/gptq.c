/* GPTQ as written by AutoGPTQ (arXiv 2210.17323): codes packed along the inputs, low bits first,
 * 32 bits to a word; zero points along the outputs, minus one in version 1. */
#include "model-server/model/checkpoint/quant/stored.h"

/* Columns, or rows of zero points, that fill whole words: with 3 bits 32 take three words, and
 * some codes span two. */
static uint32_t per_words(uint32_t bits) { return 32 % bits ? 32 : 32 / bits; }

static void vary(struct stored_matrix *m)
{
    const struct tensor *codes = m->t[STORED_CODES], *scales = m->t[STORED_SCALES];
    if (codes->n_dims == 2 && codes->dims[0] * 32 % (uint64_t)m->cols == 0)
        m->how.bits = (uint32_t)(codes->dims[0] * 32 / (uint64_t)m->cols);
    if (m->how.bits < 2 || m->how.bits > 8)
        m->how.bits = 4; /* check() says what is wrong */
    stored_vary_group(m, scales->n_dims == 2 ? scales->dims[0] : 0);
}

static int check(struct stored_matrix *m, struct err *e)
{
    const uint32_t bits = m->how.bits, per = per_words(bits);
    if (m->cols % per)
        return stored_not_multiple(m, "columns", m->cols, per, e);
    if (m->rows % per)
        return stored_not_multiple(m, "rows", m->rows, per, e);
    if (stored_expect(m->t[STORED_CODES], T_I32, (uint64_t)m->cols * bits / 32, (uint64_t)m->rows,
                      e) ||
        stored_expect_scales(m, true, e))
        return -1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    return !zeros ? stored_no_zeros(m, e)
                  : stored_expect(zeros, T_I32, m->groups, (uint64_t)m->rows * bits / 32, e);
}

/* Code i of a sequence whose words are `stride` apart from word `first` on. */
static uint32_t code_of(const struct tensor *t, int64_t first, int64_t stride, int64_t i,
                        uint32_t bits)
{
    const int64_t bit = i * bits;
    const uint32_t shift = (uint32_t)(bit % 32);
    uint32_t code = stored_u32(t, first + bit / 32 * stride) >> shift;
    if (shift + bits > 32)
        code |= stored_u32(t, first + (bit / 32 + 1) * stride) << (32 - shift);
    return code & ((1u << bits) - 1);
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    for (uint32_t c = 0; c < n_cols; c++)
        for (uint32_t r = 0; r < n_rows; r++)
            t[c][r] = (float)code_of(m->t[STORED_CODES], row + r, m->rows, col + c, m->how.bits);
}

/* A stored zero point wraps around if one is subtracted from 0, and so does the addition. */
static float zero(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const uint32_t bits = m->how.bits, mask = (1u << bits) - 1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (!zeros)
        return (float)(1u << (bits - 1));
    const uint32_t stored = code_of(zeros, (int64_t)group * (m->rows * bits / 32), 1, row, bits);
    return (float)((stored + m->how.zero_bias) & mask);
}

const struct stored_format stored_gptq = {
    .words = (const char *const[]){"gptq", "marlin", NULL},
    .suffix = {".qweight", ".scales", ".qzeros", ".g_idx"},
    .check = check,
    .vary = vary,
    .codes = codes,
    .zero = zero,
    .form = keep_form,
    .codes_rows = keep_rows,
    .order = keep_order,
};
