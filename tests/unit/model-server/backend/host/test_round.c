/* test_round.c - rounding by its definition, and which variant is selected. That all variants give
 * the same bits is in tests/check/test_kernels.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/round.h"
#include "model-server/backend/numbers.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { N = 37, STRIDE = 12, QUADS = (N + 3) / 4 };

static struct rounding fastest(void)
{
    struct rounding r;
    rounding_init(&r, cpu_detect());
    return r;
}

/* Numbers of both signs; the greatest magnitude is that of x[5]. */
static void fill(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = sinf((float)(3 * i + 1)) * (i == 5 ? 1.0f : 0.9f);
    x[5] = -1.25f;
}

TEST(every_backend_selects_the_same_functions)
{
    for (unsigned features = 0; features < 2 * CPU_NEON_FP16; features++) {
        struct rounding r = {0};
        struct kernels k = {0};
        rounding_init(&r, features);
        kernels_init(&k, features);
        assert_ptr_equal(r.quantise, k.quantise);
        assert_ptr_equal(r.quantise4, k.quantise4);
    }
}

TEST(no_feature_selects_the_reference)
{
    struct rounding r = {0};
    rounding_init(&r, 0);
    assert_ptr_equal(r.quantise, k_quantise_ref);
    assert_ptr_equal(r.quantise4, k_quantise4_ref);
}

TEST(eight_bits_are_the_nearest_in_quads)
{
    float x[N];
    uint8_t q[QUADS * STRIDE];
    int32_t sum, all = 0;
    fill(x, N);
    memset(q, 0x55, sizeof(q));
    const float scale = fastest().quantise(q, STRIDE, x, N, 0x80808080, &sum);
    assert_float_equal(scale, 1.25f / 127.0f, 0);
    for (uint32_t i = 0; i < N; i++) {
        const int n = q[i / 4 * STRIDE + i % 4] - 128;
        assert_true(fabsf(x[i] - (float)n * scale) <= 0.5001f * scale);
        all += n;
    }
    assert_int_equal(sum, all);
    for (uint32_t i = N; i < 4 * QUADS;
         i++) /* padding is 0, like all numbers with its bits flipped */
        assert_int_equal(q[i / 4 * STRIDE + i % 4], 0x80);
    for (uint32_t i = 0; i + 1 < QUADS; i++) /* between quads nothing is written */
        assert_int_equal(q[i * STRIDE + 4], 0x55);
}

TEST(four_bits_have_the_scale_of_least_error)
{
    static const float tops[] = INT4_TOPS;
    float x[INT4_GROUP];
    int8_t q[INT4_GROUP];
    fill(x, INT4_GROUP);
    const float scale = fastest().quantise4(q, x);
    double least = INFINITY, is = 0;
    for (size_t t = 0; t < sizeof(tops) / sizeof(*tops); t++) {
        const float s = f32_of_bf16(bf16_of_f32(-1.25f / tops[t]));
        double error = 0;
        for (int i = 0; i < INT4_GROUP; i++)
            error += pow(x[i] - fmax(-8, fmin(7, rintf(x[i] / s))) * s, 2);
        least = fmin(least, error);
    }
    for (int i = 0; i < INT4_GROUP; i++) {
        assert_in_range(q[i] + 8, 0, 15);
        is += pow(x[i] - (double)q[i] * scale, 2);
    }
    assert_true(is <= least * 1.001);
}

TEST(a_row_that_is_not_finite_has_no_scale)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    const struct rounding r = fastest();
    for (int i = 0; i < 3; i++) {
        float x[INT4_GROUP];
        uint8_t q[INT4_GROUP], zeros[INT4_GROUP] = {0};
        int32_t sum = 1;
        fill(x, INT4_GROUP);
        x[20] = odd[i];
        assert_true(isnan(r.quantise(q, 4, x, INT4_GROUP, 0, &sum)));
        assert_int_equal(sum, 0);
        assert_memory_equal(q, zeros, sizeof(q));
        assert_true(isnan(r.quantise4((int8_t *)q, x)));
        assert_memory_equal(q, zeros, sizeof(q));
        assert_true(isnan(quantise_e4m3(q, 4, x, INT4_GROUP)));
        assert_memory_equal(q, zeros, sizeof(q));
    }
}

TEST(e4m3_has_its_greatest_number_for_the_greatest)
{
    float x[N];
    uint8_t q[4 * QUADS];
    fill(x, N);
    const float scale = quantise_e4m3(q, 4, x, N);
    assert_float_equal(scale, 1.25f / 448.0f, 0);
    assert_int_equal(q[5], 0xfe);    /* -448 */
    for (uint32_t i = 0; i < N; i++) /* three bits of mantissa, or steps of 2^-9 */
        assert_true(fabsf(x[i] - f32_of_e4m3(q[i]) * scale) <=
                    fmaxf(fabsf(x[i]) / 15.99f, 0x1.01p-10f * scale));
}

int main(void) { return tests_run(NULL, NULL); }
