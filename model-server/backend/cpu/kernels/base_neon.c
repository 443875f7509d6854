/* base_neon.c - 16 lanes are four registers. AArch64 always has them. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_neon.inc.h"
#include "model-server/backend/mathf.h"

#define ISA(op) k_##op##_neon

/* 32 registers: 24 for the sums, 4 for the weights, a broadcast element of x. */
enum { ROWS_MAX = 6 };
#define PANELS(rows) ((rows) == 1 ? 3 : (rows) == 2 ? 2 : 1)

#include "model-server/backend/cpu/kernels/simd.inc.h"
