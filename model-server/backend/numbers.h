/* numbers.h - the 16-bit storage formats and e4m3, one number at a time. Exact to fp32; rounded to
 * nearest even from fp32. Bit for bit what vcvtph2ps and vcvtps2ph do, quiet NaNs included. */
#ifndef MODEL_SERVER_BACKEND_NUMBERS_H
#define MODEL_SERVER_BACKEND_NUMBERS_H
#include "model-server/backend/matrix.h"
#include <string.h>

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float f32_of_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

static inline uint16_t bf16_of_f32(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) /* infinity; NaN becomes quiet */
        return float_of(sign | 0x7f800000 | (mag & 0x3ff) << 13 | (mag > 0x7c00) << 22);
    float f = float_of(mag << 13) * 0x1p112f; /* the exponents' biases differ by 112 */
    return float_of(bits_of(f) | sign);
}

static inline uint16_t f16_of_f32(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x47800000) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) { /* subnormal: adding 0.5 leaves multiples of 2^-24 in the low bits */
        uint32_t sub = bits_of(float_of(mag) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | sub);
    }
    mag += 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | (mag - (112u << 23)) >> 13);
}

/* Quantises to -8 .. 7 times a scale that is rounded to bfloat16. If the scale is not finite:
 * zeros, and returns NaN. */
static inline float int4_of_scale(int8_t *dst, const float *src, int n, uint16_t bf16)
{
    const float scale = f32_of_bf16(bf16);
    const bool finite = (bf16 & 0x7f80) != 0x7f80;
    const float to_int = finite && scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < n; i++) {
        float q = finite ? src[i] * to_int : 0;
        q = q > 7 ? 7 : q < -8 ? -8 : q;
        dst[i] = (int8_t)(q < 0 ? q - 0.5F : q + 0.5F);
    }
    return finite ? scale : float_of(0x7fc00000);
}

/* fp8 (e4m3): sign, 4 bits of exponent, 3 of mantissa, no infinity. The values are those of the
 * f16 with the same bits, 1 / 256 of the usual e4m3 values: up to FP8_TOP. */
#define FP8_TOP 1.75f
static inline float f32_of_fp8(uint8_t b)
{
    return f32_of_f16((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7));
}

/* Rounds to nearest even; NaN and values beyond FP8_TOP become FP8_TOP. */
static inline uint8_t fp8_of_f32(float f)
{
    uint32_t u = bits_of(f), sign = u >> 24 & 0x80, mag = u & 0x7fffffff, code;
    if (mag < 0x38800000) { /* subnormal: adding 64 leaves multiples of 2^-17 in the low bits */
        code = bits_of(float_of(mag) + 64.0f) - 0x42800000;
    } else {
        mag += 0x7ffff + (mag >> 20 & 1);
        code = (mag - (112u << 23)) >> 20;
    }
    return (uint8_t)(sign | (code < 0x7e ? code : 0x7e));
}

/* e4m3 with its usual values, up to 448, and its NaN. */
static inline float f32_of_e4m3(uint8_t b)
{
    return (b & 0x7f) == 0x7f ? float_of(0x7fc00000) : f32_of_fp8(b) * 256.0f;
}
static inline uint8_t e4m3_of_f32(float f) { return fp8_of_f32(f * 0x1p-8f); }

/* Element i of an array of any storage type. */
static inline float number_at(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32)
        return ((const float *)p)[i];      // NOLINT(clang-analyzer-core.uninitialized*)
    uint16_t h = ((const uint16_t *)p)[i]; // NOLINT(clang-analyzer-core.uninitialized*)
    return t == DT_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}
#endif
