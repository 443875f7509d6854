/* f16_ref.c - products of float16 with sums in float16: plain C, see base_ref.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>

/* Every float16 is a multiple of 2^-24, every product of two of 2^-48, and sums of them fit. */
__extension__ typedef __int128 exact;

static exact in_units(uint16_t h) /* of 2^-24 */
{
    const uint32_t mag = h & 0x7fff, exponent = mag >> 10;
    const int64_t n = exponent ? (int64_t)((mag & 0x3ff) | 0x400) << (exponent - 1) : mag;
    return h & 0x8000 ? -n : n;
}

/* n times 2^-48, rounded once, to nearest even. */
static uint16_t f16_of_units(exact n)
{
    const uint16_t sign = n < 0 ? 0x8000 : 0;
    n = n < 0 ? -n : n;
    const uint64_t high = (uint64_t)(n >> 64), low = (uint64_t)n;
    const int width = high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
    const int shift = width > 35 ? width - 11 : 24; /* 24: the last place of a subnormal number */
    const exact unit = (exact)1 << shift, rest = n & (unit - 1);
    uint32_t kept = (uint32_t)(n >> shift);
    kept += rest * 2 > unit || (rest * 2 == unit && kept & 1);
    const uint32_t mag = kept + ((uint32_t)(shift - 24) << 10); /* a carry propagates by itself */
    return (uint16_t)(sign | (mag < 0x7c00 ? mag : 0x7c00));
}

static bool is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

static uint16_t fma_f16(uint16_t a, uint16_t b, uint16_t c)
{
    if (!is_finite(a) || !is_finite(b) || !is_finite(c))
        return f16_of_f32(fmaf(f32_of_f16(a), f32_of_f16(b), f32_of_f16(c)));
    return f16_of_units(in_units(a) * in_units(b) + in_units(c) * ((exact)1 << 24));
}

/* Pairs [from, to) of a row and an output: both chains, and their sum. */
static float some_pairs(const uint16_t *w, const uint16_t *x, size_t x_pair, size_t from, size_t to)
{
    uint16_t chain[2] = {0, 0};
    for (size_t pair = from; pair < to; pair++)
        for (size_t i = 0; i < 2; i++)
            chain[i] = fma_f16(w[pair * LANES * 2 + i], x[pair * x_pair + i], chain[i]);
    return f32_of_f16(fma_f16(chain[0], 0x3c00, chain[1])); /* times one */
}

void k_tile_f16x2_ref(const struct tile *t)
{
    const size_t pairs = ((size_t)t->k + 1) / 2, x_pair = (size_t)tile_stride(t->rows) * 2;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint16_t *w = (const void *)((const char *)t->w + i / LANES * t->w_bytes);
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], sum = t->add ? *y : 0.0f;
            for (size_t from = 0; from < pairs; from += F16_FLUSH) {
                const size_t to = from + F16_FLUSH < pairs ? from + F16_FLUSH : pairs;
                sum += some_pairs(w + (size_t)(i % LANES) * 2,
                                  (const uint16_t *)(const void *)t->x + (size_t)r * 2, x_pair,
                                  from, to);
            }
            *y = sum;
        }
    }
}

float k_row_top_ref(const float *x, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = bits_of(x[i]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    return float_of(most);
}
