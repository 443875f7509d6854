/* quads_avx2.inc.h - rows of bytes as quads, for kernels in vectors of 256 bits. */
#include "model-server/backend/host/vector_avx2.inc.h"

/* Four rows of 16 bytes, `stride` apart, as 16 quads. */
INLINE i16 i_quads(const char *p, size_t stride)
{
    const __m128i a = _mm_loadu_si128((const void *)p);
    const __m128i b = _mm_loadu_si128((const void *)(p + stride));
    const __m128i c = _mm_loadu_si128((const void *)(p + 2 * stride));
    const __m128i d = _mm_loadu_si128((const void *)(p + 3 * stride));
    const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    const __m128i ab8 = _mm_unpackhi_epi8(a, b), cd8 = _mm_unpackhi_epi8(c, d);
    return (i16){_mm256_set_m128i(_mm_unpackhi_epi16(ab, cd), _mm_unpacklo_epi16(ab, cd)),
                 _mm256_set_m128i(_mm_unpackhi_epi16(ab8, cd8), _mm_unpacklo_epi16(ab8, cd8))};
}
