/* code_neondot.c - one instruction for 4 quads of signed bytes. Compiled alone with
 * +dotprod. */
#define ISA(op) k_##op##_neondot
#include "model-server/backend/cpu/kernels/code_neon.inc.h"
