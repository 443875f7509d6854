/* resample_avx512.c - four rows at a time. Compiled alone with -mavx512f -mavx512bw. */
#include "model-server/encoder/resample_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define VEC                          __m512i
#define V(op)                        _mm512_##op
#define VLOAD(p)                     _mm512_loadu_si512(p)
#define VSTORE(p, v)                 _mm512_storeu_si512(p, v)
#define ROWS                         4
#define EVERY_LANE(m)                _mm512_broadcast_i32x4(m)
#define ISA(op)                      resample_##op##_avx512
#define NARROWER(op)                 resample_##op##_avx2
#define EVERY_LANE_BUT_LAST(m, last) _mm512_inserti32x4(_mm512_broadcast_i32x4(m), last, 3)
#define FLOATS                       __m512

static inline VEC load_lanes(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)a));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)b), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)c), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)d), 3);
}

static inline VEC load_rows(const uint8_t *p, size_t bytes)
{
    return load_lanes(p, p + bytes, p + 2 * bytes, p + 3 * bytes);
}

/* Sixteen pixels; see channel_index(). */
static inline VEC load_pixels(const uint8_t *p) { return load_lanes(p, p + 12, p + 24, p + 32); }

static inline void store_rows(uint8_t *p, size_t bytes, VEC v)
{
    _mm_storeu_si32(p, _mm512_castsi512_si128(v));
    _mm_storeu_si32(p + bytes, _mm512_extracti32x4_epi32(v, 1));
    _mm_storeu_si32(p + 2 * bytes, _mm512_extracti32x4_epi32(v, 2));
    _mm_storeu_si32(p + 3 * bytes, _mm512_extracti32x4_epi32(v, 3));
}

/* Whole numbers times a double, as floats. */
static inline FLOATS times(VEC v, double by)
{
    const __m512d factor = _mm512_set1_pd(by);
    const __m512d a = _mm512_cvtepi32_pd(_mm512_castsi512_si256(v));
    const __m512d b = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1));
    const __m256d low = _mm256_castps_pd(_mm512_cvtpd_ps(_mm512_mul_pd(a, factor)));
    const __m256d high = _mm256_castps_pd(_mm512_cvtpd_ps(_mm512_mul_pd(b, factor)));
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1));
}

#include "model-server/encoder/resample_simd.inc.h"
#endif
