/* code_avx512vnni.c - one instruction for 16 quads. Compiled alone with -mavx512vnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512vnni

/* 32 registers. Packed: the sums and outputs of four rows. Packed with more rows: a group's weights
 * in 8, outputs in memory, one row's sum at a time. Unpacked: the same with 16 outputs. */
enum { CODE_ROWS_MAX = 16, CODE_ROWS_FEW = 4, WIDE_ROWS_MAX = 16, CODE_ROWS_TWO = 4 };
#define CODE_ROWS_PANELS(up) 4
#define CODE_ROWS_FAR        4
/* Not _mm512_dpbusd_epi32(): see int_avx512vnni.c. */
INLINE i16 dot_code(i16 sum, i16 n, const int32_t *quad, const int bits)
{
    (void)bits;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(n), "m"(*quad));
    return sum;
}

#include "model-server/backend/cpu/kernels/code.inc.h"
