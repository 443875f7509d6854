/* int_avx512vnni.c - one instruction for 16 quads. Compiled alone with -mavx512vnni. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512vnni

/* 32 registers: 24 sums, the weights, a quad of x. */
enum { ROWS8_MAX = 12 };
#define PANELS8(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

INLINE i16 dot8_weights(i16 w) { return w; }
INLINE i16 dot8_start(int32_t correction) { return i_set((uint32_t)correction); }
/* Not _mm512_dpbusd_epi32(): with it gcc 12 copies every sum from register to register and spills
 * a third of them. */
INLINE i16 dot8(i16 acc, i16 w, i16 x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}

#include "model-server/backend/cpu/kernels/int.inc.h"
