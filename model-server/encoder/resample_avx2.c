/* resample_avx2.c - two rows at a time. Compiled alone with -mavx2. */
#include "model-server/encoder/resample_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define VEC                          __m256i
#define V(op)                        _mm256_##op
#define VLOAD(p)                     _mm256_loadu_si256(p)
#define VSTORE(p, v)                 _mm256_storeu_si256(p, v)
#define ROWS                         2
#define EVERY_LANE(m)                _mm256_broadcastsi128_si256(m)
#define ISA(op)                      resample_##op##_avx2
#define NARROWER(op)                 resample_##op##_ref
#define EVERY_LANE_BUT_LAST(m, last) _mm256_set_m128i(last, m)
#define FLOATS                       __m256

static inline VEC load_rows(const uint8_t *p, size_t bytes)
{
    return _mm256_loadu2_m128i((const __m128i *)(p + bytes), (const __m128i *)p);
}

static inline void store_rows(uint8_t *p, size_t bytes, VEC v)
{
    const int32_t a = _mm256_extract_epi32(v, 0), b = _mm256_extract_epi32(v, 4);
    memcpy(p, &a, 4);
    memcpy(p + bytes, &b, 4);
}

/* Eight pixels; see channel_index(). */
static inline VEC load_pixels(const uint8_t *p)
{
    return _mm256_loadu2_m128i((const __m128i *)(p + 8), (const __m128i *)p);
}

/* Whole numbers times a double, as floats. */
static inline FLOATS times(VEC v, double by)
{
    const __m256d factor = _mm256_set1_pd(by);
    const __m256d a = _mm256_cvtepi32_pd(_mm256_castsi256_si128(v));
    const __m256d b = _mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1));
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_mul_pd(b, factor)),
                           _mm256_cvtpd_ps(_mm256_mul_pd(a, factor)));
}

#include "model-server/encoder/resample_simd.inc.h"
#endif
