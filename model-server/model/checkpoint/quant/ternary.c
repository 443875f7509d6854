/* BitNet (arXiv 2402.17764): numbers -1, 0 and 1 times a factor of the whole matrix.
 *
 * Packed: codes of two bits, a number plus 1. Byte (r, c) has rows r, r + n, r + 2n and r + 3n of
 * column c, low bits first, where n is a quarter of the rows. `weight_scale` multiplies, or divides
 * where the file says BitLinear. AutoBitLinear's numbers may also be stored as they are.
 *
 * Masters: trained weights in 16 or 32 bits. The factor is the mean of their magnitudes, and a
 * number is the weight divided by it, rounded and clipped.
 *
 * Activations are not rounded here: see enum arith. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>

enum { IN_BYTE = 4 };
static const float LEAST_MEAN = 1e-5f; /* transformers' bound */

static bool packed(const struct stored_matrix *m) { return m->t[STORED_CODES]->type == T_U8; }

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    const uint64_t rows = (uint64_t)m->rows / (packed(m) ? IN_BYTE : 1);
    if (packed(m) && m->rows % IN_BYTE)
        return stored_not_multiple(m, "rows", m->rows, IN_BYTE, e);
    if (stored_expect(t, packed(m) || !m->how.plain ? T_U8 : t->type, rows, (uint64_t)m->cols, e))
        return -1;
    return m->t[STORED_SCALES] ? stored_expect_scales(m, false, e) : 0;
}

/* Of all rows, whichever are loaded. */
static int check_masters(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    double sum = 0;
    if (check(m, e))
        return -1;
    for (int64_t i = 0; i < m->rows * m->cols; i++)
        sum += fabsf(stored_number(t, i));
    m->mean = (float)(sum / ((double)m->rows * (double)m->cols));
    m->mean = m->mean > LEAST_MEAN ? m->mean : LEAST_MEAN;
    return 0;
}

/* 0, 1 or 2. */
static uint8_t code_at(const struct stored_matrix *m, int64_t row, int64_t col)
{
    const struct tensor *t = m->t[STORED_CODES];
    if (packed(m)) {
        const int64_t part = m->rows / IN_BYTE;
        const uint8_t byte = ((const uint8_t *)t->data)[row % part * m->cols + col];
        return byte >> 2 * (row / part) & 3;
    }
    const float x = stored_number(t, row * m->cols + col) * (m->mean > 0 ? 1.0f / m->mean : 1.0f);
    const float n = rintf(x);
    return n >= 1 ? 2 : n <= -1 ? 0 : 1;
}

static float factor(const struct stored_matrix *m)
{
    if (m->mean > 0)
        return 1.0f / (1.0f / m->mean); /* as transformers rounds */
    const float scale = stored_scale(m, 0, 0);
    return m->how.divides ? 1.0f / scale : scale;
}

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const float by = factor(m);
    for (int64_t i = 0; i < n; i++)
        out[i] = ((float)code_at(m, row, col + i) - 1.0f) * by;
}

/* The factor of the matrix becomes that of each row. */
static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    enum { COLUMNS = 32 };
    (void)m;
    *f = formats[FORMAT_TERNARY];
    f->block = s->cols % f->block ? COLUMNS : f->block;
    f->factors = true;
    return s->cols % COLUMNS == 0 && s->cols <= QUANT_MAX_COLS;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const int64_t at = (to + r) * s->cols;
        c->factor[to + r] = factor(m);
        for (int64_t k = 0; k < s->cols; k++)
            c->codes[at + k] = code_at(m, row + r, s->col + k);
        for (int64_t k = 0; k < s->cols; k += c->format.block)
            c->scale[(at + k) / c->format.block] = f16_of_f32(1);
    }
    return true;
}

const struct stored_format stored_ternary = {
    .words = (const char *const[]){NULL},
    .suffix = {".weight", ".weight_scale"},
    .check = check,
    .numbers = numbers,
    .form = form,
    .codes_rows = codes_rows,
};
const struct stored_format stored_ternary_masters = {
    .words = (const char *const[]){NULL},
    .suffix = {".weight"},
    .check = check_masters,
    .numbers = numbers,
    .form = form,
    .codes_rows = codes_rows,
};
