/* int_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in pairs
 * to 16 bits, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/kernels/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { ROWS8_MAX = 4 };
#define PANELS8(rows) ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)

/* The pairs of 8-bit numbers saturate at 2^15: 2 * 255 * 127 would, 2 * 128 * 127 does not. So
 * the weights become signed, and their sign is moved to x. */
INLINE i16 dot8_weights(i16 w) { return i_xor(w, i_set(0x80808080)); }
INLINE i16 dot8_start(int32_t correction) { return (void)correction, i_set(0); }
INLINE __m256i pairs8(__m256i w, __m256i x)
{
    __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}
INLINE i16 dot8(i16 acc, i16 w, i16 x)
{
    return i_add(acc, (i16){pairs8(w.l, x.l), pairs8(w.h, x.h)});
}

#include "model-server/backend/cpu/kernels/int.inc.h"
