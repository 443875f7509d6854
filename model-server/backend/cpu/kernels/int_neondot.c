/* int_neondot.c - one instruction for 4 quads. Compiled alone with +dotprod. */
#define ISA(op) k_##op##_neondot
#include "model-server/backend/cpu/kernels/int_neon.inc.h"
