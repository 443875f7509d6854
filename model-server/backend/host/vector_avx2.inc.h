/* vector_avx2.inc.h - vectors of 16 lanes, fp32 (v16) and 32-bit integers (i16), for the kernels:
 * 16 lanes are two registers. */
#include "model-server/backend/host/lanes.h"
#include <immintrin.h>

typedef struct {
    __m256 l, h;
} v16;
typedef struct {
    __m256i l, h;
} i16;

/* All ones in the lanes below n. */
static inline i16 first_n(uint32_t n)
{
    __m256i have = _mm256_set1_epi32((int)n), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (i16){_mm256_cmpgt_epi32(have, lane),
                 _mm256_cmpgt_epi32(have, _mm256_add_epi32(lane, _mm256_set1_epi32(8)))};
}

#define BOTH(f, a, b)   ((v16){f(a.l, b.l), f(a.h, b.h)})
#define I_BOTH(f, a, b) ((i16){f(a.l, b.l), f(a.h, b.h)})

static inline v16 v_set(float f) { return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
static inline v16 v_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline v16 v_load_n(const float *p, uint32_t n)
{
    i16 m = first_n(n);
    return (v16){_mm256_maskload_ps(p, m.l), _mm256_maskload_ps(p + 8, m.h)};
}
static inline void v_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.l);
    _mm256_storeu_ps(p + 8, v.h);
}
static inline void v_store_n(float *p, v16 v, uint32_t n)
{
    i16 m = first_n(n);
    _mm256_maskstore_ps(p, m.l, v.l);
    _mm256_maskstore_ps(p + 8, m.h, v.h);
}
static inline v16 v_keep_n(v16 v, uint32_t n)
{
    i16 m = first_n(n);
    return (v16){_mm256_and_ps(v.l, _mm256_castsi256_ps(m.l)),
                 _mm256_and_ps(v.h, _mm256_castsi256_ps(m.h))};
}

static inline v16 v_add(v16 a, v16 b) { return BOTH(_mm256_add_ps, a, b); }
static inline v16 v_sub(v16 a, v16 b) { return BOTH(_mm256_sub_ps, a, b); }
static inline v16 v_mul(v16 a, v16 b) { return BOTH(_mm256_mul_ps, a, b); }
static inline v16 v_div(v16 a, v16 b) { return BOTH(_mm256_div_ps, a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}
/* The same for a sum that a loop adds to: it stays in its registers. With the intrinsic gcc 12
 * sends some of many sums through memory, which halves the speed of tiles of four rows. */
INLINE v16 v_fma_sum(v16 a, v16 b, v16 c)
{
    __asm__("vfmadd231ps %1, %2, %0" : "+x"(c.l) : "x"(a.l), "x"(b.l));
    __asm__("vfmadd231ps %1, %2, %0" : "+x"(c.h) : "x"(a.h), "x"(b.h));
    return c;
}
static inline v16 v_min(v16 a, v16 b) { return BOTH(_mm256_min_ps, a, b); } /* a < b ? a : b */
static inline v16 v_max(v16 a, v16 b) { return BOTH(_mm256_max_ps, a, b); } /* a > b ? a : b */
static inline v16 v_below(v16 a, v16 b, v16 yes, v16 no)                    /* a < b ? yes : no */
{
    return (v16){_mm256_blendv_ps(no.l, yes.l, _mm256_cmp_ps(a.l, b.l, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.h, yes.h, _mm256_cmp_ps(a.h, b.h, _CMP_LT_OQ))};
}

static inline i16 v_bits(v16 v)
{
    return (i16){_mm256_castps_si256(v.l), _mm256_castps_si256(v.h)};
}
static inline v16 i_float(i16 i)
{
    return (v16){_mm256_castsi256_ps(i.l), _mm256_castsi256_ps(i.h)};
}
static inline i16 i_set(uint32_t u)
{
    return (i16){_mm256_set1_epi32((int)u), _mm256_set1_epi32((int)u)};
}
static inline i16 i_load(const void *p)
{
    const __m256i *q = p;
    return (i16){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
static inline i16 i_add(i16 a, i16 b) { return I_BOTH(_mm256_add_epi32, a, b); }
static inline i16 i_sub(i16 a, i16 b) { return I_BOTH(_mm256_sub_epi32, a, b); }
static inline i16 i_and(i16 a, i16 b) { return I_BOTH(_mm256_and_si256, a, b); }
static inline i16 i_or(i16 a, i16 b) { return I_BOTH(_mm256_or_si256, a, b); }
static inline i16 i_xor(i16 a, i16 b) { return I_BOTH(_mm256_xor_si256, a, b); }
/* (a & mask) | c */
static inline i16 i_and_or(i16 a, i16 mask, i16 c) { return i_or(i_and(a, mask), c); }
#define i_shl(a, n) ((i16){_mm256_slli_epi32((a).l, n), _mm256_slli_epi32((a).h, n)})
#define i_shr(a, n) ((i16){_mm256_srli_epi32((a).l, n), _mm256_srli_epi32((a).h, n)})
#define i_sar(a, n) ((i16){_mm256_srai_epi32((a).l, n), _mm256_srai_epi32((a).h, n)})
static inline i16 i_shr_by(i16 a, uint32_t n)
{
    const __m128i by = _mm_cvtsi32_si128((int)n);
    return (i16){_mm256_srl_epi32(a.l, by), _mm256_srl_epi32(a.h, by)};
}
static inline i16 i_above(i16 a, i16 b, i16 yes, i16 no) /* signed a > b ? yes : no */
{
    return (i16){_mm256_blendv_epi8(no.l, yes.l, _mm256_cmpgt_epi32(a.l, b.l)),
                 _mm256_blendv_epi8(no.h, yes.h, _mm256_cmpgt_epi32(a.h, b.h))};
}

static inline v16 v_from_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

/* 16 numbers of 16 bits, each in the low half of a lane. */
static inline i16 i_from_u16(const uint16_t *p)
{
    return (i16){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline v16 v_from_i8(const int8_t *p)
{
    const void *q = p + 8;
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p))),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(q)))};
}

/* 16 numbers of 4 bits, each the nibble - 8: the low or the high ones of 16 bytes; of 8 bytes the
 * low ones, then the high ones. */
static inline v16 v_from_nibbles(__m128i n)
{
    n = _mm_sub_epi8(n, _mm_set1_epi8(8));
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(n)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(n, 8)))};
}
static inline v16 v_from_i4(const uint8_t *p, const int high)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    return v_from_nibbles(_mm_and_si128(high ? _mm_srli_epi16(b, 4) : b, _mm_set1_epi8(15)));
}
static inline v16 v_from_i4_alone(const uint8_t *p)
{
    const __m128i b = _mm_loadl_epi64((const void *)p), four = _mm_set1_epi8(15);
    return v_from_nibbles(
        _mm_unpacklo_epi64(_mm_and_si128(b, four), _mm_and_si128(_mm_srli_epi16(b, 4), four)));
}

/* 16 fp8 numbers: see f32_of_fp8(). Copies of the sign fill the bits above it; one of them is
 * cleared. */
static inline v16 v_from_fp8(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                 _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

/* 16 numbers of 8 bits as integers. */
static inline i16 i_from_u8(const uint8_t *p)
{
    const void *q = p + 8;
    return (i16){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)),
                 _mm256_cvtepu8_epi32(_mm_loadl_epi64(q))};
}
/* Sixteen bytes, looked up by each byte of 0 to 15. */
struct v_bytes {
    __m256i of;
};
static inline struct v_bytes v_bytes(const uint8_t t[LANES])
{
    return (struct v_bytes){_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t))};
}
static inline i16 i_look_up(const struct v_bytes *t, i16 i)
{
    return (i16){_mm256_shuffle_epi8(t->of, i.l), _mm256_shuffle_epi8(t->of, i.h)};
}
static inline void i_store(void *p, i16 i)
{
    __m256i *q = p;
    _mm256_storeu_si256(q, i.l);
    _mm256_storeu_si256(q + 1, i.h);
}
/* Sixteen numbers, looked up by the low four bits of each lane: in both halves of the table,
 * selected by bit 3. */
struct v_table {
    __m256 l, h;
};
static inline struct v_table v_table(const float t[LANES])
{
    return (struct v_table){_mm256_loadu_ps(t), _mm256_loadu_ps(t + 8)};
}
static inline __m256 v_look_up_half(const struct v_table *t, __m256i i)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t->l, i), _mm256_permutevar8x32_ps(t->h, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
static inline v16 v_look_up(const struct v_table *t, i16 i)
{
    return (v16){v_look_up_half(t, i.l), v_look_up_half(t, i.h)};
}

static inline void v_to_f16(uint16_t *p, v16 v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.l, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.h, _MM_FROUND_TO_NEAREST_INT));
}

/* The low 16 bits of each lane; the upper ones must be zero. */
static inline void i_store_u16(uint16_t *p, i16 i)
{
    __m256i packed = _mm256_packus_epi32(i.l, i.h); /* quarters l0 h0 l1 h1 */
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

/* Lanes i and i + 8 added; the greater of them. */
static inline __m256 v_fold_add(v16 v) { return _mm256_add_ps(v.l, v.h); }
static inline __m256 v_fold_max(v16 v) { return _mm256_max_ps(v.l, v.h); }

static inline i16 i_max(i16 a, i16 b) { return I_BOTH(_mm256_max_epi32, a, b); } /* signed */
static inline int32_t i_top(i16 a)
{
    __m256i h = _mm256_max_epi32(a.l, a.h);
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
static inline int32_t i_sum(i16 a)
{
    __m256i h = _mm256_add_epi32(a.l, a.h);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
/* to nearest even */
static inline i16 v_to_int(v16 v)
{
    return (i16){_mm256_cvtps_epi32(v.l), _mm256_cvtps_epi32(v.h)};
}
static inline v16 v_from_int(i16 i)
{
    return (v16){_mm256_cvtepi32_ps(i.l), _mm256_cvtepi32_ps(i.h)};
}

/* Each lane's number, -128 .. 127, in 8 bits. */
static inline void i_store_s8(void *p, i16 i)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(i.l, i.h), 0xd8);
    _mm_storeu_si128(
        p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

/* The low four bits of each lane as a number. */
static inline v16 v_from_u4(i16 i) { return v_from_int(i_and(i, i_set(15))); }

#include "model-server/backend/host/vector_x86.inc.h"
