/* f16_avx512fp16.c - 32 numbers of float16 are one register. Compiled alone with -mavx512fp16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512fp16

/* 32 registers: 24 sums, the weights, a pair of x. */
#define PANELS(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

typedef __m512h h32;

INLINE h32 h_zero(void) { return _mm512_setzero_ph(); }
INLINE h32 h_load(const char *p) { return _mm512_loadu_ph(p); }
INLINE h32 h_pair(float f) { return _mm512_castsi512_ph(v_bits(v_set(f))); }
INLINE h32 h_fma(h32 x, h32 y, h32 z) { return _mm512_fmadd_ph(x, y, z); }
INLINE v16 h_join(h32 x)
{
    const i16 turned = _mm512_rol_epi32(_mm512_castph_si512(x), 16);
    const h32 both = _mm512_add_ph(x, _mm512_castsi512_ph(turned));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castph_si512(both)));
}

#include "model-server/backend/cpu/kernels/f16.inc.h"
