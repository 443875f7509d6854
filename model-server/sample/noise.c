#include "model-server/sample/noise.h"
#include "common/multiversion.h"
#include <math.h>

/* Counters processed in parallel: one AVX-512 register; their output words; words at a time. */
enum { LANES = 16, WORDS = 64, BATCH = 256 };
_Static_assert(WORDS == 4 * LANES, "four words a counter");

/* philox4x32 on LANES counters that differ in their first word; out[4 * lane + word]. */
MULTIVERSION static void philox_lanes(uint32_t first, const uint32_t rest[3], const uint32_t key[2],
                                      uint32_t out[WORDS])
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = key[0], k1 = key[1];
    for (uint32_t j = 0; j < LANES; j++)
        c0[j] = first + j, c1[j] = rest[0], c2[j] = rest[1], c3[j] = rest[2];
    for (int round = 0; round < 10; round++, k0 += PHILOX_W0, k1 += PHILOX_W1) {
        for (int j = 0; j < LANES; j++) {
            uint64_t p0 = (uint64_t)PHILOX_M0 * c0[j], p1 = (uint64_t)PHILOX_M1 * c2[j];
            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c1[j] = (uint32_t)p1;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c3[j] = (uint32_t)p0;
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        out[4 * j] = c0[j], out[4 * j + 1] = c1[j];
        out[4 * j + 2] = c2[j], out[4 * j + 3] = c3[j];
    }
}

void noise_bits(uint64_t seed, uint64_t position, enum noise_use use, uint32_t first,
                uint32_t *bits, size_t n)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, rest[3], tail[WORDS];
    noise_counter(position, use, rest);
    size_t i = 0;
    for (; i + WORDS <= n; i += WORDS)
        philox_lanes((first + (uint32_t)i) / 4, rest, key, bits + i);
    if (i < n)
        philox_lanes((first + (uint32_t)i) / 4, rest, key, tail);
    for (size_t j = 0; i < n; i++, j++)
        bits[i] = tail[j];
}

static uint32_t bits_of(uint64_t seed, uint64_t position, uint32_t token)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, c[4] = {token / 4}, out[4];
    noise_counter(position, NOISE_TOKEN, c + 1);
    philox4x32(c, key, out);
    return out[token % 4];
}

struct race {
    double best; /* smallest E / w so far */
    size_t at;
};

/* E >= noise_unit(bits), so one multiplication excludes most tokens. */
static void run(struct race *r, size_t i, float w, uint32_t bits)
{
    if (!(noise_unit(bits) < r->best * w))
        return;
    double t = noise_exp(bits) / w;
    if (t < r->best)
        *r = (struct race){t, i};
}

size_t noise_draw(const float *w, const uint32_t *id, size_t n, uint64_t seed, uint64_t position)
{
    struct race r = {INFINITY, SIZE_MAX};
    uint32_t bits[BATCH];
    for (size_t i = 0; id && i < n; i++)
        if (w[i] > 0)
            run(&r, i, w[i], bits_of(seed, position, id[i]));
    for (size_t i = 0; !id && i < n; i += BATCH) {
        size_t len = n - i < BATCH ? n - i : BATCH;
        noise_bits(seed, position, NOISE_TOKEN, (uint32_t)i, bits, len);
        for (size_t j = 0; j < len; j++)
            if (w[i + j] > 0)
                run(&r, i + j, w[i + j], bits[j]);
    }
    return r.at;
}
