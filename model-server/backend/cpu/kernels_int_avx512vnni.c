/* kernels_int_avx512vnni.c - one instruction for 16 quads. Compiled alone with -mavx512vnni. */
#include "model-server/backend/cpu/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512vnni

/* 32 registers. 8 bits: 24 sums, the weights, a quad of x. 4 bits: a group's weights in 8, the
 * sums, one row's sum at a time. */
enum { ROWS8_MAX = 12, ROWS4_MAX = 16 };
#define PANELS8(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)
#define PANELS4(rows) ((rows) <= 4 ? 4 : (rows) <= 8 ? 2 : 1)

INLINE i16 dot8_weights(i16 w) { return w; }
INLINE i16 dot8_start(int32_t correction) { return i_set((uint32_t)correction); }
/* Not _mm512_dpbusd_epi32(): with it gcc 12 copies every sum from register to register and spills
 * a third of them. */
INLINE i16 dot8(i16 acc, i16 w, i16 x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}
INLINE i16 dot4_start(int32_t correction) { return i_set((uint32_t)correction); }
INLINE i16 dot4(i16 acc, i16 w, const int32_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*x));
    return acc;
}
INLINE i16 dot4_end(i16 acc, int32_t correction) { return (void)correction, acc; }

/* One row of x in registers. High nibbles are not shifted: their sum is 16 times too large and is
 * shifted once. Two chains of sums reduce stalls. */
#define HAS_DOT4_ONE
INLINE i16 dot4_one(i16 low, const char *quads, const i16 *x)
{
    i16 high = i_set(0);
    UNROLL for (size_t i = 0; i < 4; i++)
    {
        i16 both = i_load(quads + i * STEP_BYTES);
        low = dot8(low, i_and(both, i_set(0x0f0f0f0f)), x[2 * i]);
        high = dot8(high, i_and(both, i_set(0xf0f0f0f0)), x[2 * i + 1]);
    }
    return i_add(low, i_sar(high, 4));
}

#include "model-server/backend/cpu/kernels_int.inc.h"
