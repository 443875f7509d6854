/* test_quant.c - products of quantised weights: against double precision on the rounded numbers,
 * and their promise: a row's bits do not depend on batch, threads or instruction set. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <stddef.h>
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static struct weight *load(struct device *d, const float *w, uint32_t rows, uint32_t cols,
                           enum quant q)
{
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    struct weight *out =
        ops->weight_load(d, &(struct mat_desc){.parts = &part, .n_parts = 1, .quant = q}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

/* The numbers that the product works with. */
static float *rounded(struct device *d, const struct weight *w, uint32_t rows, uint32_t cols)
{
    struct err e = ERR_INIT;
    float *f = malloc((size_t)rows * cols * sizeof(*f));
    uint32_t *ids = malloc(rows * sizeof(*ids));
    for (uint32_t i = 0; i < rows; i++)
        ids[i] = i;
    struct ragged b = {.n_tokens = rows, .ids = ids};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->embed(d, f, w, 0, 1.0f);
    assert_int_equal(ops->step_end(d, &e), 0);
    free(ids);
    return f;
}

/* x as the product sees it: -127 .. 127 of a scale per group of columns. */
static void round_x(double *out, const float *x, uint32_t k, uint32_t group)
{
    for (uint32_t g = 0; g < k; g += group) {
        uint32_t n = k - g < group ? k - g : group;
        float top = 0;
        for (uint32_t i = 0; i < n; i++)
            top = fmaxf(top, fabsf(x[g + i]));
        float to_int = top > 0 ? 127.0f / top : 0;
        for (uint32_t i = 0; i < n; i++)
            out[g + i] = (double)rintf(x[g + i] * to_int) * (top / 127.0f);
    }
}

static void check_linear(struct device *d, uint32_t rows, uint32_t n, uint32_t k, enum quant q)
{
    float *w = rng_floats(&rng, (size_t)n * k), *x = rng_floats(&rng, (size_t)rows * k);
    float *bias = rng_floats(&rng, n), *y = rng_floats(&rng, (size_t)rows * n + 16);
    float canary = y[(size_t)rows * n];
    double *xr = malloc(k * sizeof(*xr));
    struct weight *pw = load(d, w, n, k, q);
    float *wr = rounded(d, pw, n, k);
    ops->linear(d, y, x, rows, pw, bias);
    assert_true(y[(size_t)rows * n] == canary);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < k; c++)
            xr[c] = x[(size_t)r * k + c];
        if (q == QUANT_W8A8 || q == QUANT_INT4)
            round_x(xr, x + (size_t)r * k, k, q == QUANT_INT4 ? 32 : k);
        for (uint32_t i = 0; i < n; i++) {
            double sum = bias[i], mag = fabs(bias[i]);
            for (uint32_t c = 0; c < k; c++)
                sum += wr[(size_t)i * k + c] * xr[c], mag += fabs(wr[(size_t)i * k + c] * xr[c]);
            if (fabs(y[(size_t)r * n + i] - sum) > 1e-6 * mag)
                fail_msg("%s [%u, %u] x %u rows: y[%u][%u] = %g, not %g", quant_name(q), n, k, rows,
                         r, i, y[(size_t)r * n + i], sum);
        }
    }
    ops->weight_free(d, pw);
    free(w), free(x), free(bias), free(y), free(xr), free(wr);
}

TEST(products_agree_with_double_precision)
{
    struct device *d = device(2, ~0ull);
    static const uint32_t rows[] = {1, 2, 3, 7, 8, 16, 33};
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        for (uint32_t n = 1; n <= 65; n += n < 34 ? 1 : 7)
            check_linear(d, rows[n % 7], n, 1 + rng_below(&rng, 150), q);
        check_linear(d, 33, 80, 1100, q);
        check_linear(d, 1, 80, 1101, q);
        check_linear(d, 64, 33, 130, q);
    }
    ops->close(d);
}

/* The greatest numbers there are in the longest row there is: exact sums hold them. */
TEST(sums_of_the_longest_rows_do_not_overflow)
{
    enum { K = QUANT_MAX_COLS };
    float *w = malloc(2 * K * sizeof(*w)), *x = malloc(2 * K * sizeof(*x)), y[4];
    for (int k = 0; k < K; k++)
        w[k] = x[k] = 127, w[K + k] = x[K + k] = -127;
    for (unsigned features = 0; features < 2; features++) {
        struct device *d = device(1, features ? ~0ull : 0);
        struct weight *pw = load(d, w, 2, K, QUANT_W8A8);
        ops->linear(d, y, x, 2, pw, NULL);
        assert_true(y[0] == 127.0f * 127 * K && y[1] == -y[0] && y[2] == y[1] && y[3] == y[0]);
        ops->weight_free(d, pw);
        ops->close(d);
    }
    struct device *d = device(1, ~0ull);
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, 1, K + 1, K + 1, 1};
    assert_null(ops->weight_load(
        d, &(struct mat_desc){.parts = &part, .n_parts = 1, .quant = QUANT_INT8}, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    ops->close(d);
    free(w), free(x);
}

/* The same product on differently built devices and with rows taken in other groups. Weights of 8
 * bits with exact activations have an order of their own on matrix units. */
TEST(products_are_bitwise_the_same_everywhere)
{
    static const uint32_t rows[] = {1, 2, 3, 5, 7, 8, 12, 13, 16, 33, 100};
    static const uint64_t features[] = {0, 1, 3, 5, 7, ~0ull};
    enum { N = 150, K = 1010, ROWS = 100 }; /* 32 groups of 4 bits: matrix units, too */
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, ROWS * K);
    float *bias = rng_floats(&rng, N);
    float *want = malloc(ROWS * N * sizeof(float)), *got = malloc(ROWS * N * sizeof(float));
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++)
        for (size_t f = 0; f < sizeof(features) / sizeof(*features); f++)
            for (int threads = 1; threads <= 4; threads++) {
                struct device *d = device(threads, features[f]);
                struct weight *pw = load(d, w, N, K, q);
                if (threads == 1 && (f == 0 || pw->squares))
                    for (int r = 0; r < ROWS; r++)
                        ops->linear(d, want + r * N, x + r * K, 1, pw, bias);
                for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                    if (f == 0 && rows[i] % 4 != (uint32_t)threads - 1)
                        continue; /* the reference is slow */
                    uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                    ops->linear(d, got, x + (size_t)first * K, rows[i], pw, bias);
                    if (memcmp(got, want + (size_t)first * N, rows[i] * N * sizeof(float)))
                        fail_msg("%s, %d threads, features %d, %u rows: other bits", quant_name(q),
                                 threads, (int)features[f], rows[i]);
                }
                ops->weight_free(d, pw);
                ops->close(d);
            }
    free(w), free(x), free(bias), free(want), free(got);
}

/* The same numbers in every type, contiguous and transposed, whole and in parts. */
TEST(the_source_may_be_stacked_strided_and_of_any_type)
{
    enum { N = 41, K = 77, CUT = 19 };
    static float w[N * K], x[3 * K], want[3 * N], got[3 * N];
    static uint16_t h[2][N * K], transposed[N * K];
    for (int i = 0; i < N * K; i++) {
        w[i] = f32_of_bf16(bf16_of_f32(rng_unit(&rng) + 1.0f)); /* both 16-bit types hold it */
        h[0][i] = f16_of_f32(w[i]), h[1][i] = bf16_of_f32(w[i]);
        transposed[i % K * N + i / K] = h[1][i];
    }
    for (int i = 0; i < 3 * K; i++)
        x[i] = rng_wide(&rng);
    struct mat_part whole = {w, DT_F32, N, K, K, 1},
                    parts[][2] = {
                        {{h[0], DT_F16, CUT, K, K, 1}, {h[0] + CUT * K, DT_F16, N - CUT, K, K, 1}},
                        {{h[1], DT_BF16, CUT, K, K, 1}, {w + CUT * K, DT_F32, N - CUT, K, K, 1}},
                        {{transposed, DT_BF16, CUT, K, 1, N},
                         {transposed + CUT, DT_BF16, N - CUT, K, 1, N}},
                    };
    struct device *d = device(2, ~0ull);
    struct err e = ERR_INIT;
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++)
        for (int i = -1; i < 3; i++) {
            struct mat_desc m = {i < 0 ? &whole : parts[i], i < 0 ? 1 : 2, DT_F32, q};
            struct weight *pw = ops->weight_load(d, &m, &e);
            assert_non_null(pw);
            ops->linear(d, i < 0 ? want : got, x, 3, pw, NULL);
            assert_true(i < 0 || !memcmp(want, got, sizeof(want)));
            ops->weight_free(d, pw);
        }
    ops->close(d);
}

/* Quantised experts, beside the same in fp32; and a row among others is the row alone. */
TEST(experts_may_be_quantised)
{
    enum { EXPERTS = 5, HIDDEN = 70, FFN = 50, ROWS = 40 };
    struct device *d = device(2, ~0ull);
    struct weight *up[QUANT_N][EXPERTS], *down[QUANT_N][EXPERTS];
    float *x = rng_floats(&rng, ROWS * HIDDEN), *router = rng_floats(&rng, EXPERTS * HIDDEN);
    float y[QUANT_N][ROWS * HIDDEN], one[HIDDEN];
    struct moe m = {.n_experts = EXPERTS, .top_k = 2, .scale = 1, .act = ACT_SILU};
    for (int i = 0; i < EXPERTS * HIDDEN; i++)
        router[i] *= 0.05f;
    m.router = load(d, router, EXPERTS, HIDDEN, QUANT_NONE);
    for (int i = 0; i < EXPERTS; i++) {
        float *u = rng_floats(&rng, 2 * FFN * HIDDEN), *w = rng_floats(&rng, HIDDEN * FFN);
        for (enum quant q = QUANT_NONE; q < QUANT_N; q++) {
            up[q][i] = load(d, u, 2 * FFN, HIDDEN, q);
            down[q][i] = load(d, w, HIDDEN, FFN, q);
        }
        free(u), free(w);
    }
    for (enum quant q = QUANT_NONE; q < QUANT_N; q++) {
        double err = 0, sq = 0;
        m.up = up[q], m.down = down[q];
        ops->moe(d, y[q], x, ROWS, &m);
        for (int r = 0; r < ROWS; r++) {
            ops->moe(d, one, x + r * HIDDEN, 1, &m);
            assert_memory_equal(one, y[q] + r * HIDDEN, sizeof(one));
        }
        for (int i = 0; i < ROWS * HIDDEN; i++)
            err += pow(y[q][i] - y[QUANT_NONE][i], 2), sq += pow(y[QUANT_NONE][i], 2);
        print_message("%s: error of a mixture %.4f\n", quant_name(q), sqrt(err / sq));
        assert_true(sqrt(err / sq) < (q == QUANT_INT4 ? 0.25 : 0.05));
    }
    for (enum quant q = QUANT_NONE; q < QUANT_N; q++)
        for (int i = 0; i < EXPERTS; i++)
            ops->weight_free(d, up[q][i]), ops->weight_free(d, down[q][i]);
    ops->weight_free(d, m.router);
    free(x), free(router);
    ops->close(d);
}

/* A row of zeros is zero; what is not finite spoils its own row or token and no other. */
TEST(odd_numbers_stay_where_they_are)
{
    enum { N = 20, K = 100, ROWS = 15 };
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, ROWS * K), y[N * ROWS];
    memset(w + 3 * K, 0, K * sizeof(*w)), memset(x + 5 * K, 0, K * sizeof(*x));
    w[7 * K + 50] = NAN, w[8 * K] = -INFINITY, x[9 * K + 99] = INFINITY, x[14 * K] = NAN;
    struct device *d = device(2, ~0ull);
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        struct weight *pw = load(d, w, N, K, q);
        ops->linear(d, y, x, ROWS, pw, NULL);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < N; i++) {
                float v = y[r * N + i];
                if (i == 7 || i == 8 || r == 14 || (r == 9 && (q == QUANT_W8A8 || q == QUANT_INT4)))
                    assert_true(isnan(v));
                else if (r != 9)
                    assert_true(isfinite(v) && (v == 0 || (r != 5 && i != 3)));
            }
        ops->weight_free(d, pw);
    }
    free(w), free(x);
    ops->close(d);
}

/* The rounding error of normally distributed weights, relative to their root mean square. */
TEST(rounded_weights_are_near)
{
    static const double bound[QUANT_N] = {0, 0.01, 0.01, 0.1, 0.03};
    enum { N = 64, K = 2048 };
    float *w = malloc(N * K * sizeof(*w));
    for (int i = 0; i < N * K; i++) {
        w[i] = 0;
        for (int j = 0; j < 12; j++)
            w[i] += rng_unit(&rng) * 0.02f;
    }
    struct device *d = device(2, ~0ull);
    for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
        struct weight *pw = load(d, w, N, K, q);
        float *f = rounded(d, pw, N, K);
        double err = 0, sq = 0;
        for (int i = 0; i < N * K; i++)
            err += (f[i] - w[i]) * (double)(f[i] - w[i]), sq += (double)w[i] * w[i];
        print_message("%s: relative error %.4f, %.2f bits a weight\n", quant_name(q),
                      sqrt(err / sq), 8.0 * (double)ops->weight_bytes(pw) / (N * K));
        assert_true(sqrt(err / sq) < bound[q]);
        ops->weight_free(d, pw), free(f);
    }
    free(w);
    ops->close(d);
}

/* Codes of 4 bits that come with scales stay what they are, also where none is -8, which the
 * quantiser would look for; a scale that is not finite spoils its own group. */
TEST(codes_with_scales_are_kept)
{
    enum { N = 21, K = 70, GROUPS = 3, BAD = 4 };
    static float w[N * K], want[N * K];
    static uint16_t scales[N * GROUPS];
    for (int r = 0; r < N; r++)
        for (int i = 0; i < K; i++) {
            uint16_t *s = &scales[r * GROUPS + i / 32];
            if (i % 32 == 0)
                *s = i == 32 && r == BAD ? 0x7f80
                     : i == 64 && r == 2 ? 0
                                         : bf16_of_f32(rng_unit(&rng) * 0.1f);
            int code = (int)rng_below(&rng, 16) - 8;
            code = r % 2 ? code : code / 3;
            want[r * K + i] = (float)code * f32_of_bf16(*s);
            /* what sixteen bits of scale may have lost */
            w[r * K + i] = *s == 0x7f80 ? 1 : want[r * K + i] * (1 + 0x1p-9f);
        }
    struct device *d = device(2, ~0ull);
    struct err e = ERR_INIT;
    const struct mat_part part = {w, DT_F32, N, K, K, 1, .scales = scales};
    struct weight *pw = ops->weight_load(
        d, &(struct mat_desc){.parts = &part, .n_parts = 1, .quant = QUANT_INT4}, &e);
    assert_non_null(pw);
    float *f = rounded(d, pw, N, K);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < K; i++)
            if (r == BAD && i / 32 == 1)
                assert_true(isnan(f[r * K + i]));
            else
                assert_true(f[r * K + i] == want[r * K + i]);
    ops->weight_free(d, pw), free(f);
    ops->close(d);
}

/* Half precision holds scales of codes; a factor of the row brings them there. */
TEST(rows_of_4_bits_may_have_any_magnitude)
{
    enum { N = 21, K = 300 };
    static const int powers[N] = {0, 1, -1, 15, -15, 40, -40, 55, -45};
    float *w = rng_floats(&rng, (size_t)N * K), *x = rng_floats(&rng, K), want[N], got[N];
    struct device *d = device(2, ~0ull);
    for (int i = 0; i < N * K; i++)
        w[i] *= i % 7 ? 1 : 0x1p-12f;
    struct weight *pw = load(d, w, N, K, QUANT_INT4);
    ops->linear(d, want, x, 1, pw, NULL);
    ops->weight_free(d, pw);
    for (int i = 0; i < N * K; i++)
        w[i] = ldexpf(w[i], powers[i / K]);
    pw = load(d, w, N, K, QUANT_INT4);
    ops->linear(d, got, x, 1, pw, NULL);
    for (int i = 0; i < N; i++)
        if (got[i] != ldexpf(want[i], powers[i]))
            fail_msg("row %d by 2^%d: %g, not 2^%d of %g", i, powers[i], got[i], powers[i],
                     want[i]);
    ops->weight_free(d, pw);
    ops->close(d);
    free(w), free(x);
}

/* Every number of e4m3 by its definition; what lies between two goes to the nearer, ties to even.
 */
TEST(e4m3_is_exact_and_rounds_to_nearest_even)
{
    assert_true(isnan(f32_of_e4m3(0x7f)) && isnan(f32_of_e4m3(0xff)));
    for (int b = 0; b < 0x7f; b++) {
        int exponent = b >> 3, mantissa = b & 7;
        float v =
            exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
        assert_true(f32_of_e4m3((uint8_t)b) == v && f32_of_e4m3((uint8_t)(b | 0x80)) == -v);
        assert_int_equal(e4m3_of_f32(v), b);
        assert_int_equal(e4m3_of_f32(-v), b | 0x80);
        if (b == 0x7e)
            break;
        float half = (v + f32_of_e4m3((uint8_t)(b + 1))) / 2;
        assert_int_equal(e4m3_of_f32(half), b & 1 ? b + 1 : b);
        assert_int_equal(e4m3_of_f32(nextafterf(half, 0)), b);
        assert_int_equal(e4m3_of_f32(nextafterf(half, 500)), b + 1);
    }
    assert_int_equal(e4m3_of_f32(449), 0x7e);
    assert_int_equal(e4m3_of_f32(-INFINITY), 0xfe);
    assert_int_equal(e4m3_of_f32(1e-30f), 0);
}

/* ---------------------------------------------------------------- what is MXFP4 already */

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
