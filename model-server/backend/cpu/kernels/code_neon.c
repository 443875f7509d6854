/* code_neon.c - signed products and pairwise sums. */
#define ISA(op) k_##op##_neon
#include "model-server/backend/cpu/kernels/code_neon.inc.h"
