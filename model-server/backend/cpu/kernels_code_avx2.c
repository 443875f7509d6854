/* kernels_code_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in
 * pairs to 16 bits, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { CODE_ROWS_MAX = 4, WIDE_ROWS_MAX = 4, CODE_ROWS_TWO = 0 };
#define DOT_BIG_DIFFERS 1
INLINE __m256i products_of(__m256i n, __m256i x, int times)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(n, x), _mm256_set1_epi16((short)times));
}

/* Pairs of products must fit 15 bits: 2 * 127 * 127 does, larger n come as two nibbles. */
INLINE i16 dot_code(i16 sum, i16 n, const int32_t *quad, const bool big)
{
    const __m256i x = _mm256_set1_epi32(*quad);
    if (!big)
        return i_add(sum, (i16){products_of(n.l, x, 1), products_of(n.h, x, 1)});
    const i16 nibble = i_set(0x0f0f0f0f), low = i_and(n, nibble), high = i_and(i_shr(n, 4), nibble);
    sum = i_add(sum, (i16){products_of(low.l, x, 1), products_of(low.h, x, 1)});
    return i_add(sum, (i16){products_of(high.l, x, 16), products_of(high.h, x, 16)});
}

#include "model-server/backend/cpu/kernels_code.inc.h"
