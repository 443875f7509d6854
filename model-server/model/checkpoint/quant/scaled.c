/* One byte per number, int8 or e4m3, with scales for the tensor, its rows, groups of columns or
 * blocks: compressed-tensors' int-, float-, naive- and mxfp8-quantized, fp8, fbgemm_fp8, and
 * bitsandbytes' LLM.int8() (arXiv 2208.07339), whose scales are the greatest magnitudes of the
 * rows. Scales of activations are not used: only the device rounds activations. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <string.h>

/* One scale, one a row, or blocks: those of config.json if they fit, else equal ones. */
static void vary(struct stored_matrix *m)
{
    const struct tensor *s = m->t[STORED_SCALES];
    const uint64_t rows = (uint64_t)m->rows, block = m->how.row_block;
    const uint64_t down = s->n_dims ? s->dims[0] : 1;
    const uint64_t across = stored_in_four(s) ? s->dims[2] : s->n_dims == 2 ? s->dims[1] : 1;
    stored_vary_group(m, across);
    if (across <= 1 && (down <= 1 || down == rows))
        m->how.row_block = 0; /* check() decides */
    else if (down && (!block || (rows + block - 1) / block != down) && rows % down == 0)
        m->how.row_block = (uint32_t)(rows / down);
}

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *zeros = m->t[STORED_ZEROS];
    if (zeros)
        return err_set(e, ERR_VALIDATION,
                       "%s: tensor `%s`: 8-bit weights with zero points are not supported",
                       zeros->file, zeros->name);
    if (stored_expect(m->t[STORED_CODES], m->how.is_float ? T_F8_E4M3 : T_I8, (uint64_t)m->rows,
                      (uint64_t)m->cols, e))
        return -1;
    const struct tensor *scales = m->t[STORED_SCALES];
    if (!m->how.group && m->how.row_block <= 1) /* one, or one a row: the file says */
        m->row_block = scales->n_dims == 0 || scales->dims[0] == 1 ? (uint32_t)m->rows : 1;
    return stored_expect_scales(m, false, e);
}

static void codes(const struct stored_matrix *m, int64_t row, uint32_t n_rows, int64_t col,
                  uint32_t n_cols, stored_tile t)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *p = (const uint8_t *)m->t[STORED_CODES]->data + (row + r) * m->cols + col;
        for (uint32_t c = 0; c < n_cols; c++)
            t[c][r] = m->how.is_float ? f32_of_e4m3(p[c]) : (float)(int8_t)p[c];
    }
}

/* e4m3 with scales for columns: the greatest power of two that divides the groups, and the place
 * in one where the slice begins. A slice within a group has a scale for each row. */
static bool float_form(const struct stored_matrix *m, const struct stored_slice *s,
                       struct format *f)
{
    enum { LEAST = 32, MOST = 2048 };
    const int64_t group = m->group;
    *f = formats[FORMAT_FP8];
    f->name = m->how.method;
    if (s->col / group != (s->col + s->cols - 1) / group)
        for (f->block = MOST; group % f->block || s->col % f->block;)
            f->block /= 2;
    return (!f->block || f->block >= LEAST) && s->cols <= QUANT_MAX_COLS && !m->t[STORED_GROUPS];
}

static void float_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    const uint32_t blocks = format_blocks(&c->format, (uint32_t)s->cols);
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *p = (const uint8_t *)m->t[STORED_CODES]->data + (row + r) * m->cols + s->col;
        memcpy(c->codes + (to + r) * s->cols, p, (size_t)s->cols);
        for (uint32_t b = 0; b < blocks; b++)
            c->scales[(to + r) * blocks + b] = stored_scale(
                m, row + r, (uint32_t)((s->col + (int64_t)b * c->format.block) / m->group));
    }
}

/* int8 with a scale for each row, or for all rows: it becomes the factor of the row. */
bool scaled_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    enum { COLUMNS = 32, BLOCK = 256 };
    if (m->how.is_float)
        return float_form(m, s, f);
    *f = (struct format){.name = m->how.method,
                         .element = ELEMENT_INT,
                         .scale = SCALE_F16,
                         .bits = 8,
                         .group = COLUMNS,
                         .block = s->cols % BLOCK ? COLUMNS : BLOCK,
                         .zero = 128,
                         .factors = true};
    return m->groups == 1 && s->cols % COLUMNS == 0 && s->cols <= QUANT_MAX_COLS &&
           !m->t[STORED_GROUPS];
}

bool scaled_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                 const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    if (m->how.is_float)
        float_rows(m, row, n_rows, s, c, to);
    for (uint32_t r = 0; !m->how.is_float && r < n_rows; r++) {
        const uint8_t *p = (const uint8_t *)m->t[STORED_CODES]->data + (row + r) * m->cols + s->col;
        const int64_t at = (to + r) * s->cols;
        c->factor[to + r] = stored_scale(m, row + r, 0);
        for (int64_t k = 0; k < s->cols; k++)
            c->codes[at + k] = p[k] ^ 0x80;
        for (int64_t k = 0; k < s->cols; k += c->format.block)
            c->scale[(at + k) / c->format.block] = f16_of_f32(1);
    }
    return true;
}

#define SUFFIX(scale)                                                                              \
    {                                                                                              \
        ".weight", scale, ".weight_zero_point", ".weight_g_idx"                                    \
    }
const struct stored_format stored_scaled = {
    .words = (const char *const[]){"compressed-tensors", "fp8", NULL},
    .suffix = SUFFIX(".weight_scale"),
    .check = check,
    .vary = vary,
    .codes = codes,
    .form = scaled_form,
    .codes_rows = scaled_rows,
};
/* Float8Tensor: torchao.c. */
const struct stored_format stored_torchao_float = {
    .words = (const char *const[]){NULL},
    .suffix = {"._weight_qdata", "._weight_scale"},
    .check = check,
    .vary = vary,
    .codes = codes,
    .form = scaled_form,
    .codes_rows = scaled_rows,
};
/* Blocks with DeepSeek's names: the stored number is the scale, not its inverse. */
const struct stored_format stored_scaled_inv = {
    .words = (const char *const[]){"fp8", NULL},
    .suffix = SUFFIX(".weight_scale_inv"),
    .check = check,
    .codes = codes,
    .form = scaled_form,
    .codes_rows = scaled_rows,
};
/* Rows are the only order in current files. */
static int check_rows(struct stored_matrix *m, struct err *e)
{
    const struct tensor *order = m->t[STORED_FURTHER];
    if (order && (order->type != T_U8 || order->bytes != 1 || *(const uint8_t *)order->data != 0))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: only numbers in rows (0) are read",
                       order->file, order->name);
    return check(m, e);
}
const struct stored_format stored_llm_int8 = {
    .words = (const char *const[]){"bitsandbytes", NULL},
    .suffix = {".weight", ".SCB", [STORED_FURTHER] = ".weight_format"},
    .check = check_rows,
    .codes = codes,
    .form = scaled_form,
    .codes_rows = scaled_rows,
};
