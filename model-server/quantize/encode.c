#include "model-server/quantize/encode.h"
#include "model-server/backend/numbers.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { SMALL = 32, LARGE = 256 };

static void put_half(uint8_t *p, float f)
{
    const uint16_t h = f16_of_f32(f);
    memcpy(p, &h, sizeof(h));
}
static float as_half(float f) { return f32_of_f16(f16_of_f32(f)); }
static int clamp(float q, int low, int high)
{
    const float r = q < 0 ? q - 0.5F : q + 0.5F;
    return !(r > (float)low) ? low : r >= (float)high ? high : (int)r;
}

/* The cost of errors of n numbers. */
static void weigh(const float *x, const float *weight, int n, float *w)
{
    float mean = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] * x[i] / (float)n;
    for (int i = 0; i < n; i++) {
        w[i] = sqrtf(mean + x[i] * x[i]) * (weight ? weight[i] : 1);
        if (!(w[i] > FLT_MIN)) /* a column without input */
            w[i] = FLT_MIN;
    }
}

/* ---------------------------------------------------------------- scales */

/* x ~ scale * q with q in -half .. half - 1. The number of the greatest magnitude is mapped to
 * the end with one more code. */
static float fit(const float *x, const float *w, int n, int half)
{
    float top = 0, scale = 0;
    double best = 0;
    for (int i = 0; i < n; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (!(fabsf(top) > FLT_MIN) || !isfinite(top))
        return 0;
    for (int t = -9; t <= 9; t++) {
        const float inverse = -((float)half + 0.1F * (float)t) / top;
        double xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            const int q = clamp(inverse * x[i], -half, half - 1);
            xq += (double)w[i] * (double)x[i] * q;
            qq += (double)w[i] * q * q;
        }
        if (qq > 0 && xq * xq > best * qq) {
            best = xq * xq / qq;
            scale = (float)(xq / qq);
        }
    }
    return scale;
}

/* x ~ scale * q - less with q in 0 .. most and less >= 0. */
static void fit_offset(const float *x, const float *w, int n, int most, float *scale, float *less)
{
    float low = 0, high = x[0];
    double least = -1;
    for (int i = 0; i < n; i++)
        low = fminf(low, x[i]), high = fmaxf(high, x[i]);
    *scale = 0, *less = -low;
    if (!(high > low) || !isfinite(high - low))
        return;
    for (int t = 0; t < 24; t++) {
        const float inverse = ((float)most - 1 + 0.1F * (float)t) / (high - low);
        double sw = 0, sx = 0, sq = 0, qq = 0, qx = 0, xx = 0;
        for (int i = 0; i < n; i++) {
            const double v = (double)w[i], q = clamp((x[i] - low) * inverse, 0, most);
            const double y = (double)x[i];
            sw += v, sx += v * y, sq += v * q, qq += v * q * q, qx += v * q * y, xx += v * y * y;
        }
        const double det = sw * qq - sq * sq;
        double d = det > 0 ? (sw * qx - sx * sq) / det : 0;
        double m = det > 0 ? (qq * sx - sq * qx) / det : 1;
        if (m > 0) {
            m = 0;
            d = qq > 0 ? qx / qq : 0;
        }
        const double error =
            xx + d * d * qq + m * m * sw + 2 * d * m * sq - 2 * d * qx - 2 * m * sx;
        if (d > 0 && (least < 0 || error < least))
            least = error, *scale = (float)d, *less = (float)-m;
    }
}

static double error_of(const float *x, const float *w, int n, float scale, float less, int low,
                       int high)
{
    const float inverse = scale != 0 ? 1 / scale : 0;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const int q = clamp((x[i] + less) * inverse, low, high);
        const double d = (double)(scale * (float)q - less - x[i]);
        sum += (double)w[i] * d * d;
    }
    return sum;
}

static void codes_of(const float *x, int n, float scale, float less, int low, int high, int plus,
                     uint8_t *out)
{
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)(clamp((x[i] + less) * inverse, low, high) + plus);
}

/* ---------------------------------------------------------------- 32 numbers */

static void put_nibbles(const uint8_t *code, uint8_t *q)
{
    for (int i = 0; i < 16; i++)
        q[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
}

static void put_fifths(const uint8_t *code, uint8_t *bits)
{
    memset(bits, 0, 4);
    for (int i = 0; i < 32; i++)
        bits[i / 8] |= (uint8_t)((code[i] >> 4 & 1) << i % 8);
}

static void symmetric(const float *x, const float *weight, int half, uint8_t *code, uint8_t *scale)
{
    float w[SMALL];
    weigh(x, weight, SMALL, w);
    const float d = as_half(fit(x, w, SMALL, half));
    put_half(scale, d);
    codes_of(x, SMALL, d, 0, -half, half - 1, half, code);
}

static void with_offset(const float *x, const float *weight, int most, uint8_t *code, uint8_t *at)
{
    float w[SMALL], d, less;
    weigh(x, weight, SMALL, w);
    fit_offset(x, w, SMALL, most, &d, &less);
    d = as_half(d), less = as_half(less);
    put_half(at, d), put_half(at + 2, -less);
    codes_of(x, SMALL, d, less, 0, most, 0, code);
}

static void q4_0(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[SMALL];
    symmetric(x, weight, 8, code, b);
    put_nibbles(code, b + 2);
}

static void q5_0(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[SMALL];
    symmetric(x, weight, 16, code, b);
    put_fifths(code, b + 2);
    put_nibbles(code, b + 6);
}

static void q4_1(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[SMALL];
    with_offset(x, weight, 15, code, b);
    put_nibbles(code, b + 4);
}

static void q5_1(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[SMALL];
    with_offset(x, weight, 31, code, b);
    put_fifths(code, b + 4);
    put_nibbles(code, b + 8);
}

static void q8_0(const float *x, const float *weight, uint8_t *b)
{
    float top = 0;
    (void)weight;
    for (int i = 0; i < SMALL; i++)
        top = fmaxf(top, fabsf(x[i]));
    const float d = as_half(top / 127);
    put_half(b, d);
    for (int i = 0; i < SMALL; i++)
        b[2 + i] = (uint8_t)clamp(d > 0 ? x[i] / d : 0, -127, 127);
}

/* The scale that the greatest number needs, or the next smaller one. */
static void mxfp4(const float *x, const float *weight, uint8_t *b)
{
    static const float numbers[8] = {0, 1, 2, 3, 4, 6, 8, 12}; /* doubled */
    uint8_t code[2][SMALL];
    double error[2] = {0};
    float top = 0, w[SMALL];
    weigh(x, weight, SMALL, w);
    for (int i = 0; i < SMALL; i++)
        top = fmaxf(top, fabsf(x[i]));
    const int power = top > 0 && isfinite(top) ? (int)floorf(log2f(top)) - 2 : -127;
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < SMALL; i++) {
            const float y = ldexpf(fabsf(x[i]), 1 - (power + t));
            int best = 0;
            for (int k = 1; k < 8; k++)
                best = fabsf(numbers[k] - y) < fabsf(numbers[best] - y) ? k : best;
            const double d = (double)ldexpf(numbers[best] - y, power + t - 1);
            error[t] += (double)w[i] * d * d;
            code[t][i] = (uint8_t)(best | (x[i] < 0) << 3);
        }
    const int t = error[1] < error[0], byte = power + t + 127;
    b[0] = (uint8_t)(byte < 0 ? 0 : byte > 254 ? 254 : byte);
    put_nibbles(code[t], b + 1);
}

/* ---------------------------------------------------------------- 256 numbers */

/* Scales and offsets of 32 numbers in 6 bits each, as bytes 0 .. 11. */
static void put_scales(const uint8_t *by, const uint8_t *less, uint8_t *s)
{
    for (int g = 0; g < 4; g++) {
        s[g] = (uint8_t)((by[g] & 63) | (by[g + 4] >> 4) << 6);
        s[g + 4] = (uint8_t)((less[g] & 63) | (less[g + 4] >> 4) << 6);
        s[g + 8] = (uint8_t)((by[g + 4] & 15) | (less[g + 4] & 15) << 4);
    }
}

/* Tries one step up or down of either, and keeps the better fit. */
static void step(const float *x, const float *w, int most, float d, float dmin, uint8_t *by,
                 uint8_t *less)
{
    const int b = *by, l = *less;
    double least = -1;
    for (int i = b > 0 ? b - 1 : 0; i <= (b < 63 ? b + 1 : 63); i++)
        for (int k = l > 0 ? l - 1 : 0; k <= (l < 63 ? l + 1 : 63); k++) {
            const double error = error_of(x, w, SMALL, d * (float)i, dmin * (float)k, 0, most);
            if (least < 0 || error < least)
                least = error, *by = (uint8_t)i, *less = (uint8_t)k;
        }
}

/* d, dmin, scales[12] at `b`; the codes. */
static void offsets_k(const float *x, const float *weight, int most, uint8_t *b, uint8_t *code)
{
    float w[LARGE], scale[8], low[8], top = 0, top_low = 0;
    uint8_t by[8], less[8];
    weigh(x, weight, LARGE, w);
    for (int g = 0; g < 8; g++) {
        fit_offset(x + (size_t)g * SMALL, w + (size_t)g * SMALL, SMALL, most, &scale[g], &low[g]);
        top = fmaxf(top, scale[g]), top_low = fmaxf(top_low, low[g]);
    }
    const float d = as_half(top / 63), dmin = as_half(top_low / 63);
    put_half(b, d), put_half(b + 2, dmin);
    for (int g = 0; g < 8; g++) {
        by[g] = (uint8_t)clamp(d > 0 ? scale[g] / d : 0, 0, 63);
        less[g] = (uint8_t)clamp(dmin > 0 ? low[g] / dmin : 0, 0, 63);
        step(x + (size_t)g * SMALL, w + (size_t)g * SMALL, most, d, dmin, &by[g], &less[g]);
        codes_of(x + (size_t)g * SMALL, SMALL, d * (float)by[g], dmin * (float)less[g], 0, most, 0,
                 code + (size_t)g * SMALL);
    }
    put_scales(by, less, b + 4);
}

static void put_low(const uint8_t *code, uint8_t *q)
{
    for (int g = 0; g < 8; g += 2)
        for (int l = 0; l < 32; l++)
            q[g / 2 * 32 + l] =
                (uint8_t)((code[g * 32 + l] & 15) | (code[g * 32 + 32 + l] & 15) << 4);
}

static void q4_k(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[LARGE];
    offsets_k(x, weight, 15, b, code);
    put_low(code, b + 16);
}

static void q5_k(const float *x, const float *weight, uint8_t *b)
{
    uint8_t code[LARGE];
    offsets_k(x, weight, 31, b, code);
    put_low(code, b + 48);
    memset(b + 16, 0, 32);
    for (int i = 0; i < LARGE; i++)
        b[16 + i % 32] |= (uint8_t)((code[i] >> 4) << i / 32);
}

/* ql[128], qh[64], scales[16], d */
static void q6_k(const float *x, const float *weight, uint8_t *b)
{
    float w[LARGE], scale[16], top = 0;
    uint8_t code[LARGE];
    weigh(x, weight, LARGE, w);
    for (int g = 0; g < 16; g++) {
        scale[g] = fit(x + (size_t)g * 16, w + (size_t)g * 16, 16, 32);
        top = fabsf(scale[g]) > fabsf(top) ? scale[g] : top;
    }
    const float d = as_half(top / -128);
    put_half(b + 208, d);
    for (int g = 0; g < 16; g++) {
        const int first = clamp(d != 0 ? scale[g] / d : 0, -128, 127);
        int by = first;
        double least = -1;
        for (int i = first > -128 ? first - 1 : -128; i <= (first < 127 ? first + 1 : 127); i++) {
            const double error =
                error_of(x + (size_t)g * 16, w + (size_t)g * 16, 16, d * (float)i, 0, -32, 31);
            if (least < 0 || error < least)
                least = error, by = i;
        }
        b[192 + g] = (uint8_t)(int8_t)by;
        codes_of(x + (size_t)g * 16, 16, d * (float)by, 0, -32, 31, 32, code + (size_t)g * 16);
    }
    memset(b, 0, 192);
    for (int i = 0; i < LARGE; i++) {
        b[i / 128 * 64 + i % 64] |= (uint8_t)((code[i] & 15) << i % 128 / 64 * 4);
        b[128 + i / 128 * 32 + i % 32] |= (uint8_t)((code[i] >> 4) << i % 128 / 32 * 2);
    }
}

/* ---------------------------------------------------------------- all of them */

typedef void encoder(const float *x, const float *weight, uint8_t *b);
static encoder *const encoders[GGUF_N_PACKINGS] = {
    [GGUF_Q4_0] = q4_0, [GGUF_Q4_1] = q4_1, [GGUF_Q5_0] = q5_0,
    [GGUF_Q5_1] = q5_1, [GGUF_Q8_0] = q8_0, [GGUF_Q4_K] = q4_k,
    [GGUF_Q5_K] = q5_k, [GGUF_Q6_K] = q6_k, [GGUF_MXFP4] = mxfp4};

void encode_row(enum gguf_packing p, const float *x, const float *weight, uint64_t n, uint8_t *out)
{
    const struct gguf_packing_info *k = &gguf_packings[p];
    if (p == GGUF_F32) {
        memcpy(out, x, n * sizeof(*x));
        return;
    }
    for (uint64_t i = 0; i < n; i += k->elements, out += k->bytes) {
        const uint16_t h = p == GGUF_F16 ? f16_of_f32(x[i]) : bf16_of_f32(x[i]);
        if (encoders[p])
            encoders[p](x + i, weight ? weight + i : NULL, out);
        else
            memcpy(out, &h, sizeof(h));
    }
}
