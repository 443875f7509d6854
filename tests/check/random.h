/* random.h - seeded random numbers for the checks, spread over magnitudes. */
#ifndef TESTS_CHECK_RANDOM_H
#define TESTS_CHECK_RANDOM_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct rng {
    uint64_t state, seed;
};

/* The seed is the environment variable SEED (`make soak` draws one), else constant; it is
 * printed, so that a failure can be repeated. */
static inline struct rng rng_new(void)
{
    const char *s = getenv("SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : 0x9e3779b97f4a7c15ull;
    printf("SEED=%llu\n", (unsigned long long)seed);
    return (struct rng){seed | 1, seed};
}

static inline uint32_t rng_u32(struct rng *r)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)(r->state >> 16);
}

static inline uint32_t rng_below(struct rng *r, uint32_t n) { return rng_u32(r) % n; }

/* In (-1, 1), and the same times 2^-4 .. 2^4. */
static inline float rng_unit(struct rng *r) { return (float)(rng_u32(r) >> 8) / 8388608.0f - 1.0f; }
static inline float rng_wide(struct rng *r)
{
    const float f = rng_unit(r); /* all of it is exact */
    return f * (float)(1u << rng_below(r, 9)) / 16;
}

static inline float *rng_floats(struct rng *r, size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof(float) + 127) & ~(size_t)63);
    for (size_t i = 0; p && i < n; i++)
        p[i] = rng_wide(r);
    return p;
}
#endif
