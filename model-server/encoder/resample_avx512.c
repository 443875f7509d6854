/* resample_avx512.c - four rows at a time. Compiled alone with -mavx512f -mavx512bw. */
#include "model-server/encoder/resample_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define VEC           __m512i
#define V(op)         _mm512_##op
#define VLOAD(p)      _mm512_loadu_si512(p)
#define VSTORE(p, v)  _mm512_storeu_si512(p, v)
#define ROWS          4
#define EVERY_LANE(m) _mm512_broadcast_i32x4(m)
#define ISA(op)       resample_##op##_avx512

static inline VEC load_rows(const uint8_t *p, size_t bytes)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + bytes)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 2 * bytes)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 3 * bytes)), 3);
}

static inline void store_rows(uint8_t *p, size_t bytes, VEC v)
{
    _mm_storeu_si32(p, _mm512_castsi512_si128(v));
    _mm_storeu_si32(p + bytes, _mm512_extracti32x4_epi32(v, 1));
    _mm_storeu_si32(p + 2 * bytes, _mm512_extracti32x4_epi32(v, 2));
    _mm_storeu_si32(p + 3 * bytes, _mm512_extracti32x4_epi32(v, 3));
}

#include "model-server/encoder/resample_simd.inc.h"
#endif
