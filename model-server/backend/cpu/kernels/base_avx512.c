/* base_avx512.c - 16 lanes are one register. Compiled alone with -mavx512{f,bw,vl,dq}. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"
#include "model-server/backend/mathf.h"

#define ISA(op) k_##op##_avx512

/* 32 registers: 24 sums, the weights, a broadcast element of x. */
enum { ROWS_MAX = 12 };
#define PANELS(rows) ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)

#include "model-server/backend/cpu/kernels/simd.inc.h"
