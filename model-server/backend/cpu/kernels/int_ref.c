/* int_ref.c - reference of the kernels of quantised weights: plain C, see
 * base_ref.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdlib.h>

void k_tile_int8_ref(const struct tile *t)
{
    uint32_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *w = (const uint8_t *)t->w + i / LANES * t->w_bytes;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add ? *y : 0.0f;
            for (uint32_t k = 0; k < t->k; k++) {
                int stored = w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4];
                acc = fmaf((float)(stored - 128), t->x[(size_t)k * xs + r], acc);
            }
            *y = acc;
        }
    }
}

static float add_times(float y, float sum, float factor, bool add)
{
    return add ? fmaf(sum, factor, y) : sum * factor;
}

void k_tile_fp8_ref(const struct tile *t)
{
    uint32_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const size_t at = i / LANES * t->w_bytes;
        const uint8_t *w = (const uint8_t *)t->w + at;
        const float *factors =
            t->factors ? (const float *)(const void *)((const char *)t->factors + at) : NULL;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add && !t->factors ? *y : 0.0f;
            for (uint32_t k = 0; k < t->k; k++) {
                float wk = f32_of_e4m3(w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4]);
                acc = fmaf(wk, t->x[(size_t)k * xs + r], acc);
            }
            *y = factors ? add_times(*y, acc, factors[i % LANES], t->add) : acc;
        }
    }
}

/* One row's numbers in a group of a tile of activations: every `step`th word. */
struct x_group {
    const int32_t *quads;
    uint32_t step;
    float scale;
};

static struct x_group x_group(const int32_t *x, uint32_t step, uint32_t quads)
{
    return (struct x_group){x, step, float_of((uint32_t)x[(size_t)quads * step])};
}

static int x_at(const struct x_group *x, uint32_t k)
{
    return ((const int8_t *)&x->quads[(size_t)(k / 4) * x->step])[k % 4];
}

void k_tile_w8a8_ref(const struct int_tile *t)
{
    uint32_t quads = quads_of(t->k);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *w = (const uint8_t *)t->w + i / LANES * t->w_bytes;
        float scale = ((const float *)(w + (size_t)quads * STEP_BYTES))[i % LANES];
        for (uint32_t r = 0; r < t->rows; r++) {
            struct x_group x = x_group(t->x + r, t->rows, quads);
            int32_t sum = 0;
            for (uint32_t k = 0; k < t->k; k++)
                sum += (w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4] - 128) * x_at(&x, k);
            t->y[r * t->ldy + i] = (float)sum * (scale * x.scale);
        }
    }
}

/* True if two quads of each row, at w and STEP_BYTES behind it, fit. */
static bool two_steps_fit(const uint8_t *w)
{
    for (uint32_t at = 0; at < STEP_BYTES; at += 2) {
        const uint8_t *const next = w + STEP_BYTES;
        if (abs(w[at] - 128) + abs(w[at + 1] - 128) + abs(next[at] - 128) +
                abs(next[at + 1] - 128) >
            INT_FIT_MOST)
            return false;
    }
    return true;
}

void k_fits_w8a8_ref(uint8_t *fits, const void *panel, uint32_t k)
{
    const uint8_t *w = panel;
    memset(fits, 0, INT_FIT_BYTES);
    for (uint32_t b = 0; (b + 1) * INT_FIT_STEPS <= quads_of(k); b++) {
        bool fit = true;
        for (uint32_t i = 0; i < INT_FIT_STEPS; i += 2)
            fit &= two_steps_fit(w + (size_t)(b * INT_FIT_STEPS + i) * STEP_BYTES);
        fits[b / 8] |= (uint8_t)(fit << b % 8);
    }
}

/* ---------------------------------------------------------------- rounding */

/* The greatest magnitude; NaN if a number is not finite. */
static float top_of(const float *src, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = bits_of(src[i]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    return most < 0x7f800000 ? float_of(most) : NAN;
}

float k_quantise_ref(uint8_t *dst, size_t stride, const float *src, uint32_t n, uint32_t flip,
                     int32_t *sum)
{
    float top = top_of(src, n), scale = isnan(top) ? NAN : 0, to_int = 0;
    if (top >= 0x1p-120f)
        scale = top / 127.0f, to_int = 127.0f / top;
    *sum = 0;
    for (uint32_t i = 0; i < quads_of(n) * 4; i++) {
        int v = i < n && to_int > 0 ? (int)rintf(src[i] * to_int) : 0;
        dst[i / 4 * stride + i % 4] = (uint8_t)(v ^ (int)(flip >> i % 4 * 8));
        *sum += v;
    }
    return scale;
}

float quantise_e4m3(uint8_t *dst, size_t stride, const float *src, uint32_t n)
{
    float top = top_of(src, n), scale = isnan(top) ? NAN : 0, to_e4m3 = 0;
    if (top >= 0x1p-100f)
        scale = top / 448.0f, to_e4m3 = 448.0f / top;
    for (uint32_t i = 0; i < quads_of(n) * 4; i++)
        dst[i / 4 * stride + i % 4] = i < n && to_e4m3 > 0 ? e4m3_of_f32(src[i] * to_e4m3) : 0;
    return scale;
}

/* The squared error of a scale; lane by lane, then folded in halves as in lane_sum(). */
static float quantise4_error(int8_t *dst, const float *src, float scale)
{
    float err[LANES] = {0}, to_int = 1.0f / scale;
    for (int i = 0; i < INT4_GROUP; i++) {
        float q = rintf(src[i] * to_int);
        q = q > 7.0f ? 7.0f : q < -8.0f ? -8.0f : q;
        float d = fmaf(-q, scale, src[i]);
        err[i % LANES] = fmaf(d, d, err[i % LANES]);
        dst[i] = (int8_t)q;
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            err[i] += err[i + half];
    return err[0];
}

float k_quantise4_ref(int8_t *dst, const float *src)
{
    static const float tops[] = INT4_TOPS;
    float top = top_of(src, INT4_GROUP), least = INFINITY, scale = isnan(top) ? NAN : 0;
    memset(dst, 0, INT4_GROUP);
    if (!(top >= 0x1p-60f)) /* whose square is a number */
        return scale;
    bool above = false; /* true if a positive number has the greatest magnitude */
    for (int i = 0; i < INT4_GROUP; i++)
        above |= src[i] == top;
    for (size_t i = 0; i < sizeof(tops) / sizeof(*tops); i++) {
        int8_t q[INT4_GROUP];
        float s = f32_of_bf16(bf16_of_f32((above ? top : -top) / tops[i]));
        float err = quantise4_error(q, src, s);
        if (i == 0 || err < least) {
            least = err, scale = s;
            memcpy(dst, q, sizeof(q));
        }
    }
    return scale;
}

void k_widen_f16_ref(float *dst, const uint16_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f32_of_f16(src[i]);
}

void k_widen_bf16_ref(float *dst, const uint16_t *src, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dst[i] = f32_of_bf16(src[i]);
}
