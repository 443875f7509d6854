/* kv_quads_avx512vnni.c - one instruction for 16 quads. Compiled alone with -mavx512vnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512vnni

/* 32 registers: up to 24 sums, quads, a word of q or of the weights. */
enum { ROWS_MAX = 12 };
#define KEY_PAGES(rows)    ((rows) <= 5 ? 4 : (rows) <= 8 ? 3 : 2)
#define VALUE_PANELS(rows) ((rows) <= 5 ? 4 : 2)

/* Four rows of 16 bytes, `stride` apart, as 16 quads. */
INLINE i16 i_quads(const char *p, size_t stride)
{
    const __m512i rows = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i in_four = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i z;
    if (stride == 16) {
        z = _mm512_loadu_si512(p);
    } else {
        z = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
        z = _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(p + stride)), 1);
        z = _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(p + 2 * stride)), 2);
        z = _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(p + 3 * stride)), 3);
    }
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(rows, z), _mm512_broadcast_i32x4(in_four));
}

/* Not _mm512_dpbusd_epi32(): see int_avx512vnni.c. */
INLINE i16 dot_quads(i16 sum, i16 n, i16 x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(n), "v"(x));
    return sum;
}

#include "model-server/backend/cpu/kernels/kv_quads.inc.h"
