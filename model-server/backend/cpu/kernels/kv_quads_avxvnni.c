/* kv_quads_avxvnni.c - one instruction for 8 quads. Compiled alone with -mavxvnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/quads_avx2.inc.h"

#define ISA(op) k_##op##_avxvnni

/* 16 registers, two for 16 lanes. */
enum { ROWS_MAX = 6 };
#define KEY_PAGES(rows)    ((rows) <= 1 ? 4 : (rows) <= 2 ? 2 : 1)
#define VALUE_PANELS(rows) ((rows) <= 2 ? 2 : 1)

INLINE i16 dot_quads(i16 sum, i16 n, i16 x)
{
    return (i16){_mm256_dpbusd_avx_epi32(sum.l, n.l, x.l),
                 _mm256_dpbusd_avx_epi32(sum.h, n.h, x.h)};
}

#include "model-server/backend/cpu/kernels/kv_quads.inc.h"
