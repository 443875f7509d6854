/* square_bytes.inc.h - quads of 8-bit weights as pairs of bfloat16, in vectors of 512 bits, for the
 * kernels that include it. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

/* The bytes of 16 numbers, of which only the upper halves are not zero, and of 16 more, as pairs.
 */
INLINE i16 pairs_of(v16 even, v16 odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, i_shr(v_bits(even), 16), v_bits(odd));
}

/* The bytes 0 and 1 of each lane, minus 128: a byte becomes the integer part of a number whose
 * fraction bits are zero. */
INLINE i16 pairs_of_bytes(i16 quad)
{
    const i16 even = i_and_or(quad, i_set(0xff), i_set(0x4b000000));
    const i16 odd = i_and_or(quad, i_set(0xff00), i_set(0x47000000));
    return pairs_of(v_sub(i_float(even), v_set(0x1p23f + 128.0f)),
                    v_sub(i_float(odd), v_set(0x1p15f + 128.0f)));
}

INLINE void widen_int8(char *dst, const char *quads, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, dst += 2 * STEP_BYTES, quads += STEP_BYTES) {
        const i16 quad = i_load(quads);
        _mm512_storeu_si512(dst, pairs_of_bytes(quad));
        _mm512_storeu_si512(dst + STEP_BYTES, pairs_of_bytes(i_shr(quad, 16)));
    }
}

INLINE i16 table(const char bytes[16])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* A code is s eeee mmm. In bfloat16 the exponent is e + 120. So the upper byte is 60 more than the
 * upper three bits of e, and the lower one is the four lower bits; subnormal codes are listed.
 * Shuffles are few, because one execution port has them all. */
INLINE void widen_fp8(char *dst, const char *quads, uint32_t n)
{
    static const char order[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    /* m * 2^-9 */
    static const char small_upper[16] = {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
    static const char small_lower[16] = {0, 0, (char)0x80, (char)0xc0, 0x00, 0x20, 0x40, 0x60};
    const i16 by = table(order), su = table(small_upper), sl = table(small_lower);
    const i16 nibble = i_set(0x0f0f0f0f), three = i_set(0x07070707), sign = i_set(0x80808080),
              normal = i_set(0x78787878);
    for (uint32_t i = 0; i < n; i++, dst += 2 * STEP_BYTES, quads += STEP_BYTES) {
        /* of each four lanes the first pairs, then the second ones */
        const i16 code = _mm512_shuffle_epi8(i_load(quads), by);
        const i16 low = i_and(code, nibble);
        const __mmask64 small = _mm512_testn_epi8_mask(code, normal);
        i16 hi = _mm512_add_epi8(i_and(_mm512_srli_epi16(code, 4), three), i_set(0x3c3c3c3c));
        i16 lo = _mm512_slli_epi16(low, 4);
        hi = _mm512_mask_shuffle_epi8(hi, small, su, low);
        lo = _mm512_mask_shuffle_epi8(lo, small, sl, low);
        hi = i_and_or(code, sign, hi);
        _mm512_storeu_si512(dst, _mm512_unpacklo_epi8(lo, hi));
        _mm512_storeu_si512(dst + STEP_BYTES, _mm512_unpackhi_epi8(lo, hi));
    }
}

/* Sums times the scales of a panel, added to what is there or not. */
INLINE void scale_panel(float *to, const float *sums, size_t to_row, size_t sums_row, v16 scale,
                        uint32_t rows, bool add)
{
    for (uint32_t r = 0; r < rows; r++, to += to_row, sums += sums_row) {
        const v16 sum = v_load(sums);
        v_store(to, add ? v_fma(sum, scale, v_load(to)) : v_mul(sum, scale));
    }
}
