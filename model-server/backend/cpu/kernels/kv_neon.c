/* kv_neon.c - 16 lanes are four registers. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_neon.inc.h"

#define ISA(op) k_##op##_neon

/* 32 registers: up to 24 for the sums, the keys or values, a broadcast element of q or p. */
enum { ROWS_MAX = 6 };
#define KEY_PAGES(rows)    ((rows) == 1 ? 3 : (rows) == 2 ? 2 : 1)
#define VALUE_PANELS(rows) ((rows) <= 2 ? 2 : 1)
#include "model-server/backend/cpu/kernels/kv.inc.h"
