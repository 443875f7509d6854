/* code_avxvnni.c - one instruction for 8 quads. Compiled alone with -mavxvnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx2.inc.h"

#define ISA(op) k_##op##_avxvnni

/* 16 registers, two for 16 lanes. */
enum { CODE_ROWS_MAX = 4, CODE_ROWS_FEW = 4, WIDE_ROWS_MAX = 4, CODE_ROWS_TWO = 1 };
#define CODE_ROWS_PANELS(up) 1

INLINE i16 dot_code(i16 sum, i16 n, const int32_t *quad, const int bits)
{
    (void)bits;
    const __m256i x = _mm256_set1_epi32(*quad);
    return (i16){_mm256_dpbusd_avx_epi32(sum.l, n.l, x), _mm256_dpbusd_avx_epi32(sum.h, n.h, x)};
}

#include "model-server/backend/cpu/kernels/code.inc.h"
