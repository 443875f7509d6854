/* kv_avx2.c - 16 lanes are two registers. Compiled alone with -mavx2 -mfma -mf16c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2

/* 16 registers: up to 12 sums, the keys or values, a broadcast element of q or p. */
enum { ROWS_MAX = 6 };
#define KEY_PAGES(rows)    ((rows) == 1 ? 4 : (rows) == 2 ? 3 : (rows) == 3 ? 2 : 1)
#define VALUE_PANELS(rows) ((rows) == 1 ? 4 : (rows) <= 3 ? 2 : 1)
#include "model-server/backend/cpu/kernels/kv.inc.h"
