/* A byte for each number, int8 or e4m3, with scales for the tensor, its rows, groups of columns or
 * blocks: compressed-tensors' int-, float- and naive-quantized, fp8 and fbgemm_fp8. Scales of
 * activations are not looked at: activations are never rounded by more than the device does. */
#include "model-server/backend/numbers.h"
#include "model-server/model/quant/stored.h"

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (zeros)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: 8-bit weights with zero points are not supported",
                       zeros->file, zeros->name);
    if (stored_expect(m->t[STORED_CODES], m->how->is_float ? T_F8_E4M3 : T_I8, (uint64_t)m->rows,
                      (uint64_t)m->cols, e))
        return -1;
    const struct tensor *scales = m->t[STORED_SCALES];
    if (!m->how->group && m->how->row_block <= 1) /* one, or one a row: the file says */
        m->row_block = scales->n_dims == 0 || scales->dims[0] == 1 ? (uint32_t)m->rows : 1;
    return stored_expect_scales(m, false, e);
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *p = (const uint8_t *)m->t[STORED_CODES]->data + (row + r) * m->cols + col;
        for (uint32_t c = 0; c < n_cols; c++)
            t[c][r] = m->how->is_float ? f32_of_e4m3(p[c]) : (float)(int8_t)p[c];
    }
}

#define SUFFIX(scale)                                                                              \
    {                                                                                              \
        ".weight", scale, ".weight_zero_point", ".weight_g_idx"                                    \
    }
const struct stored_format stored_scaled = {
    .words = (const char *const[]){"compressed-tensors", "fp8", NULL},
    .suffix = SUFFIX(".weight_scale"),
    .check = check,
    .codes = codes,
};
/* Blocks, as DeepSeek named them: what is stored is the scale all the same, not its inverse. */
const struct stored_format stored_scaled_inv = {
    .words = (const char *const[]){"fp8", NULL},
    .suffix = SUFFIX(".weight_scale_inv"),
    .check = check,
    .codes = codes,
};
