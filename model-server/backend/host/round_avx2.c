/* round_avx2.c - 16 lanes are two registers. Compiled alone with -mavx2 -mfma -mf16c. */
#include "model-server/backend/host/vector_avx2.inc.h"

#define ISA(op) k_##op##_avx2
#include "model-server/backend/host/round.inc.h"
