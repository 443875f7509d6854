/* draw_math.h - the arithmetic of sampling, the same on the host and on a device.
 *
 * It uses only +, -, *, / without contraction, integers and bit operations. So host and device
 * compute the same bits: the same weights, cutoffs, noise and tokens. The order in which tokens
 * of a row are visited must not matter either. So weights are summed in integers if a sum decides
 * (weight_units), and ties have an order (docs/decisions/sampling.md). */
#ifndef MODEL_SERVER_BACKEND_DRAW_MATH_H
#define MODEL_SERVER_BACKEND_DRAW_MATH_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---------------------------------------------------------------- weights */

/* exp(x) for x <= 0: x = k ln 2 + r, |r| <= ln 2 / 2, and Cephes' polynomial for e^r. Below -87
 * the result is 0: such a token has less than 1e-37 of the best token's probability. */
static inline float draw_weight(float x)
{
    float c = x < -87.0f ? -87.0f : x;
    float k = c * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer */
    k -= 12582912.0f;
    float r = c - k * 0.693359375f;
    r += k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (int32_t)((uint32_t)((int32_t)k + 127) << 23);
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return x < -87.0f ? 0.0f : p * scale;
}

/* A weight (at most 1, except for its last bit) in units of 2^-44: sums of 2^18 of them are
 * exact. Truncation loses less than 2e-8 of the best token's weight, all tokens together. */
static inline uint64_t draw_units(float w) { return (uint64_t)(int64_t)(w * 0x1p44f); }

/* The same for w * -x, where x is the logarithm of w: at most 1 / e. */
static inline uint64_t draw_units_of_log(float w, float x)
{
    return w > 0 ? (uint64_t)(int64_t)((double)w * -(double)x * 0x1p44) : 0;
}

/* The share `p` of `total`, in whole units, at least one: the cutoff is where a sum reaches
 * it. */
static inline uint64_t draw_share(double p, uint64_t total)
{
    double t = p * (double)total;
    uint64_t n = (uint64_t)t;
    n += (double)n < t;
    return n ? n : 1;
}

/* Maps floats to unsigned numbers in the same order; -0 and 0 are equal. */
static inline uint32_t draw_order(float f)
{
    uint32_t u;
    f += 0.0f;
    memcpy(&u, &f, sizeof(u));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Distance between the surprise of a token and the average one (the entropy). x is the logarithm
 * of its weight and `mean` the average logarithm, both up to the same constant. */
static inline float draw_atypical(float x, double mean)
{
    float f = (float)((double)x + mean);
    return f < 0 ? -f : f;
}

/* ---------------------------------------------------------------- noise */

/* Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++, k0 += PHILOX_W0, k1 += PHILOX_W1) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Words 1 to 3 of the counter: words 1 and 2 are the position (48 bits used), the top half of word
 * 2 is the purpose (enum noise_use; 0: the choice of a token), word 3 is free. Word 0 counts groups
 * of four tokens; the key is the seed. */
static inline void noise_counter(uint64_t position, uint32_t use, uint32_t rest[3])
{
    rest[0] = (uint32_t)position;
    rest[1] = (uint32_t)(position >> 32 & 0xffff) | use << 16;
    rest[2] = 0;
}

/* In (0, 1). */
static inline double noise_unit(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

/* -log(v), v in (0, 1]: v = m 2^k with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s) by its series,
 * s = (m - 1) / (m + 1), |s| < 0.172. Within 1e-15 of the result, also next to v = 1. */
static inline double noise_minus_log(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    int64_t k = (int64_t)(u - 0x3fe6a09e667f3bcdu) >> 52;
    u -= (uint64_t)k << 52;
    double m;
    memcpy(&m, &u, sizeof(m));
    double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 23;
    for (int i = 21; i >= 3; i -= 2)
        p = p * z + 1.0 / i;
    return -((double)k * 0x1.62e42fefa39efp-1 + (s + s + (s + s) * z * p));
}

/* The Exp(1) variate of 32 bits. Its smallest value is 2^-33: a token with a probability below
 * about 1e-9 is sampled with the right order of magnitude only. It is never less than
 * noise_unit(bits). */
static inline double noise_exp(uint32_t bits) { return noise_minus_log(1 - noise_unit(bits)); }
#endif
