/* f16_neonfp16.c - 32 numbers of float16 are four registers. Compiled alone with +fp16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_neon.inc.h"

#define ISA(op) k_##op##_neonfp16

/* 32 registers: 24 sums, the weights of a panel, a pair of x. */
#define PANELS(rows) ((rows) == 1 ? 3 : (rows) == 2 ? 2 : 1)

typedef struct {
    float16x8_t a, b, c, d;
} h32;

INLINE h32 h_zero(void)
{
    const float16x8_t zero = vdupq_n_f16(0);
    return (h32){zero, zero, zero, zero};
}
INLINE h32 h_load(const char *p)
{
    const float16_t *h = (const void *)p;
    return (h32){vld1q_f16(h), vld1q_f16(h + 8), vld1q_f16(h + 16), vld1q_f16(h + 24)};
}
INLINE h32 h_pair(float f)
{
    const float16x8_t pair = vreinterpretq_f16_f32(vdupq_n_f32(f));
    return (h32){pair, pair, pair, pair};
}
INLINE h32 h_fma(h32 x, h32 y, h32 z)
{
    return (h32){vfmaq_f16(z.a, x.a, y.a), vfmaq_f16(z.b, x.b, y.b), vfmaq_f16(z.c, x.c, y.c),
                 vfmaq_f16(z.d, x.d, y.d)};
}
/* The two numbers of each pair of eight, added. */
INLINE float16x8_t q_join(float16x8_t low, float16x8_t high)
{
    return vaddq_f16(vuzp1q_f16(low, high), vuzp2q_f16(low, high));
}
INLINE v16 h_join(h32 x)
{
    const float16x8_t low = q_join(x.a, x.b), high = q_join(x.c, x.d);
    return (v16){vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                 vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
}

#include "model-server/backend/cpu/kernels/f16.inc.h"
