/* squares_ref.c - reference of the kernels of squares: plain C, see base_ref.c. The
 * behaviour of an x86 unit follows Intel's description of tdpbf16ps and tdpbsud, and was compared
 * with the instructions on CPUs that have them. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>

/* Into each form of the function below: with the instruction for fmaf(), which is a call
 * otherwise, and without. */
#define INLINE static inline __attribute__((always_inline))
#ifdef __x86_64__
#define BOTH_FORMS __attribute__((target_clones("fma", "default")))
#else
#define BOTH_FORMS
#endif

/* The units read subnormal numbers as zero and produce none. */
INLINE float no_subnormal(float f) { return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f; }

INLINE float number(const uint16_t *p, uint32_t i) { return no_subnormal(f32_of_bf16(p[i])); }

/* One step of one sum: x is 32 columns of a row, w the first pair of its output. */
INLINE float step_bf16(float sum, const char *x, const char *w)
{
    const uint16_t *xs = (const uint16_t *)(const void *)x, *ws = (const void *)w;
    float chain[2] = {0, 0};
    for (uint32_t k = 0; k < SQUARE_STEP_BYTES / sizeof(*xs); k++)
        chain[k % 2] =
            no_subnormal(fmaf(number(xs, k), number(ws, k / 2 * 2 * SQUARE + k % 2), chain[k % 2]));
    return no_subnormal(no_subnormal(sum) + no_subnormal(chain[0] + chain[1]));
}

static uint32_t step_i8(uint32_t sum, const char *x, const char *w)
{
    for (uint32_t k = 0; k < SQUARE_STEP_BYTES; k++) {
        const uint8_t by = (uint8_t)w[k / 4 * 4 * SQUARE + k % 4];
        sum += (uint32_t)((int8_t)x[k] * by);
    }
    return sum;
}

INLINE void sum_bf16(float *sum, const char *x, const char *w, const struct squares *t)
{
    float s = t->add ? *sum : 0.0f;
    for (uint32_t i = 0; i < t->steps * t->parts; i++)
        s = step_bf16(s, x + (size_t)i * t->rows * SQUARE_STEP_BYTES,
                      w + (size_t)(i / t->parts) * SQUARE_BYTES);
    *sum = s;
}

static void sum_i8(uint32_t *sum, const char *x, const char *w, const struct squares *t)
{
    uint32_t s = t->add ? *sum : 0;
    for (uint32_t i = 0; i < t->steps; i++)
        s = step_i8(s, x + (size_t)i * t->rows * SQUARE_STEP_BYTES, w + (size_t)i * SQUARE_BYTES);
    *sum = s;
}

/* Row r of all and output i of all. */
static void *sum_at(const struct squares *t, uint32_t r, uint32_t i)
{
    return (char *)t->sums + r * t->sums_bytes + i * sizeof(float);
}
static const char *x_at(const struct squares *t, uint32_t r)
{
    return t->x + r / SQUARE * t->x_bytes + (size_t)(r % SQUARE) * SQUARE_STEP_BYTES;
}
static const char *w_at(const struct squares *t, uint32_t i)
{
    const char *panel = t->panels ? t->panels[i / SQUARE] : t->w + i / SQUARE * t->w_bytes;
    return panel + (size_t)(i % SQUARE) * sizeof(float);
}

BOTH_FORMS void k_squares_bf16_ref(const struct squares *t)
{
    for (uint32_t r = 0; r < t->tall * t->rows; r++)
        for (uint32_t i = 0; i < t->wide * SQUARE; i++)
            sum_bf16(sum_at(t, r, i), x_at(t, r), w_at(t, i), t);
}

void k_squares_i8_ref(const struct squares *t)
{
    for (uint32_t r = 0; r < t->tall * t->rows; r++)
        for (uint32_t i = 0; i < t->wide * SQUARE; i++)
            sum_i8(sum_at(t, r, i), x_at(t, r), w_at(t, i), t);
}

void k_scale_sums_ref(float *y, const int32_t *sums, const float *sw, size_t sw_bytes, float sx,
                      int32_t plus, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *of = (const float *)(const void *)((const char *)sw + i / LANES * sw_bytes);
        y[i] = (float)(int32_t)((uint32_t)sums[i] + (uint32_t)plus) * (of[i % LANES] * sx);
    }
}
