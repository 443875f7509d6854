/* square_code_ref.c - reference of the products of codes on matrix units: plain C, see
 * code_squares.h. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

void k_square_x_ref(char *dst, const float *src, const struct code_layout *l, uint32_t row)
{
    const uint32_t columns = term_columns(l);
    int8_t quads[CODE_COLS];
    uint16_t order[CODE_COLS];
    int32_t all;
    const float scale = k_quantise_ref((uint8_t *)quads, 4, src, CODE_COLS, 0, &all);
    for (uint32_t c = 0; c < CODE_COLS; c++)
        order[record_place(c)] = bf16_of_f32(quads[c]);
    for (uint32_t first = 0; first < CODE_COLS; first += columns, dst += record_bytes(l)) {
        int32_t sum = 0;
        for (uint32_t c = first; c < first + columns; c++)
            sum += quads[c];
        const float term = -(scale * (float)sum);
        memcpy(dst + (size_t)row * columns * 2, order + first, (size_t)columns * 2);
        memcpy(dst + record_scales(l) + (size_t)row * 4, &scale, sizeof(scale));
        if (code_has_offsets(l))
            memcpy(dst + record_terms(l) + (size_t)row * 4, &term, sizeof(term));
    }
}

/* The number of column c of 32 and a lane, of what unpack() made. */
static int unpacked(const char *wide, uint32_t lane, uint32_t c)
{
    const uint32_t quad = c / 8 * 2 + c % 2;
    return (uint8_t)wide[quad * CODE_WORDS + lane * 4 + c % 8 / 2];
}

static char *unpacked_record(char *dst, const char *wide, const struct code_layout *l,
                             uint32_t first)
{
    const int zero = code_has_offsets(l) ? 0 : (int)l->zero;
    const size_t terms = (size_t)(first / term_columns(l)) * CODE_WORDS;
    for (uint32_t c = first; c < first + term_columns(l); c++)
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const uint32_t at = record_place(c) - first;
            const uint16_t n = bf16_of_f32((float)(unpacked(wide, lane, c) - zero));
            memcpy(dst + (size_t)(at / 2 * LANES + lane) * 4 + at % 2 * sizeof(n), &n, sizeof(n));
        }
    memcpy(dst + record_scales(l), wide + CODE_WIDE_SCALE + terms, CODE_WORDS);
    if (code_has_offsets(l))
        memcpy(dst + record_terms(l), wide + CODE_WIDE_OFFSET + terms, CODE_WORDS);
    return dst + record_bytes(l);
}

void k_square_w_ref(char *dst, const char *panel, const struct code_layout *l, uint32_t k,
                    uint32_t n)
{
    _Alignas(64) char wide[CODE_WIDE_BYTES];
    for (const uint32_t end = k + n; k < end; k += CODE_COLS) {
        k_unpack_ref(wide, panel, l, k, CODE_COLS);
        for (uint32_t first = 0; first < CODE_COLS; first += term_columns(l))
            dst = unpacked_record(dst, wide, l, first);
    }
}

static float float_at(const char *p, size_t i)
{
    float f;
    memcpy(&f, p + i * sizeof(f), sizeof(f));
    return f;
}

/* One group of one output of one row. */
static float add_group(float y, const struct code_layout *l, const char *x, const char *w,
                       uint32_t row, uint32_t lane)
{
    const uint32_t columns = term_columns(l);
    const uint16_t *xs = (const uint16_t *)(const void *)x + (size_t)row * columns,
                   *ws = (const uint16_t *)(const void *)w;
    float sum = 0;
    for (uint32_t k = 0; k < columns; k++)
        sum += f32_of_bf16(xs[k]) * f32_of_bf16(ws[(k / 2 * LANES + lane) * 2 + k % 2]);
    const size_t scales = record_scales(l), terms = record_terms(l);
    y = fmaf(sum, float_at(w + scales, lane) * float_at(x + scales, row), y);
    return code_has_offsets(l) ? fmaf(float_at(w + terms, lane), float_at(x + terms, row), y) : y;
}

void k_squares_codes_ref(const struct code_squares *t)
{
    const size_t record = record_bytes(t->layout);
    float *y = t->sums;
    for (uint32_t tall = 0; tall < t->tall; tall++)
        for (uint32_t wide = 0; wide < t->wide; wide++)
            for (uint32_t i = 0; i < SQUARE * SQUARE; i++, y++) {
                *y = t->add ? *y : 0.0f;
                for (uint32_t s = 0; s < t->steps; s++)
                    *y = add_group(*y, t->layout, t->x + ((size_t)tall * t->steps + s) * record,
                                   t->w + ((size_t)wide * t->steps + s) * record, i / SQUARE,
                                   i % SQUARE);
            }
}
