/* round.h - rounds rows of weights and activations to 8 and 4 bits on the host.
 *
 * Every backend that quantises weights while it loads them calls these. So a quantised model has
 * the same numbers on every device. Every variant of a function gives the bits of its reference,
 * round_ref.c. Rows belong to the caller. Any thread.
 *
 * A quad is four numbers of a row side by side in 32 bits. */
#ifndef MODEL_SERVER_BACKEND_HOST_ROUND_H
#define MODEL_SERVER_BACKEND_HOST_ROUND_H
#include "model-server/backend/host/cpu_features.h"
#include <stddef.h>
#include <stdint.h>

static inline uint32_t quads_of(uint32_t cols) { return (cols + 3) / 4; }

/* --quantize int4. Candidates for the value of a group's greatest magnitude; -8 uses all 16
 * numbers. */
enum { INT4_GROUP = 32 };
#define INT4_TOPS                                                                                  \
    {                                                                                              \
        -8.0f, -7.6f, -7.2f, -6.8f, -8.4f                                                          \
    }
#define INT4_LEAST_TOP 6.8f

/*  function     result  arguments */
#define ROUND_KERNELS(X)                                                                           \
    /* n numbers to -127 .. 127 in quads, `stride` bytes apart, each byte ^ flip, the last quad    \
     * padded with zeros; their sum; returns the scale: greatest magnitude / 127. Below 2^-120 all \
     * are zero; where one is not finite, NaN and zeros. */                                        \
    X(quantise, float,                                                                             \
      (uint8_t * dst, size_t stride, const float *src, uint32_t n, uint32_t flip, int32_t *sum))   \
    /* A group of 32 numbers to -8 .. 7; returns the scale, which bf16 holds. Of the scales that   \
     * make the greatest magnitude -8 (of INT4_TOPS) the one with the least squared error. */      \
    X(quantise4, float, (int8_t * dst, const float *src))

/* From slowest to fastest: the last row that the CPU supports is used. */
#define ROUND_VARIANT(X, variant, needs)                                                           \
    X(quantise, variant, needs)                                                                    \
    X(quantise4, variant, needs)
#if defined(__x86_64__)
#define ROUND_VARIANTS(X)                                                                          \
    ROUND_VARIANT(X, ref, 0)                                                                       \
    ROUND_VARIANT(X, avx2, CPU_AVX2)                                                               \
    ROUND_VARIANT(X, avx512, CPU_AVX512)
#elif defined(__aarch64__)
#define ROUND_VARIANTS(X)                                                                          \
    ROUND_VARIANT(X, ref, 0)                                                                       \
    ROUND_VARIANT(X, neon, CPU_NEON)
#else
#define ROUND_VARIANTS(X) ROUND_VARIANT(X, ref, 0)
#endif

#define X(op, ret, args) typedef ret op##_fn args;
ROUND_KERNELS(X)
#undef X
#define X(op, variant, needs) op##_fn k_##op##_##variant;
ROUND_VARIANTS(X)
#undef X

struct rounding {
#define X(op, ret, args) op##_fn *op;
    ROUND_KERNELS(X)
#undef X
};
/* Selects the fastest variants that need no other bits than `features` (enum cpu_feature). */
void rounding_init(struct rounding *r, unsigned features);

/* A row of n numbers to e4m3 in quads, `stride` bytes apart, the last one padded with zeros;
 * returns the scale: greatest magnitude / 448. Below 2^-100 all are zero; where one is not finite,
 * NaN and zeros. */
float quantise_e4m3(uint8_t *dst, size_t stride, const float *src, uint32_t n);
#endif
