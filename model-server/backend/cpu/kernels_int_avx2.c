/* kernels_int_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in pairs
 * to 16 bits, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers, two for 16 lanes. */
enum { ROWS8_MAX = 4, ROWS4_MAX = 4 };
#define PANELS8(rows) ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)
#define PANELS4(rows) ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)

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

/* 4-bit weights: the 8 quads of a group fit 16 bits, 8 * 2 * 15 * 127 = 30480. */
INLINE i16 dot4_start(int32_t correction) { return (void)correction, i_set(0); }
INLINE i16 dot4(i16 acc, i16 w, const int32_t *quad)
{
    i16 x = i_set((uint32_t)*quad);
    return (i16){_mm256_add_epi16(acc.l, _mm256_maddubs_epi16(w.l, x.l)),
                 _mm256_add_epi16(acc.h, _mm256_maddubs_epi16(w.h, x.h))};
}
INLINE i16 dot4_end(i16 acc, int32_t correction)
{
    __m256i one = _mm256_set1_epi16(1);
    return i_add((i16){_mm256_madd_epi16(acc.l, one), _mm256_madd_epi16(acc.h, one)},
                 i_set((uint32_t)correction));
}

/* Several rows with one panel of 4-bit weights, one quad of all rows after the other, so that all
 * sums stay in registers. Hidden from the compiler, which would keep all products to add them in
 * another order. */
#define HAS_COLUMNS4_SUMS
enum { ROWS4_FEW = 2 };

INLINE __m256i pairs_of(__m256i sum, __m256i n, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(n, x));
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE __m256i nibble_of(__m256i n) { return _mm256_and_si256(n, _mm256_set1_epi32(0x0f0f0f0f)); }

/* The sums in 16 bits of 32 columns with all rows. */
INLINE void columns4_sums(i16 *sums, const char *quads, const int32_t *x, const uint32_t rows)
{
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r] = i_set(0);
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < 8; i += 2, quads += STEP_BYTES)
    {
        const i16 both = i_load(quads);
        const i16 first = {nibble_of(both.l), nibble_of(both.h)};
        const i16 second = {nibble_of(_mm256_srli_epi32(both.l, 4)),
                            nibble_of(_mm256_srli_epi32(both.h, 4))};
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const int32_t *q = x + (size_t)r * INT4_X_WORDS + i;
            const __m256i a = _mm256_set1_epi32(q[0]), b = _mm256_set1_epi32(q[1]);
            sums[r].l = pairs_of(pairs_of(sums[r].l, first.l, a), second.l, b);
            sums[r].h = pairs_of(pairs_of(sums[r].h, first.h, a), second.h, b);
        }
    }
}

#include "model-server/backend/cpu/kernels_int.inc.h"
