/* conv_avx512.c - compiled alone with -mavx512f. */
#include "model-server/encoder/conv.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define FLOATS  __m512
#define LANES   16
#define V(op)   _mm512_##op
#define ISA(op) op##_avx512

#include "model-server/encoder/conv_simd.inc.h"
#endif
