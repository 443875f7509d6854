/* half.h - 16-bit floats to fp32, exactly. For the few vectors that the host reads itself. */
#ifndef MODEL_SERVER_MODEL_HALF_H
#define MODEL_SERVER_MODEL_HALF_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float f16_to_f32(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                             : ldexpf((float)mantissa, -24);
    return h >> 15 ? -v : v;
}
#endif
