/* int_avx2.c - without an instruction for quads: products of 8 by 8 bits are added in pairs
 * to 16 bits, and pairs of those to 32. Compiled alone with -mavx2. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx2.inc.h"

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

/* Two steps that fit 16 bits (kernels.h): one addition of pairs for both. The empty asm keeps the
 * order: gcc would collect the products of all rows before it adds them. */
#define FITS8 1
INLINE __m256i two_steps(__m256i acc, __m256i w0, __m256i w1, int32_t x0, int32_t x1)
{
    __m256i p =
        _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(_mm256_set1_epi32(x0), w0));
    __m256i q =
        _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(_mm256_set1_epi32(x1), w1));
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_add_epi16(p, q), _mm256_set1_epi16(1)));
    __asm__("" : "+x"(acc));
    return acc;
}
INLINE void two_steps8(i16 (*acc)[4], const char *w, const int32_t *x, uint32_t xs,
                       const uint32_t rows)
{
    const i16 w0 = dot8_weights(i_load(w)), w1 = dot8_weights(i_load(w + STEP_BYTES));
    UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][0].l =
        two_steps(acc[r][0].l, w0.l, w1.l, x[r], x[xs + r]);
    __asm__("" : "+r"(x)); /* x is read again: in registers it would displace sums */
    UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][0].h =
        two_steps(acc[r][0].h, w0.h, w1.h, x[r], x[xs + r]);
}

#include "model-server/backend/cpu/kernels/int.inc.h"

/* Not zero where the four weights of a row that meet in a sum of 16 bits are too large. */
INLINE __m256i too_large(const char *w)
{
    const __m256i zero = _mm256_set1_epi8(-128), one = _mm256_set1_epi8(1);
    __m256i a = _mm256_abs_epi8(_mm256_xor_si256(_mm256_loadu_si256((const void *)w), zero));
    __m256i b =
        _mm256_abs_epi8(_mm256_xor_si256(_mm256_loadu_si256((const void *)(w + STEP_BYTES)), zero));
    __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(a, one), _mm256_maddubs_epi16(b, one));
    return _mm256_cmpgt_epi16(sum, _mm256_set1_epi16(INT_FIT_MOST));
}

void k_fits_w8a8_avx2(uint8_t *fits, const void *panel, uint32_t k)
{
    const char *w = panel;
    memset(fits, 0, INT_FIT_BYTES);
    for (uint32_t b = 0; (b + 1) * INT_FIT_STEPS <= quads_of(k); b++) {
        __m256i large = _mm256_setzero_si256();
        for (uint32_t i = 0; i < INT_FIT_STEPS; i += 2, w += (size_t)2 * STEP_BYTES)
            large = _mm256_or_si256(large, _mm256_or_si256(too_large(w), too_large(w + 32)));
        fits[b / 8] |= (uint8_t)(_mm256_testz_si256(large, large) << b % 8);
    }
}
