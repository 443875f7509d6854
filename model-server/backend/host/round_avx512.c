/* round_avx512.c - 16 lanes are one register. Compiled alone with -mavx512{f,bw,vl,dq}. */
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512
#include "model-server/backend/host/round.inc.h"
