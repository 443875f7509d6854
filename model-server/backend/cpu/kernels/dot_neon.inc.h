/* dot_neon.inc.h - products of quads of 8-bit numbers for kernels_int_neon*.c and
 * kernels_code_neon*.c: with SDOT (FEAT_DotProd), or by widening products and pairwise sums. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_neon.inc.h"

#define BYTES(x) vreinterpretq_s8_u32(x)

/* sum[i] += n[4 i] x[4 i] + .. + n[4 i + 3] x[4 i + 3], of signed bytes. */
INLINE uint32x4_t q_dot(uint32x4_t sum, uint32x4_t n, uint32x4_t x)
{
#ifdef __ARM_FEATURE_DOTPROD
    return U(vdotq_s32(S(sum), BYTES(n), BYTES(x)));
#else
    const int16x8_t l = vmull_s8(vget_low_s8(BYTES(n)), vget_low_s8(BYTES(x)));
    const int16x8_t h = vmull_high_s8(BYTES(n), BYTES(x));
    return vaddq_u32(sum, U(vpaddq_s32(vpaddlq_s16(l), vpaddlq_s16(h))));
#endif
}

INLINE i16 i_dot(i16 sum, i16 n, i16 x)
{
    return (i16){q_dot(sum.a, n.a, x.a), q_dot(sum.b, n.b, x.b), q_dot(sum.c, n.c, x.c),
                 q_dot(sum.d, n.d, x.d)};
}
