/* code_ref.c - reference of the products of codes with 8-bit activations: plain C, see
 * kernels.h. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

/* The byte of column c of 32 in the quads. */
static uint32_t byte_of(uint32_t c) { return (c / 8 * 2 + c % 2) * 4 + c % 8 / 2; }

void k_round_x_ref(int32_t *dst, const float *src, const struct code_layout *l)
{
    const uint32_t columns = term_columns(l);
    int8_t quads[CODE_COLS];
    int32_t all, sums[2] = {0, 0};
    memset(dst, 0, CODE_X_WORDS * sizeof(*dst));
    const float scale = k_quantise_ref((uint8_t *)quads, 4, src, CODE_COLS, 0, &all);
    memcpy(&dst[CODE_X_SCALE], &scale, sizeof(scale));
    for (uint32_t c = 0; c < CODE_COLS; c++)
        ((int8_t *)dst)[byte_of(c)] = quads[c];
    for (uint32_t first = 0; first < CODE_COLS; first += columns) {
        int32_t *sum = &sums[first / columns], *term = &dst[CODE_X_TERM + first / columns];
        for (uint32_t c = first; c < first + columns; c++)
            *sum += quads[c];
        const float f = -(scale * (float)*sum);
        if (code_has_offsets(l))
            memcpy(term, &f, sizeof(f));
        else
            *term = -(int32_t)l->zero * *sum;
    }
    dst[CODE_X_SUMS] = code_x_sums(sums[0], sums[1]);
}

static int code_n(const struct code_layout *l, const uint8_t *block, uint32_t lane, uint32_t in)
{
    const struct code_place p = code_place(l, in);
    const uint32_t c = in % 8, byte = lane * 4 + c / 2;
    uint32_t code = block[p.lower + byte] >> c % 2 * 4 & 15;
    if (l->upper)
        code |= (block[p.upper + byte] >> (c % 2 * 4 + p.shift) & ((1u << l->upper) - 1)) << 4;
    return l->table ? l->table[code] : (int)code;
}

/* Scale of the columns from `in` on of a block. */
static float scale_at(const struct code_layout *l, const uint8_t *block, uint32_t lane, uint32_t in)
{
    const float scale = code_f16(block, code_group(in, l->scales) * LANES + lane);
    const uint32_t j = code_group(in, l->groups) * LANES + lane;
    return l->by ? scale * (float)(int8_t)block[l->by + j] : scale;
}

static float offset_at(const struct code_layout *l, const uint8_t *block, uint32_t lane,
                       uint32_t in)
{
    const uint32_t i = code_group(in, l->scales) * LANES + lane,
                   j = code_group(in, l->groups) * LANES + lane;
    const float offset =
        l->offset ? code_f16(block + l->offset, i) : scale_at(l, block, lane, in) * l->zero;
    return l->less ? offset * (float)(int8_t)block[l->less + j] : offset;
}

void k_unpack_ref(char *dst, const char *panel, const struct code_layout *l, uint32_t k, uint32_t n)
{
    const uint32_t columns = term_columns(l);
    for (const uint32_t end = k + n; k < end; k += CODE_COLS, dst += CODE_WIDE_BYTES) {
        const uint8_t *block = (const uint8_t *)panel + (size_t)(k / CODE_BLOCK) * l->bytes;
        float *scale = (float *)(void *)(dst + CODE_WIDE_SCALE),
              *offset = (float *)(void *)(dst + CODE_WIDE_OFFSET);
        const uint32_t in = k % CODE_BLOCK;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            for (uint32_t c = 0; c < CODE_COLS; c++)
                dst[byte_of(c) / 4 * STEP_BYTES + lane * 4 + byte_of(c) % 4] =
                    (char)code_n(l, block, lane, in + c);
            for (uint32_t h = 0; h < 2; h++) {
                const uint32_t at = in + h * columns % CODE_COLS;
                scale[h * LANES + lane] = scale_at(l, block, lane, at);
                offset[h * LANES + lane] = offset_at(l, block, lane, at);
            }
        }
    }
}

/* Output `lane` of one row, continued from y. */
static float wide_output(const struct code_tile *t, const char *wide, uint32_t lane, uint32_t row,
                         float y)
{
    const uint32_t columns = term_columns(t->layout);
    const int32_t *x = t->x + (size_t)row * CODE_X_WORDS;
    for (uint32_t k = 0; k < t->k; k += CODE_COLS, wide += CODE_WIDE_BYTES) {
        const float *scale = (const float *)(const void *)(wide + CODE_WIDE_SCALE) + lane,
                    *offset = (const float *)(const void *)(wide + CODE_WIDE_OFFSET) + lane;
        const float sx = float_of((uint32_t)x[CODE_X_SCALE]);
        for (uint32_t h = 0; h < CODE_COLS / columns; h++) {
            const int32_t term = x[CODE_X_TERM + h];
            int32_t sum = code_has_offsets(t->layout) ? 0 : term;
            for (uint32_t i = h * columns; i < (h + 1) * columns; i++)
                sum +=
                    (uint8_t)wide[i / 4 * STEP_BYTES + lane * 4 + i % 4] * ((const int8_t *)x)[i];
            y = fmaf((float)sum, scale[(size_t)h * LANES] * sx, y);
            if (code_has_offsets(t->layout))
                y = fmaf(offset[(size_t)h * LANES], float_of((uint32_t)term), y);
        }
        x += (size_t)t->rows * CODE_X_WORDS;
    }
    return y;
}

void k_tile_wide_ref(const struct code_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t i = 0; i < t->n; i++) {
            float *y = &t->y[r * t->ldy + i];
            *y = wide_output(t, t->w, i, r, t->add ? *y : 0.0f);
        }
}

void k_tile_codes_ref(const struct code_tile *t)
{
    _Alignas(64) char wide[CODE_WIDE_BYTES];
    for (uint32_t i = 0; i < t->n; i += LANES) {
        const char *panel = (const char *)t->w + i / LANES * t->w_bytes;
        struct code_tile part = *t;
        part.y = t->y + i;
        part.n = t->n - i < LANES ? t->n - i : LANES;
        part.w = wide;
        part.k = CODE_COLS;
        for (uint32_t k = 0; k < t->k; k += CODE_COLS) {
            k_unpack_ref(wide, panel, t->layout, k, CODE_COLS);
            part.x = t->x + (size_t)k / CODE_COLS * t->rows * CODE_X_WORDS;
            part.add = k > 0;
            k_tile_wide_ref(&part);
        }
    }
}
