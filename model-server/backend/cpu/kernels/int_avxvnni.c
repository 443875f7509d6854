/* int_avxvnni.c - one instruction for 8 quads. Compiled alone with -mavxvnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx2.inc.h"

#define ISA(op) k_##op##_avxvnni

/* 16 registers, two for 16 lanes. */
enum { ROWS8_MAX = 6 };
#define PANELS8(rows) ((rows) <= 1 ? 4 : (rows) <= 3 ? 2 : 1)

INLINE i16 dot8_weights(i16 w) { return w; }
INLINE i16 dot8_start(int32_t correction) { return i_set((uint32_t)correction); }
INLINE i16 dot8(i16 acc, i16 w, i16 x)
{
    return (i16){_mm256_dpbusd_avx_epi32(acc.l, w.l, x.l),
                 _mm256_dpbusd_avx_epi32(acc.h, w.h, x.h)};
}

#include "model-server/backend/cpu/kernels/int.inc.h"
