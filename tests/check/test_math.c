/* The functions that kernels are made of, and the formats that weights and caches are stored in,
 * against the C library and against themselves. */
#include "model-server/backend/mathf.h"
#include "model-server/backend/numbers.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <math.h>

static struct rng rng;

/* Error in units of the last place of the exact result. */
static double ulps(float f, double exact)
{
    double step = fabs((double)nextafterf((float)exact, INFINITY) - (double)(float)exact);
    return fabs(f - exact) / step;
}

TEST(functions_are_as_exact_as_they_say)
{
    double worst_exp = 0, worst_neg = 0, worst_tanh = 0, worst_erf = 0, worst_plus = 0;
    for (int i = 0; i < 400000; i++) {
        float e = rng_unit(&rng) * 87.0f,
              u = rng_unit(&rng) * ldexpf(1, (int)rng_below(&rng, 8) - 4);
        worst_exp = fmax(worst_exp, ulps(math_exp(e), exp(e)));
        worst_neg = fmax(worst_neg, ulps(math_exp_neg(-fabsf(e)), exp(-fabsf(e))));
        worst_tanh = fmax(worst_tanh, ulps(math_tanh(u), tanh(u)));
        worst_erf = fmax(worst_erf, ulps(math_erf(u), erf(u)));
        const double plus = fmax(e, 0) + log1p(exp(-fabs((double)e)));
        worst_plus = fmax(worst_plus, ulps(math_softplus(e), plus));
    }
    print_message(
        "exp %.2f, exp of negatives %.2f, tanh %.2f, erf %.2f, softplus %.2f units in the "
        "last place\n",
        worst_exp, worst_neg, worst_tanh, worst_erf, worst_plus);
    assert_true(worst_plus <= 2.5);
    assert_true(worst_neg <= 1.2);
    assert_true(worst_exp <= 1.2 && worst_tanh <= 1.5 && worst_erf <= 1.5);
}

TEST(functions_keep_their_edges)
{
    assert_true(math_exp_neg(0) == 1 && math_exp_neg(-INFINITY) == 0 && isnan(math_exp_neg(NAN)));
    assert_true(math_exp_neg(-87) > 0 && math_exp_neg(-87.01f) == 0 && math_exp_neg(-1e30f) == 0);
    assert_true(math_exp(0) == 1 && math_exp(INFINITY) == INFINITY && math_exp(100) == INFINITY);
    assert_true(math_exp(-INFINITY) == 0 && math_exp(-1000) == 0 && isnan(math_exp(NAN)));
    assert_true(math_exp(-100) > 0 && math_exp(88.7f) < INFINITY);
    assert_true(math_tanh(INFINITY) == 1 && math_tanh(-INFINITY) == -1 && isnan(math_tanh(NAN)));
    assert_true(math_erf(5) == 1 && math_erf(-INFINITY) == -1 && isnan(math_erf(NAN)));
    assert_true(math_softplus(200) == 200 && math_softplus(-200) == 0);
    assert_true(math_softplus(-INFINITY) == 0 && math_softplus(INFINITY) == INFINITY);
    assert_true(isnan(math_softplus(NAN)));
    assert_true(math_act(-1000, ACT_SILU) == 0 && math_act(-1000, ACT_GELU_TANH) == 0);
    assert_true(isnan(math_act(NAN, ACT_RELU)) && isnan(math_act(NAN, ACT_SILU)));
}

TEST(storage_formats_round_trip)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t u = (uint16_t)h;
        float f16 = f32_of_f16(u), bf16 = f32_of_bf16(u);
        assert_true(isnan(f16) ? isnan(f32_of_f16(f16_of_f32(f16))) : f16_of_f32(f16) == u);
        assert_true(isnan(bf16) ? isnan(f32_of_bf16(bf16_of_f32(bf16))) : bf16_of_f32(bf16) == u);
    }
    for (uint32_t code = 0; code < 0x100; code++)
        if ((code & 0x7f) != 0x7f) /* what e4m3 has for NaN: never stored */
            assert_int_equal(fp8_of_f32(f32_of_fp8((uint8_t)code)), code);
    assert_true(f32_of_fp8(0x7e) == FP8_TOP && f32_of_fp8(1) == 0x1p-17f && fp8_of_f32(9) == 0x7e);
    assert_true(fp8_of_f32(-INFINITY) == 0xfe && f32_of_fp8(0x38) == 1.0f / 256);
    assert_true(f32_of_f16(1) == 0x1p-24f && f32_of_f16(0x7bff) == 65504 &&
                f32_of_f16(0xc000) == -2);
    assert_true(f16_of_f32(65519) == 0x7bff && f16_of_f32(65520) == 0x7c00 &&
                f16_of_f32(1e9f) == 0x7c00);
    assert_true(f16_of_f32(2049) == f16_of_f32(2048) && f16_of_f32(2051) == f16_of_f32(2052));
    assert_true(bf16_of_f32(1 + 0x1p-8f) == 0x3f80 && bf16_of_f32(1 + 0x1.8p-7f) == 0x3f82);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
