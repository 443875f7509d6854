/* vector_avx512.inc.h - vectors of 16 lanes, fp32 (v16) and 32-bit integers (i16), for the kernels:
 * 16 lanes are one register. */
#include "model-server/backend/host/lanes.h"
#include <immintrin.h>

typedef __m512 v16;
typedef __m512i i16;
typedef __mmask16 m16;

static inline m16 first_n(uint32_t n) { return n >= LANES ? 0xffff : (m16)((1u << n) - 1); }

static inline v16 v_set(float f) { return _mm512_set1_ps(f); }
static inline v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline v16 v_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(first_n(n), p);
}
static inline void v_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
static inline void v_store_n(float *p, v16 v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, first_n(n), v);
}
static inline v16 v_keep_n(v16 v, uint32_t n) { return _mm512_maskz_mov_ps(first_n(n), v); }

static inline v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v_fma_sum(v16 a, v16 b, v16 c) { return v_fma(a, b, c); }
static inline v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); } /* a < b ? a : b */
static inline v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
static inline v16 v_below(v16 a, v16 b, v16 yes, v16 no)              /* a < b ? yes : no */
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

static inline i16 v_bits(v16 v) { return _mm512_castps_si512(v); }
static inline v16 i_float(i16 i) { return _mm512_castsi512_ps(i); }
static inline i16 i_set(uint32_t u) { return _mm512_set1_epi32((int)u); }
static inline i16 i_load(const void *p) { return _mm512_loadu_si512(p); }
static inline i16 i_add(i16 a, i16 b) { return _mm512_add_epi32(a, b); }
static inline i16 i_sub(i16 a, i16 b) { return _mm512_sub_epi32(a, b); }
static inline i16 i_and(i16 a, i16 b) { return _mm512_and_si512(a, b); }
static inline i16 i_or(i16 a, i16 b) { return _mm512_or_si512(a, b); }
static inline i16 i_xor(i16 a, i16 b) { return _mm512_xor_si512(a, b); }
/* (a & mask) | c */
static inline i16 i_and_or(i16 a, i16 mask, i16 c)
{
    return _mm512_ternarylogic_epi32(a, mask, c, 0xea);
}
#define i_shl(a, n) _mm512_slli_epi32(a, n)
#define i_shr(a, n) _mm512_srli_epi32(a, n)
#define i_sar(a, n) _mm512_srai_epi32(a, n)
static inline i16 i_shr_by(i16 a, uint32_t n)
{
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128((int)n));
}
static inline i16 i_above(i16 a, i16 b, i16 yes, i16 no) /* signed a > b ? yes : no */
{
    return _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), no, yes);
}

static inline v16 v_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* 16 numbers of 16 bits, each in the low half of a lane. */
static inline i16 i_from_u16(const uint16_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
static inline v16 v_from_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* 16 numbers of 4 bits, each the nibble - 8: the low or the high ones of 16 bytes; of 8 bytes the
 * low ones, then the high ones. */
static inline v16 v_from_i4(const uint8_t *p, const int high)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)p), four = _mm_set1_epi8(15);
    const __m128i n = _mm_and_si128(high ? _mm_srli_epi16(b, 4) : b, four);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(n, _mm_set1_epi8(8))));
}
static inline v16 v_from_i4_alone(const uint8_t *p)
{
    const __m128i b = _mm_loadl_epi64((const void *)p), four = _mm_set1_epi8(15);
    const __m128i n =
        _mm_unpacklo_epi64(_mm_and_si128(b, four), _mm_and_si128(_mm_srli_epi16(b, 4), four));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(n, _mm_set1_epi8(8))));
}

/* 16 fp8 numbers: see f32_of_fp8(). Copies of the sign fill the bits above it; one of them is
 * cleared. */
static inline v16 v_from_fp8(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
    return _mm512_cvtph_ps(half);
}

/* 16 numbers of 8 bits as integers. */
static inline i16 i_from_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
/* The low four bits of each lane as a number. */
static inline v16 v_from_u4(i16 i)
{
    return _mm512_permutexvar_ps(i, _mm512_setr_ps(0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f,
                                                   8.0f, 9.0f, 10.0f, 11.0f, 12.0f, 13.0f, 14.0f,
                                                   15.0f));
}
/* Sixteen bytes, looked up by each byte of 0 to 15. */
struct v_bytes {
    __m512i of;
};
static inline struct v_bytes v_bytes(const uint8_t t[LANES])
{
    return (struct v_bytes){_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)t))};
}
static inline i16 i_look_up(const struct v_bytes *t, i16 i)
{
    return _mm512_shuffle_epi8(t->of, i);
}
static inline void i_store(void *p, i16 i) { _mm512_storeu_si512(p, i); }
/* Sixteen numbers, looked up by the low four bits of each lane. */
struct v_table {
    v16 of;
};
static inline struct v_table v_table(const float t[LANES])
{
    return (struct v_table){_mm512_loadu_ps(t)};
}
static inline v16 v_look_up(const struct v_table *t, i16 i)
{
    return _mm512_permutexvar_ps(i, t->of);
}

static inline void v_to_f16(uint16_t *p, v16 v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* The low 16 bits of each lane. */
static inline void i_store_u16(uint16_t *p, i16 i)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(i));
}

/* Lanes i and i + 8 added; the greater of them. */
static inline __m256 v_fold_add(v16 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
static inline __m256 v_fold_max(v16 v)
{
    return _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

static inline i16 i_max(i16 a, i16 b) { return _mm512_max_epi32(a, b); } /* signed */
static inline int32_t i_top(i16 a) { return _mm512_reduce_max_epi32(a); }
static inline int32_t i_sum(i16 a) { return _mm512_reduce_add_epi32(a); }
static inline i16 v_to_int(v16 v) { return _mm512_cvtps_epi32(v); } /* to nearest even */
static inline v16 v_from_int(i16 i) { return _mm512_cvtepi32_ps(i); }

/* Each lane's number, -128 .. 127, in 8 bits. */
static inline void i_store_s8(void *p, i16 i) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(i)); }

#include "model-server/backend/host/vector_x86.inc.h"
