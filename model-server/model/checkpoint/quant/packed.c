/* compressed-tensors' pack-quantized: signed codes of 2 to 8 bits, stored with half of their
 * range added, packed along the inputs, low bits first; zero points likewise, along the
 * outputs. */
#include "model-server/model/checkpoint/quant/stored.h"

/* The bits whose codes fill as many words; of 7 and 8 bits the usual one. */
static void vary(struct stored_matrix *m)
{
    const struct tensor *codes = m->t[STORED_CODES], *scales = m->t[STORED_SCALES];
    for (uint32_t bits = 2; bits <= 8 && codes->n_dims == 2; bits++) {
        const uint64_t per = 32 / bits;
        if (codes->dims[1] == ((uint64_t)m->cols + per - 1) / per)
            m->how.bits = bits;
    }
    stored_vary_group(m, scales->n_dims == 2 ? scales->dims[1] : 1);
}

static int check(struct stored_matrix *m, struct err *e)
{
    const uint32_t per = 32 / m->how.bits;
    const uint64_t words = ((uint64_t)m->cols + per - 1) / per;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (stored_expect(m->t[STORED_CODES], T_I32, (uint64_t)m->rows, words, e) ||
        stored_expect_scales(m, false, e))
        return -1;
    if (m->how.symmetric) {
        m->t[STORED_ZEROS] = NULL;
        return 0;
    }
    if (!zeros)
        return stored_no_zeros(m, e);
    return stored_expect(zeros, T_I32, ((uint64_t)m->rows + per - 1) / per, m->groups, e);
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    const uint32_t bits = m->how.bits, per = 32 / bits, mask = (1u << bits) - 1;
    const int64_t words = (m->cols + per - 1) / per;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < n_cols; c++) {
            uint32_t word = stored_u32(m->t[STORED_CODES], (row + r) * words + (col + c) / per);
            t[c][r] = (float)(word >> ((col + c) % per * bits) & mask);
        }
}

static float zero(const struct stored_matrix *m, int64_t row, uint32_t group)
{
    const uint32_t bits = m->how.bits, per = 32 / bits, mask = (1u << bits) - 1;
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (!zeros)
        return (float)(1u << (bits - 1));
    uint32_t word = stored_u32(zeros, row / per * m->groups + group);
    return (float)(word >> (row % per * bits) & mask);
}

const struct stored_format stored_packed = {
    .words = (const char *const[]){"compressed-tensors", NULL},
    .suffix = {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"},
    .check = check,
    .vary = vary,
    .codes = codes,
    .zero = zero,
    .form = keep_form,
    .codes_rows = keep_rows,
    .order = keep_order,
};
