/* round_neon.c - 16 lanes are four registers. AArch64 always has them. */
#include "model-server/backend/host/vector_neon.inc.h"

#define ISA(op) k_##op##_neon
#include "model-server/backend/host/round.inc.h"
