/* conv_avx2.c - compiled alone with -mavx2 -mfma. */
#include "model-server/encoder/conv.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define FLOATS  __m256
#define LANES   8
#define V(op)   _mm256_##op
#define ISA(op) op##_avx2

#include "model-server/encoder/conv_simd.inc.h"
#endif
