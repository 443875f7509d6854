/* kv_quads_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in pairs
 * to 16 bits, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/quads_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { ROWS_MAX = 4 };
#define KEY_PAGES(rows)    ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)
#define VALUE_PANELS(rows) ((rows) <= 2 ? 2 : 1)

/* Pairs of products are at most 2 * 15 * 127, far below where they saturate. */
INLINE __m256i pairs_up(__m256i sum, __m256i pairs)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE i16 dot_quads(i16 sum, i16 n, i16 x)
{
    return (i16){pairs_up(sum.l, _mm256_maddubs_epi16(n.l, x.l)),
                 pairs_up(sum.h, _mm256_maddubs_epi16(n.h, x.h))};
}

#include "model-server/backend/cpu/kernels/kv_quads.inc.h"
