/* kv_quads_neondot.c - one instruction for 4 quads. Compiled alone with +dotprod. */
#define ISA(op) k_##op##_neondot
#include "model-server/backend/cpu/kernels/kv_quads_neon.inc.h"
