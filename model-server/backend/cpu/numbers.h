/* numbers.h - the 16-bit storage formats, one number at a time. Exact to fp32; rounded to nearest
 * even from fp32. Bit for bit what vcvtph2ps and vcvtps2ph do, quiet NaNs included. */
#ifndef MODEL_SERVER_BACKEND_CPU_NUMBERS_H
#define MODEL_SERVER_BACKEND_CPU_NUMBERS_H
#include "model-server/backend/backend.h"
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

/* Element i of an array of any storage type. */
static inline float number_at(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return t == DT_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}
#endif
