/* kernels_avx512.c - 16 lanes are one register. Compiled alone with -mavx512{f,bw,vl,dq}. */
#include "model-server/backend/cpu/mathf.h"
#include "model-server/backend/cpu/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512

/* 32 registers: 24 sums, the weights, a broadcast element of x. */
enum { ROWS_MAX = 12 };
#define PANELS(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

#define WIDE_TILES 1
#include "model-server/backend/cpu/kernels_simd.inc.h"
// on top of those
#include "model-server/backend/cpu/kernels_round.inc.h"
