/* kv_avx512.c - 16 lanes are one register. Compiled alone with -mavx512{f,bw,vl,dq}. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512

/* 32 registers: up to 24 sums, the keys or values, a broadcast element of q or p. */
enum { ROWS_MAX = 12 };
#define KEY_PAGES(rows)    ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)
#define VALUE_PANELS(rows) ((rows) <= 6 ? 4 : 2)
#include "model-server/backend/cpu/kernels/kv.inc.h"
