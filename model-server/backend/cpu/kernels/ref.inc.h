/* ref.inc.h - how the references are compiled: each function in two forms, of which the CPU takes
 * one. Without the instruction for it, fmaf() is a call, which tests make a billion times. Both
 * forms give the same bits. */
#ifndef MODEL_SERVER_BACKEND_CPU_KERNELS_REF_INC_H
#define MODEL_SERVER_BACKEND_CPU_KERNELS_REF_INC_H
#include "model-server/backend/host/lanes.h"
#include <math.h>

#ifdef __x86_64__
#define BOTH_FORMS __attribute__((target_clones("fma", "default")))
#else
#define BOTH_FORMS
#endif

/* The units of bfloat16 read subnormal numbers as zero and produce none. */
INLINE float no_subnormal(float f) { return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f; }

#endif
