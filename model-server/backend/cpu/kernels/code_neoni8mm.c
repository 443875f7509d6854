/* code_neoni8mm.c - one instruction for 4 quads of codes and signed bytes. Compiled alone
 * with +i8mm. */
#define ISA(op) k_##op##_neoni8mm
#include "model-server/backend/cpu/kernels/code_neon.inc.h"
