/* round_ref.c - the reference of rounding: plain C, one number at a time. This file is the
 * specification and is never optimised. */
#include "model-server/backend/host/lanes.h"
#include "model-server/backend/host/round.h"
#include "model-server/backend/numbers.h"
#include <math.h>

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

/* The squared error of a scale; lane by lane, then folded in halves. */
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
