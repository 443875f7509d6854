/* resample_avx2.c - two rows at a time. Compiled alone with -mavx2. */
#include "model-server/encoder/resample_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define VEC           __m256i
#define V(op)         _mm256_##op
#define VLOAD(p)      _mm256_loadu_si256(p)
#define VSTORE(p, v)  _mm256_storeu_si256(p, v)
#define ROWS          2
#define EVERY_LANE(m) _mm256_broadcastsi128_si256(m)
#define ISA(op)       resample_##op##_avx2

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

#include "model-server/encoder/resample_simd.inc.h"
#endif
