/* code_neon.inc.h - the operations that code.inc.h needs, with products of quads of
 * unsigned codes and signed activations: USDOT (FEAT_I8MM), or signed products. */
#include "model-server/backend/cpu/kernels/dot_neon.inc.h"

/* 32 registers. Packed: the sums and outputs of four rows. */
#define CODE_ROWS_PANELS(up) 1
#ifdef __ARM_FEATURE_MATMUL_INT8
enum { CODE_ROWS_MAX = 4, CODE_ROWS_FEW = 4, WIDE_ROWS_MAX = 4, CODE_ROWS_TWO = 2 };
INLINE uint32x4_t q_dot_code(uint32x4_t sum, uint32x4_t n, uint32x4_t x)
{
    return U(vusdotq_s32(S(sum), vreinterpretq_u8_u32(n), BYTES(x)));
}
INLINE i16 dot_code(i16 sum, i16 n, const int32_t *quad, const int bits)
{
    const uint32x4_t x = vdupq_n_u32((uint32_t)*quad);
    (void)bits;
    return (i16){q_dot_code(sum.a, n.a, x), q_dot_code(sum.b, n.b, x), q_dot_code(sum.c, n.c, x),
                 q_dot_code(sum.d, n.d, x)};
}
#else
/* 8-bit codes exceed the greatest signed byte: their highest bit is multiplied separately, twice
 * as 64. Sums of odd columns that count sixteen times would be such codes, so there are none. */
#ifdef __ARM_FEATURE_DOTPROD
enum { CODE_ROWS_MAX = 4, CODE_ROWS_FEW = 4, WIDE_ROWS_MAX = 4, CODE_ROWS_TWO = 0 };
#else /* widening products need the registers */
enum { CODE_ROWS_MAX = 1, CODE_ROWS_FEW = 1, WIDE_ROWS_MAX = 2, CODE_ROWS_TWO = 0 };
#endif
INLINE i16 dot_code(i16 sum, i16 n, const int32_t *quad, const int bits)
{
    const i16 x = i_set((uint32_t)*quad);
    if (bits < 8)
        return i_dot(sum, n, x);
    const i16 high = i_and(i_shr(n, 1), i_set(0x40404040));
    return i_dot(i_dot(i_dot(sum, i_and(n, i_set(0x7f7f7f7f)), x), high, x), high, x);
}
#endif

#define DOT_BY_BITS
#include "model-server/backend/cpu/kernels/code.inc.h"
