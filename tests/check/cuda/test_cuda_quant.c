/* test_cuda_quant.c - products of quantised weights on the CUDA backend: the numbers of the CPU's
 * quantiser, their product with x, and its promise: a row's bits do not depend on the others. */
#include "model-server/backend/numbers.h"
#include "tests/check/cuda/cuda_sides.h"

/* What rounding x to 16 bits may change; w8a8 rounds it to 8 on both devices: the very bits. */
static double rounding_of(enum dtype t, enum quant q)
{
    return q == QUANT_W8A8 ? 0 : t == DT_F16 ? 0x1p-11 : 0x1p-8;
}

/* A code of 0 with a negative scale is a zero of either sign. */
static bool same_numbers(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i]) && memcmp(&a[i], &b[i], 4) != 0)
            return false;
    return true;
}

/* The same numbers as the CPU's, and their product in double precision. */
static void check_quant(struct side g, struct side c, uint32_t rows, uint32_t n, uint32_t k,
                        enum dtype t, enum quant q, double step)
{
    float *w = units((size_t)n * k), *x = units((size_t)rows * k), *bias = units(n);
    struct weight *gw = load_quant(g, w, n, k, t, q), *cw = load_quant(c, w, n, k, t, q);
    float *gr = looked_up(g, gw, n, k), *cr = looked_up(c, cw, n, k);
    if (!same_numbers(gr, cr, (size_t)n * k))
        fail_msg("%s [%u, %u]: not the numbers of the CPU", quant_name(q), n, k);
    float *got = linear(g, x, rows, gw, n, k, bias), *want = linear(c, x, rows, cw, n, k, bias);
    for (uint32_t i = 0; i < rows * n; i++) {
        double mag = fabs(bias[i % n]), sum = bias[i % n];
        for (uint32_t j = 0; j < k; j++) {
            double p = (double)cr[(size_t)(i % n) * k + j] * x[(size_t)(i / n) * k + j];
            sum += p, mag += fabs(p);
        }
        if (step > 0 ? !(fabs((double)got[i] - sum) <= mag * step * 1.02)
                     : memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s, %s [%u, %u] x %u rows: y[%u][%u] = %g, the CPU's is %g, exact %g",
                     quant_name(q), dtype_name(t), n, k, rows, i / n, i % n, got[i], want[i], sum);
    }
    g.ops->weight_free(g.d, gw), c.ops->weight_free(c.d, cw);
    free(w), free(x), free(bias), free(gr), free(cr), free(got), free(want);
}

TEST(quantised_products_are_right)
{
    static const uint32_t rows[] = {1, 2, 8, 9, 16, 17, 33, 130, 300};
    static const uint32_t shapes[][2] = {{1, 1}, {16, 64}, {33, 70}, {150, 513}, {129, 1100}};
    for (int features = TENSOR; features >= 0; features--) {
        struct side g = open_side(gpu, (uint64_t)features), c = open_side(cpu, ~0ull);
        for (enum quant q = QUANT_INT8; q < QUANT_N; q++)
            for (enum dtype t = DT_F16; t < DT_N; t++)
                for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
                    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
                        if (!machine || ((r + i + t) % 3 == 0 && (rows[r] < 100 || i % 2 == 0)))
                            check_quant(g, c, rows[r], shapes[i][0], shapes[i][1], t, q,
                                        features          ? rounding_of(t, q)
                                        : q == QUANT_INT4 ? 1e-5
                                                          : 0);
        close_side(g), close_side(c);
    }
}

TEST(a_row_of_a_quantised_product_does_not_depend_on_the_others)
{
    enum { N = 150, K = 1300, ROWS = 140 };
    static const uint32_t rows[] = {2, 9, 16, 17, 33, 140};
    float *w = units(N * K), *x = units(ROWS * K), *bias = units(N);
    for (int sms = 1; sms <= 132; sms += 131) /* slices one after the other, side by side */
        for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
            if (machine)
                machine->sms = sms;
            enum dtype t = sms == 1 ? DT_F16 : DT_BF16;
            struct side g = open_side(gpu, ~0ull);
            struct weight *gw = load_quant(g, w, N, K, t, q);
            float *want = malloc(ROWS * N * 4);
            for (uint32_t r = 0; r < ROWS; r += 8) {
                uint32_t n = ROWS - r < 8 ? ROWS - r : r % 16 ? 8 : 1;
                float *few = linear(g, x + r * K, n, gw, N, K, bias);
                memcpy(want + r * N, few, n * N * 4);
                free(few);
            }
            for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                float *got = linear(g, x + first * K, rows[i], gw, N, K, bias);
                for (uint32_t r = first; r < first + rows[i]; r++)
                    if ((r % 16 == 0 || r % 16 >= 8) &&
                        memcmp(got + (r - first) * N, want + r * N, N * 4))
                        fail_msg("%s, %u rows, %d multiprocessors: other bits in row %u",
                                 quant_name(q), rows[i], sms, r);
                free(got);
            }
            g.ops->weight_free(g.d, gw);
            close_side(g);
            free(want);
        }
    free(w), free(x), free(bias);
}

/* A row of zeros is zero; what is not finite spoils its own row or token and no other. */
TEST(odd_numbers_of_quantised_products_stay_where_they_are)
{
    enum { N = 20, K = 200, ROWS = 19 };
    float *w = units(N * K), *x = units(ROWS * K);
    memset(w + 3 * K, 0, K * sizeof(*w)), memset(x + 5 * K, 0, K * sizeof(*x));
    w[7 * K + 50] = NAN, w[8 * K] = -INFINITY, x[9 * K + 99] = INFINITY, x[14 * K] = NAN;
    for (int features = 0; features <= TENSOR; features++) {
        struct side g = open_side(gpu, (uint64_t)features);
        for (enum quant q = QUANT_INT8; q < QUANT_N; q++) {
            struct weight *gw = load_quant(g, w, N, K, DT_BF16, q);
            for (uint32_t rows = 16; rows <= ROWS; rows += 3) {
                float *y = linear(g, x, rows, gw, N, K, (float[N]){0});
                for (uint32_t i = 0; i < rows * N; i++) {
                    uint32_t r = i / N, out = i % N;
                    bool spoilt = out == 7 || out == 8 || r == 14 || (r == 9 && q == QUANT_W8A8);
                    if (spoilt ? !isnan(y[i])
                               : r != 9 && !(isfinite(y[i]) && (y[i] == 0) == (r == 5 || out == 3)))
                        fail_msg("%s: y[%u][%u] = %g", quant_name(q), r, out, y[i]);
                }
                free(y);
            }
            g.ops->weight_free(g.d, gw);
        }
        close_side(g);
    }
    free(w), free(x);
}

/* The greatest numbers there are in the longest row there is: exact sums hold them. */
TEST(sums_of_the_longest_rows_do_not_overflow)
{
    enum { K = QUANT_MAX_COLS };
    struct err e = ERR_INIT;
    float *w = malloc((K + 1) * sizeof(*w)), *x = malloc(2 * K * sizeof(*x));
    for (int k = 0; k < K; k++)
        w[k] = x[k] = 127, x[K + k] = -127;
    struct side g = open_side(gpu, ~0ull);
    struct weight *gw = load_quant(g, w, 1, K, DT_BF16, QUANT_W8A8);
    float *y = linear(g, x, 2, gw, 1, K, (float[]){0});
    assert_true(y[0] == 127.0f * 127 * K && y[1] == -y[0]);
    g.ops->weight_free(g.d, gw);
    struct mat_part part = {w, DT_F32, 1, K + 1, K + 1, 1};
    assert_null(g.ops->weight_load(g.d, &(struct mat_desc){&part, 1, DT_BF16, QUANT_INT4}, &e));
    assert_string_equal(e.msg, "a weight of 65537 columns: at most 65536 are quantised");
    close_side(g);
    free(w), free(x), free(y);
}

/* Codes of 4 bits that come with scales are those of the CPU: they stay what they are. */
TEST(codes_with_scales_are_kept)
{
    enum { N = 21, K = 70, GROUPS = 3 };
    uint16_t scales[N * GROUPS];
    float *w = units(N * K);
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    struct err e = ERR_INIT;
    for (int i = 0; i < N * GROUPS; i++)
        scales[i] = bf16_of_f32(i % 5 ? 0.01f * (float)(i - 30) : 0);
    const struct mat_part part = {w, DT_F32, N, K, K, 1, .scales = scales};
    const struct mat_desc m = {&part, 1, DT_BF16, QUANT_INT4};
    struct weight *gw = g.ops->weight_load(g.d, &m, &e), *cw = c.ops->weight_load(c.d, &m, &e);
    assert_true(gw && cw);
    float *gr = looked_up(g, gw, N, K), *cr = looked_up(c, cw, N, K);
    assert_true(same_numbers(gr, cr, N * K));
    int something = 0;
    for (int i = 0; i < N * K; i++)
        something += gr[i] != 0;
    assert_true(gr[0] == 0 && something > N * K / 2);
    g.ops->weight_free(g.d, gw), c.ops->weight_free(c.d, cw);
    free(w), free(gr), free(cr);
    close_side(g), close_side(c);
}

int main(void) { return cuda_tests_run(); }
