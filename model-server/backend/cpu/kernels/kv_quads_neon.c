/* kv_quads_neon.c - without an instruction for quads. */
#define ISA(op) k_##op##_neon
#include "model-server/backend/cpu/kernels/kv_quads_neon.inc.h"
