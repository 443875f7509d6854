/* Numbers in 16 bits that are rounded to how.bits, 8 or 6, when they are packed: a scale in half
 * precision for each 32 columns, with 8 bits as Q8_0. No file says so; the loader does, for heads
 * (loader_head_bits()). Each row has a power of two as its factor, so that half precision holds the
 * scales of any row. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>
#include <string.h>

enum { COLUMNS = 32 };
static const struct format in_6_bits = {"int6",  ELEMENT_INT, SCALE_F16, 6,
                                        COLUMNS, COLUMNS,     32,        .factors = true};

/* Type and shape are the loader's to check. */
static int check(struct stored_matrix *m, struct err *e)
{
    (void)m, (void)e;
    return 0;
}

/* 32 numbers. Loops of a constant length become vectors. */
static void group_of(const struct tensor *t, size_t at, float *out)
{
    uint16_t halves[COLUMNS];
    memcpy(halves, (const char *)t->data + at * sizeof(*halves), sizeof(halves));
    for (int i = 0; t->type == T_BF16 && i < COLUMNS; i++)
        out[i] = f32_of_bf16(halves[i]);
    for (int i = 0; t->type != T_BF16 && i < COLUMNS; i++)
        out[i] = f32_of_f16(halves[i]);
}

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = stored_number(m->t[STORED_CODES], row * m->cols + col + i);
}

static bool form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    *f = m->how.bits == in_6_bits.bits ? in_6_bits : formats[FORMAT_Q8_0];
    f->factors = true;
    return s->col % COLUMNS == 0 && s->cols % COLUMNS == 0 && s->cols <= QUANT_MAX_COLS;
}

/* The greatest magnitude. As integers, magnitudes have the same order, and NaN is the greatest. */
static float top_of(const float *x)
{
    int32_t top = 0;
    for (int i = 0; i < COLUMNS; i++) {
        const int32_t magnitude = (int32_t)(bits_of(x[i]) & 0x7fffffff);
        top = magnitude > top ? magnitude : top;
    }
    return float_of((uint32_t)top);
}

/* The power of two that brings a row's greatest magnitude to 1/2 .. 2. */
static float unit_of(float top)
{
    enum { LEAST = -100, TOP = 127 };
    int exponent;
    frexpf(top, &exponent);
    return ldexpf(1.0f, exponent > TOP ? TOP : exponent > LEAST ? exponent : LEAST);
}

/* 32 numbers as codes around `zero`. Returns their scale, which is rounded up, so that the greatest
 * fits. The sum with 1.5 * 2^23 has the rounded number in its lower bits. */
static uint16_t round_group(const float *x, uint8_t *codes, uint32_t zero)
{
    const float top = top_of(x) / (float)(zero - 1);
    uint16_t half = f16_of_f32(top);
    half += f32_of_f16(half) < top;
    const float by = half ? 1.0f / f32_of_f16(half) : 0.0f;
    for (int i = 0; i < COLUMNS; i++)
        codes[i] = (uint8_t)(bits_of(x[i] * by + 0x1.8p23f) + zero);
    return half;
}

/* False: a number is not finite. */
static bool round_row(const struct stored_matrix *m, int64_t row, const struct stored_slice *s,
                      const struct mat_codes *c, int64_t to)
{
    const size_t from = (size_t)(row * m->cols + s->col), at = (size_t)(to * s->cols);
    float x[COLUMNS], top = 0;
    for (size_t k = 0; k < (size_t)s->cols && isfinite(top); k += COLUMNS) {
        group_of(m->t[STORED_CODES], from + k, x);
        const float of = top_of(x);
        top = of > top || !isfinite(of) ? of : top;
    }
    if (!isfinite(top))
        return false;
    const float unit = unit_of(top), by = 1.0f / unit;
    c->factor[to] = unit;
    for (size_t k = 0; k < (size_t)s->cols; k += COLUMNS) {
        group_of(m->t[STORED_CODES], from + k, x);
        for (int i = 0; i < COLUMNS; i++)
            x[i] *= by;
        c->scale[(at + k) / COLUMNS] = round_group(x, c->codes + at + k, c->format.zero);
    }
    return true;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++)
        if (!round_row(m, row + r, s, c, to + r))
            return false;
    return true;
}

const struct stored_format stored_rounded = {
    .words = (const char *const[]){NULL},
    .suffix = {""},
    .check = check,
    .numbers = numbers,
    .form = form,
    .codes_rows = codes_rows,
};
