// Philox against the vectors of Random123's kat_vectors; the race against the softmax it must draw
// from.
#include "model-server/sample/noise.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

TEST(known_vectors)
{
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(kat[i], kat[i] + 4, out);
        assert_memory_equal(out, kat[i] + 6, sizeof(out));
    }
}

/* The lanes compute what the scalar function does, for any length and start. */
TEST(lanes_agree)
{
    uint32_t bits[300], out[4];
    for (size_t n = 1; n < 300; n += 7) {
        noise_bits(0x123456789abcdefu, 77, NOISE_TOKEN, 40, bits, n);
        for (uint32_t i = 0; i < n; i++) {
            philox4x32((uint32_t[]){(40 + i) / 4, 77, 0, 0}, (uint32_t[]){0x89abcdef, 0x1234567},
                       out);
            assert_int_equal(bits[i], out[(40 + i) % 4]);
        }
    }
    uint32_t other[4];
    noise_bits(0x123456789abcdefu, 77, NOISE_GREEN_LIST, 40, other, 4);
    noise_bits(0x123456789abcdefu, 77, NOISE_TOKEN, 40, bits, 4);
    assert_memory_not_equal(bits, other, sizeof(other));
}

/* Chi-square of 200 000 draws over 40 tokens, seeds and positions varying; the 99.9% quantile for
 * 39 degrees of freedom is 72.1. */
TEST(draws_follow_the_weights)
{
    enum { N = 40, DRAWS = 200000 };
    for (int spread = 1; spread <= 3; spread++) {
        float w[N];
        double sum = 0, chi = 0;
        int count[N] = {0};
        for (int i = 0; i < N; i++)
            sum += w[i] = expf((float)spread * sinf((float)i * 1.7f));
        for (int d = 0; d < DRAWS; d++)
            count[noise_draw(w, NULL, N, (uint64_t)(d / 100), (uint64_t)(d % 100))]++;
        for (int i = 0; i < N; i++) {
            double want = w[i] / sum * DRAWS;
            chi += (count[i] - want) * (count[i] - want) / want;
        }
        if (chi > 72.1)
            fail_msg("chi-square %.1f at spread %d", chi, spread);
    }
}

/* What is drawn at one position says nothing of the next one, nor of another seed's: answers, not
 * only single tokens, have the model's distribution. Chi-square of pairs; the 99.9% quantile for 35
 * degrees of freedom is 66.6. */
TEST(draws_are_independent)
{
    enum { N = 6, DRAWS = 200000 };
    static const uint64_t other[][2] = {{0, 1}, {0, 4}, {1, 0}, {UINT64_C(1) << 32, 0}, {1, 1}};
    const float w[N] = {0.3f, 0.2f, 0.2f, 0.15f, 0.1f, 0.05f};
    for (size_t k = 0; k < sizeof(other) / sizeof(*other); k++) {
        double chi = 0;
        int count[N][N] = {{0}};
        for (uint64_t d = 0; d < DRAWS; d++) {
            const uint64_t seed = d / 400 * 7, position = d % 400 * 5;
            count[noise_draw(w, NULL, N, seed, position)]
                 [noise_draw(w, NULL, N, seed + other[k][0], position + other[k][1])]++;
        }
        for (int i = 0; i < N * N; i++) {
            const double want = (double)w[i / N] * (double)w[i % N] * DRAWS;
            chi += (count[i / N][i % N] - want) * (count[i / N][i % N] - want) / want;
        }
        if (chi > 66.6)
            fail_msg("chi-square %.1f of pairs %zu", chi, k);
    }
}

/* Leaving out tokens that do not win changes nothing: what makes drafts and filters comparable. */
TEST(draw_is_a_function)
{
    enum { N = 1000 };
    float w[N], few[N];
    uint32_t id[N];
    for (int i = 0; i < N; i++)
        w[i] = (float)(i % 17 + 1);
    for (uint64_t pos = 0; pos < 50; pos++) {
        size_t a = noise_draw(w, NULL, N, 42, pos), n = 0;
        assert_int_equal(a, noise_draw(w, NULL, N, 42, pos));
        for (uint32_t i = 0; i < N; i++)
            if (i == a || i % 3 == 0)
                few[n] = w[i] * 0.5f, id[n++] = i;
        assert_int_equal(id[noise_draw(few, id, n, 42, pos)], a);
    }
    memset(w, 0, sizeof(w));
    assert_true(noise_draw(w, NULL, N, 1, 1) == SIZE_MAX);
    w[999] = 1e-38f;
    assert_int_equal(noise_draw(w, NULL, N, 1, 1), 999);
}

TEST(exponential)
{
    double sum = 0;
    for (uint64_t i = 0; i < 1 << 16; i++)
        sum += noise_exp((uint32_t)(i << 16 | 0x8000));
    assert_true(fabs(sum / (1 << 16) - 1) < 1e-3);
    assert_true(noise_exp(0) > 0 && isfinite(noise_exp(UINT32_MAX)));
}

int main(void) { return tests_run(NULL, NULL); }
