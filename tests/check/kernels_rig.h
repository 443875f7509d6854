/* kernels_rig.h - shared by the checks of kernels: rows of numbers, and two results that must be
 * equal, with a canary after each. */
#ifndef TESTS_CHECK_KERNELS_RIG_H
#define TESTS_CHECK_KERNELS_RIG_H
#include "model-server/backend/cpu/kernels/kernels.h"
#include "tests/check/random.h"
#include <string.h>

enum { MAXN = 4200, CANARY = 64 };
static struct rng rng;
static float x[2 * MAXN], w[MAXN], b[MAXN], want[2 * MAXN + CANARY], got[2 * MAXN + CANARY];

static void fill(uint32_t n)
{
    for (uint32_t i = 0; i < 2 * n; i++)
        x[i] = rng_wide(&rng);
    for (uint32_t i = 0; i < n; i++)
        w[i] = rng_wide(&rng), b[i] = rng_wide(&rng);
    for (uint32_t i = 0; i < 2 * MAXN + CANARY; i++)
        want[i] = got[i] = 12345.0f;
}

static bool same(void) { return !memcmp(want, got, sizeof(want)); }

/* Initialises both results with the same row. */
static void start_from(const float *row, uint32_t n)
{
    memcpy(want, row, n * sizeof(*row));
    memcpy(got, row, n * sizeof(*row));
}

/* True if fn's result equals the reference's, for n numbers. */
typedef bool check_fn(void (*fn)(void), uint32_t n);
#define CALL(op) (*(op##_fn *)fn)
#endif
