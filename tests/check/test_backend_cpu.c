/* test_backend_cpu.c - the operations of the CPU backend against double precision, and their
 * promise: a row's bits do not depend on batch, chunking, block table, threads or instruction set.
 */
#include "model-server/backend/act.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* ---------------------------------------------------------------- linear */

static struct weight *load(struct device *d, const float *w, uint32_t rows, uint32_t cols,
                           enum dtype t)
{
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    struct weight *out = ops->weight_load(d, &(struct mat_desc){&part, 1, t}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

static float stored(float f, enum dtype t)
{
    return t == DT_F32 ? f : t == DT_F16 ? f32_of_f16(f16_of_f32(f)) : f32_of_bf16(bf16_of_f32(f));
}

static void check_linear(struct device *d, uint32_t rows, uint32_t n, uint32_t k, enum dtype t)
{
    float *w = rng_floats(&rng, (size_t)n * k), *x = rng_floats(&rng, (size_t)rows * k);
    float *bias = rng_floats(&rng, n), *y = rng_floats(&rng, (size_t)rows * n + 16);
    float canary = y[(size_t)rows * n];
    struct weight *pw = load(d, w, n, k, t);
    ops->linear(d, y, x, rows, pw, bias);
    assert_true(y[(size_t)rows * n] == canary);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            double sum = bias[i], mag = fabs(bias[i]);
            for (uint32_t c = 0; c < k; c++) {
                double term = (double)stored(w[(size_t)i * k + c], t) * x[(size_t)r * k + c];
                sum += term, mag += fabs(term);
            }
            if (fabs(y[(size_t)r * n + i] - sum) > 1e-6 * mag)
                fail_msg("%s [%u, %u] x %u rows: y[%u][%u] = %g, not %g", dtype_name(t), n, k, rows,
                         r, i, y[(size_t)r * n + i], sum);
        }
    ops->weight_free(d, pw);
    free(w), free(x), free(bias), free(y);
}

TEST(linear_agrees_with_double_precision)
{
    struct device *d = device(2, ~0ull);
    static const uint32_t rows[] = {1, 2, 3, 7, 8, 16, 33};
    for (enum dtype t = 0; t < DT_N; t++) {
        for (uint32_t n = 1; n <= 65; n += n < 34 ? 1 : 7)
            check_linear(d, rows[n % 7], n, 1 + rng_below(&rng, 90), t);
        check_linear(d, 33, 80, 1100, t);
        check_linear(d, 1, 80, 1101, t);
    }
    ops->close(d);
}

/* The same product on differently built devices and with rows taken in other groups. */
TEST(linear_is_bitwise_the_same_everywhere)
{
    static const uint32_t rows[] = {1, 2, 3, 5, 7, 8, 12, 13, 16, 33, 100};
    enum { N = 150, K = 1030, ROWS = 100 };
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, ROWS * K),
          *bias = rng_floats(&rng, N);
    float *want = malloc(ROWS * N * sizeof(float)), *got = malloc(ROWS * N * sizeof(float));
    for (enum dtype t = 0; t < DT_N; t++)
        for (int features = 0; features <= 3; features++)
            for (int threads = 1; threads <= 4; threads++) {
                struct device *d = device(threads, (uint64_t)features);
                struct weight *pw = load(d, w, N, K, t);
                if (features == 0 && threads == 1)
                    for (int r = 0; r < ROWS; r++)
                        ops->linear(d, want + r * N, x + r * K, 1, pw, bias);
                for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                    if (features == 0 && rows[i] % 4 != (uint32_t)threads - 1)
                        continue; /* the reference is slow */
                    uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                    ops->linear(d, got, x + (size_t)first * K, rows[i], pw, bias);
                    if (memcmp(got, want + (size_t)first * N, rows[i] * N * sizeof(float)))
                        fail_msg("%s, %d threads, features %d, %u rows: other bits", dtype_name(t),
                                 threads, features, rows[i]);
                }
                ops->weight_free(d, pw);
                ops->close(d);
            }
    free(w), free(x), free(bias), free(want), free(got);
}

/* Beyond every block of the driver: several passes over rows, chunks of tiles, blocks of columns.
 */
TEST(large_products_are_those_of_single_rows)
{
    enum { N = 72, K = 4103, ROWS = 700 };
    float *w = rng_floats(&rng, N * K), *x = rng_floats(&rng, (size_t)ROWS * K),
          *bias = rng_floats(&rng, N);
    float *want = malloc(ROWS * N * sizeof(float)), *got = malloc(ROWS * N * sizeof(float));
    for (enum dtype t = 0; t < DT_N; t++)
        for (unsigned features = 1; features <= 3; features += 2) {
            struct device *d = device(2, features);
            struct weight *pw = load(d, w, N, K, t);
            for (size_t r = 0; r < ROWS; r++)
                ops->linear(d, want + r * N, x + r * K, 1, pw, bias);
            ops->linear(d, got, x, ROWS, pw, bias);
            if (memcmp(got, want, ROWS * N * sizeof(float)))
                fail_msg("%s, features %u: other bits", dtype_name(t), features);
            ops->weight_free(d, pw);
            ops->close(d);
        }
    free(w), free(x), free(bias), free(want), free(got);
}

TEST(a_weight_may_be_stacked_strided_and_of_any_type)
{
    struct device *d = device(2, ~0ull);
    struct err e = ERR_INIT;
    enum { K = 37, A = 19, B = 30 };
    float *a = rng_floats(&rng, A * K), *b = rng_floats(&rng, B * K), x[K], y[A + B];
    uint16_t bt[K * B]; /* transposed bf16 */
    for (int i = 0; i < B; i++)
        for (int k = 0; k < K; k++)
            bt[k * B + i] = bf16_of_f32(b[i * K + k]);
    struct mat_part parts[] = {{a, DT_F32, A, K, K, 1}, {bt, DT_BF16, B, K, 1, B}};
    for (int k = 0; k < K; k++)
        x[k] = 0;
    struct weight *w = ops->weight_load(d, &(struct mat_desc){parts, 2, DT_BF16}, &e);
    assert_non_null(w);
    for (int k = 0; k < K; k++) {
        x[k] = 1;
        ops->linear(d, y, x, 1, w, NULL);
        x[k] = 0;
        for (int i = 0; i < A + B; i++) {
            float v = i < A ? a[i * K + k] : b[(i - A) * K + k];
            assert_true(y[i] == stored(v, DT_BF16));
        }
    }
    ops->weight_free(d, w);
    parts[1].cols = K - 1;
    assert_null(ops->weight_load(d, &(struct mat_desc){parts, 2, DT_BF16}, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    free(a), free(b);
    ops->close(d);
}

/* ---------------------------------------------------------------- rows */

TEST(embedding_gathers_rows_of_its_slice)
{
    struct device *d = device(2, ~0ull);
    struct err e = ERR_INIT;
    enum { N = 50, K = 21 };
    float *w = rng_floats(&rng, N * K), y[4 * K];
    uint32_t ids[4] = {100, 149, 99, 150}, pos[4] = {0, 1, 7, 30};
    struct ragged b = {.n_tokens = 4, .ids = ids, .pos = pos};
    for (enum dtype t = 0; t < DT_N; t++) {
        struct weight *pw = load(d, w, N, K, t);
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->embed(d, y, pw, 100, 3.0f);
        for (int k = 0; k < K; k++) {
            assert_true(y[k] == 3.0f * stored(w[k], t));
            assert_true(y[K + k] == 3.0f * stored(w[49 * K + k], t));
            assert_true(y[2 * K + k] == 0 && y[3 * K + k] == 0);
        }
        memset(y, 0, sizeof(y));
        ops->embed_pos(d, y, pw, 2);
        for (int k = 0; k < 4 * K; k++)
            assert_true(y[k] == stored(w[(pos[k / K] + 2) * K + k % K], t));
        assert_int_equal(ops->step_end(d, &e), 0);
        ops->weight_free(d, pw);
    }
    free(w);
    ops->close(d);
}

TEST(norms_and_their_sums)
{
    struct device *d = device(2, ~0ull);
    for (int i = 0; i < 80; i++) {
        uint32_t n = i < 65 ? (uint32_t)i + 1 : 100 + rng_below(&rng, 5000), rows = 3;
        float *x = rng_floats(&rng, rows * n), *r = rng_floats(&rng, rows * n);
        float *w = rng_floats(&rng, n), *b = rng_floats(&rng, n), *y = rng_floats(&rng, rows * n);
        float *sum = malloc(rows * n * sizeof(*sum));
        struct norm p = {i & 1 ? NORM_LAYER : NORM_RMS, w, i & 2 ? b : NULL, 1e-5f};
        for (uint32_t k = 0; k < rows * n; k++)
            sum[k] = fmaf(0.5f, r[k], x[k]);
        ops->add_norm(d, y, x, r, 0.5f, rows, n, &p);
        assert_memory_equal(x, sum, rows * n * sizeof(*x));
        for (uint32_t t = 0; t < rows; t++) {
            double mean = 0, sq = 0;
            for (uint32_t k = 0; k < n; k++)
                mean += p.kind == NORM_LAYER ? (double)sum[t * n + k] / n : 0;
            for (uint32_t k = 0; k < n; k++)
                sq += pow(sum[t * n + k] - mean, 2) / n;
            for (uint32_t k = 0; k < n; k++) {
                double z = (sum[t * n + k] - mean) / sqrt(sq + p.eps);
                double want = z * w[k] + (p.b ? b[k] : 0);
                /* the mean is as exact as the row's size, not as its own */
                double mag = (1 + fabs(z) + fabs(mean) / sqrt(sq + p.eps)) * fabs(w[k]);
                mag += fabs(b[k]);
                assert_true(fabs(y[t * n + k] - want) <= 2e-6 * mag + 1e-30);
            }
        }
        ops->norm(d, x, x, rows, n, &p); /* in place */
        assert_memory_equal(x, y, rows * n * sizeof(*x));
        free(x), free(r), free(w), free(b), free(y), free(sum);
    }
    ops->close(d);
}

static double act_exact(double x, enum act a)
{
    switch (a) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU:
        return 0.5 * x * erfc(-x / sqrt(2));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ACT_RELU2:
        return x > 0 ? x * x : 0;
    case ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_RELU:
    case ACT_SWIGLU_CLAMPED:
    case ACT_SILU_CLAMPED:
    case ACT_SILU_CAPPED:
    case ACT_SILU_SOFT:
    case ACT_N:
    case ACT_LIMIT:
        break;
    }
    return x > 0 ? x : 0;
}

static double gate_exact(double x, double up, enum act a)
{
    const enum act kind = act_kind(a);
    const double limit = a != kind ? 3.5 : kind == ACT_SWIGLU_CLAMPED ? 7 : 10;
    if (!act_gated_only(a))
        return act_exact(x, a) * up;
    if (kind == ACT_SILU_SOFT)
        return 4 * tanh(x / 4) / (1 + exp(-x)) * 25 * tanh(up / 25);
    up = fmax(fmin(up, limit), -limit);
    if (kind == ACT_SILU_CAPPED)
        return fmin(act_exact(x, ACT_SILU), limit) * up;
    x = fmin(x, limit);
    if (kind == ACT_SILU_CLAMPED)
        return act_exact(x, ACT_SILU) * up;
    return x / (1 + exp(-1.702 * x)) * (up + 1);
}

TEST(activations_agree_with_double_precision)
{
    struct device *d = device(2, ~0ull);
    enum { ROWS = 3, N = 1003 };
    float *x = rng_floats(&rng, 2 * ROWS * N), y[ROWS * N];
    for (int i = 0; i < 2 * ROWS * N; i++)
        x[i] *= i % 3 ? 1 : 12; /* beyond the clamps too */
    for (int k = 0; k < 2 * ACT_N; k++) {
        enum act a = (enum act)(k % ACT_N);
        if (k >= ACT_N && !act_gated_only(a))
            continue;
        a = k < ACT_N ? a : act_limited(a, 3.5f);
        ops->act_mul(d, y, x, ROWS, N, a);
        for (int i = 0; i < ROWS * N; i++) {
            double g = x[i / N * 2 * N + i % N], up = x[i / N * 2 * N + N + i % N];
            double size = a == ACT_SIGMOID ? 1 : fabs(g);
            size *= fabs(up) + (act_kind(a) == ACT_SWIGLU_CLAMPED);
            size *= a == ACT_RELU2 ? fabs(g) : 1;
            assert_true(fabs(y[i] - gate_exact(g, up, a)) <= 4e-7 * size);
        }
        if (act_gated_only(a))
            continue;
        memcpy(y, x, sizeof(y));
        ops->act(d, y, ROWS, N, a);
        for (int i = 0; i < ROWS * N; i++)
            assert_true(fabs(y[i] - act_exact(x[i], a)) <=
                        4e-7 * (a == ACT_RELU2     ? x[i] * (double)x[i]
                                : a == ACT_SIGMOID ? 1
                                                   : fabs(x[i])));
    }
    memcpy(y, x, sizeof(y));
    ops->logit_scale(d, y, ROWS, N, 0.5f, 3.0f);
    for (int i = 0; i < ROWS * N; i++)
        assert_true(fabs(y[i] - 3 * tanh(x[i] * 0.5 / 3)) <= 1e-6 * fabs(x[i]));
    free(x);
    ops->close(d);
}

/* In place and not, at widths around vectors; the bounds of a column are its own. */
TEST(rows_are_clipped_by_column)
{
    enum { ROWS = 37, MOST = 1003 };
    static const uint32_t widths[] = {1, 15, 16, 129, MOST};
    struct device *d = device(2, ~0ull);
    for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++) {
        const uint32_t n = widths[w];
        float *x = rng_floats(&rng, (size_t)ROWS * n), *low = rng_floats(&rng, n),
              *high = rng_floats(&rng, n), *y = malloc((size_t)ROWS * n * sizeof(*y));
        for (uint32_t i = 0; i < n; i++) {
            low[i] = -fabsf(low[i]) / 2;
            high[i] = i % 7 ? fabsf(high[i]) / 2 : INFINITY;
        }
        x[0] = NAN;
        ops->clip(d, y, x, ROWS, n, low, high);
        assert_true(isnan(y[0]));
        for (size_t i = 1; i < (size_t)ROWS * n; i++)
            assert_true(y[i] == fminf(fmaxf(x[i], low[i % n]), high[i % n]));
        ops->clip(d, x, x, ROWS, n, low, high);
        assert_memory_equal(x + 1, y + 1, ((size_t)ROWS * n - 1) * sizeof(*x));
        free(x), free(y), free(low), free(high);
    }
    ops->close(d);
}

TEST(only_wanted_rows_are_gathered)
{
    struct device *d = device(1, ~0ull);
    struct err e = ERR_INIT;
    float x[12], y[6];
    uint32_t out[2] = {1, 3};
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    struct ragged b = {.n_tokens = 4, .n_out = 2, .out_rows = out};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->gather_out(d, y, x, 3);
    assert_int_equal(ops->step_end(d, &e), 0);
    assert_memory_equal(y, x + 3, 12);
    assert_memory_equal(y + 3, x + 9, 12);
    ops->close(d);
}

/* ---------------------------------------------------------------- mixture of experts */

enum { EXPERTS = 8, HIDDEN = 40, FFN = 24, MOE_ROWS = 30 };

static void expert_exact(const float *up, const float *down, const float *x, double weight,
                         const struct moe *m, int expert, double *y)
{
    double h[2 * FFN];
    for (int i = 0; i < 2 * FFN; i++) {
        h[i] = m->up_bias ? m->up_bias[expert * 2 * FFN + i] : 0;
        for (int k = 0; k < HIDDEN; k++)
            h[i] += (double)up[i * HIDDEN + k] * x[k];
    }
    for (int i = 0; i < HIDDEN; i++) {
        y[i] += m->down_bias ? weight * m->down_bias[expert * HIDDEN + i] : 0;
        for (int k = 0; k < FFN; k++)
            y[i] += weight * down[i * FFN + k] * gate_exact(h[k], h[FFN + k], m->act);
    }
}

static void moe_exact(const float *router, float *const *up, float *const *down, const float *x,
                      const struct moe *m, double *y)
{
    double p[EXPERTS], sum = 0, kept = 0;
    int best[EXPERTS];
    memset(y, 0, HIDDEN * sizeof(*y));
    for (int i = 0; i < EXPERTS; i++) {
        p[i] = m->router_bias ? m->router_bias[i] : 0;
        for (int k = 0; k < HIDDEN; k++)
            p[i] += (double)router[i * HIDDEN + k] * x[k];
        sum += p[i] = exp(p[i]);
    }
    for (uint32_t k = 0; k < m->top_k; k++) {
        best[k] = 0;
        for (int i = 1; i < EXPERTS; i++)
            best[k] = p[i] > p[best[k]] ? i : best[k];
        kept += p[best[k]];
        for (int i = 0; (uint32_t)best[k] >= m->n_experts && i < HIDDEN; i++)
            y[i] += p[best[k]] * x[i];
        if ((uint32_t)best[k] < m->n_experts)
            expert_exact(up[best[k]], down[best[k]], x, p[best[k]], m, best[k], y);
        p[best[k]] = -1;
    }
    for (int i = 0; i < HIDDEN; i++)
        y[i] = y[i] / (m->renormalise ? kept : sum) + (m->sum_bias ? m->sum_bias[i] : 0);
}

/* What two ranks make of the experts that they have adds up to what one makes of all. */
static void assert_parts_add_up(struct device *d, const struct moe *all, const float *x,
                                const float *want)
{
    static float part[2][MOE_ROWS * HIDDEN];
    struct weight *up[2][EXPERTS] = {0}, *down[2][EXPERTS] = {0};
    for (int i = 0; i < EXPERTS; i++) {
        up[i >= EXPERTS / 3][i] = all->up[i];
        down[i >= EXPERTS / 3][i] = all->down[i];
    }
    for (int k = 0; k < 2; k++) {
        struct moe m = *all;
        m.up = up[k], m.down = down[k];
        m.adds_zero = k == 0;
        m.sum_bias = k == 0 ? all->sum_bias : NULL;
        ops->moe(d, part[k], x, MOE_ROWS, &m);
    }
    for (int r = 0; r < MOE_ROWS; r++) {
        double mag = 0;
        for (int i = r * HIDDEN; i < (r + 1) * HIDDEN; i++)
            mag = fmax(mag, fabs(want[i]));
        for (int i = r * HIDDEN; i < (r + 1) * HIDDEN; i++)
            assert_true(fabs(part[0][i] + part[1][i] - want[i]) <= 1e-5 * mag);
    }
}

TEST(experts_are_mixed_row_by_row)
{
    struct device *d = device(2, ~0ull);
    float *router = rng_floats(&rng, EXPERTS * HIDDEN), *x = rng_floats(&rng, MOE_ROWS * HIDDEN);
    float *up[EXPERTS], *down[EXPERTS], y[MOE_ROWS * HIDDEN], one[HIDDEN];
    struct weight *wup[EXPERTS], *wdown[EXPERTS];
    struct moe m = {
        .up = wup, .down = wdown, .n_experts = EXPERTS, .top_k = 3, .scale = 1, .act = ACT_SILU};
    for (int i = 0; i < EXPERTS * HIDDEN; i++)
        router[i] *= 0.05f;
    for (int i = 0; i < EXPERTS; i++) {
        up[i] = rng_floats(&rng, 2 * FFN * HIDDEN), down[i] = rng_floats(&rng, HIDDEN * FFN);
        wup[i] = load(d, up[i], 2 * FFN, HIDDEN, DT_F32);
        wdown[i] = load(d, down[i], HIDDEN, FFN, DT_F32);
    }
    m.router = load(d, router, EXPERTS, HIDDEN, DT_F32);
    float *biases = rng_floats(&rng, EXPERTS * (1 + 2 * FFN + HIDDEN));
    for (int kind = 0; kind < 4; kind++) {
        m.renormalise = kind == 1 || kind == 2;
        if (kind == 2) {
            m.act = ACT_SWIGLU_CLAMPED;
            m.router_bias = biases, m.up_bias = biases + EXPERTS;
            m.down_bias = biases + EXPERTS + EXPERTS * 2 * FFN;
            m.sum_bias = biases + EXPERTS; /* any numbers */
        }
        if (kind == 3) { /* the last ones have no weights */
            m.router_bias = m.up_bias = m.down_bias = NULL;
            m.n_experts = EXPERTS - 3, m.n_zero = 3, m.adds_zero = true;
        }
        ops->moe(d, y, x, MOE_ROWS, &m);
        for (int r = 0; r < MOE_ROWS; r++) {
            double want[HIDDEN], mag = 0;
            moe_exact(router, up, down, x + r * HIDDEN, &m, want);
            for (int i = 0; i < HIDDEN; i++)
                mag = fmax(mag, fabs(want[i]));
            for (int i = 0; i < HIDDEN; i++)
                assert_true(fabs(y[r * HIDDEN + i] - want[i]) <= 1e-4 * mag);
            ops->moe(d, one, x + r * HIDDEN, 1, &m);
            assert_memory_equal(one, y + r * HIDDEN, sizeof(one));
        }
        assert_parts_add_up(d, &m, x, y);
    }
    x[3] = NAN; /* a broken row stays in its row */
    ops->moe(d, y, x, MOE_ROWS, &m);
    assert_true(isnan(y[0]) && memcmp(y + (MOE_ROWS - 1) * HIDDEN, one, sizeof(one)) == 0);
    for (int i = 0; i < EXPERTS; i++) {
        free(up[i]), free(down[i]);
        ops->weight_free(d, wup[i]), ops->weight_free(d, wdown[i]);
    }
    ops->weight_free(d, m.router);
    free(router), free(x), free(biases);
    ops->close(d);
}

/* Experts of a table of ids, weighed by the roots of softplus. */
TEST(experts_are_chosen_by_id)
{
    enum { IDS = 11, TOP = 3 };
    struct err e = ERR_INIT;
    struct device *d = device(2, ~0ull);
    float *router = rng_floats(&rng, EXPERTS * HIDDEN), *x = rng_floats(&rng, MOE_ROWS * HIDDEN);
    float *up[EXPERTS], *down[EXPERTS], y[MOE_ROWS * HIDDEN];
    struct weight *wup[EXPERTS], *wdown[EXPERTS];
    uint32_t table[IDS * TOP], ids[MOE_ROWS], zero[MOE_ROWS] = {0};
    const struct span span = {.n = MOE_ROWS, .kv_len = MOE_ROWS, .blocks = zero};
    const struct ragged b = {
        .n_tokens = MOE_ROWS, .n_spans = 1, .ids = ids, .pos = zero, .slots = zero, .spans = &span};
    for (int i = 0; i < EXPERTS; i++) {
        up[i] = rng_floats(&rng, 2 * FFN * HIDDEN), down[i] = rng_floats(&rng, HIDDEN * FFN);
        wup[i] = load(d, up[i], 2 * FFN, HIDDEN, DT_F32);
        wdown[i] = load(d, down[i], HIDDEN, FFN, DT_F32);
    }
    for (uint32_t i = 0; i < IDS * TOP; i++)
        table[i] = (i / TOP * 5 + i % TOP * 3) % EXPERTS;
    for (uint32_t r = 0; r < MOE_ROWS; r++)
        ids[r] = rng_below(&rng, IDS + 2); /* those from IDS on have the experts of 0 */
    const struct moe m = {.router = load(d, router, EXPERTS, HIDDEN, DT_F32),
                          .up = wup,
                          .down = wdown,
                          .n_experts = EXPERTS,
                          .top_k = TOP,
                          .scale = 1.5F,
                          .score = MOE_SQRT_SOFTPLUS,
                          .renormalise = true,
                          .by_id = table,
                          .n_ids = IDS,
                          .act = ACT_SILU};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->moe(d, y, x, MOE_ROWS, &m);
    assert_int_equal(ops->step_end(d, &e), 0);
    for (int r = 0; r < MOE_ROWS; r++) {
        const uint32_t *of = table + (ids[r] < IDS ? ids[r] : 0) * (size_t)TOP;
        double want[HIDDEN] = {0}, score[TOP], sum = 0, mag = 0;
        for (uint32_t k = 0; k < TOP; k++) {
            score[k] = 0;
            for (int i = 0; i < HIDDEN; i++)
                score[k] += (double)router[of[k] * HIDDEN + (uint32_t)i] * x[r * HIDDEN + i];
            sum += score[k] = sqrt(log1p(exp(score[k])));
        }
        for (uint32_t k = 0; k < TOP; k++)
            expert_exact(up[of[k]], down[of[k]], x + (size_t)r * HIDDEN, 1.5 * score[k] / sum, &m,
                         (int)of[k], want);
        for (int i = 0; i < HIDDEN; i++)
            mag = fmax(mag, fabs(want[i]));
        for (int i = 0; i < HIDDEN; i++)
            assert_true(fabs(y[r * HIDDEN + i] - want[i]) <= 1e-4 * mag);
    }
    for (int i = 0; i < EXPERTS; i++) {
        free(up[i]), free(down[i]);
        ops->weight_free(d, wup[i]), ops->weight_free(d, wdown[i]);
    }
    ops->weight_free(d, m.router);
    free(router), free(x);
    ops->close(d);
}

/* ---------------------------------------------------------------- the device */

TEST(the_registry_and_the_device_introduce_themselves)
{
    struct err e = ERR_INIT;
    uint64_t avail = 0, total = 0;
    assert_ptr_equal(backend_find("cpu", &e), ops);
    assert_null(backend_find("abacus", &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    struct device *d = device(3, 0);
    assert_string_equal(ops->describe(d), "CPU, 3 threads, plain C");
    assert_int_equal(ops->memory(d, &avail, &total, &e), 0);
    assert_true(avail > 0 && avail <= total);
    assert_null(ops->open(&(struct device_options){.threads = -1}, &e));
    struct mat_part v = {(float[]){1, 2, 3}, DT_F32, 1, 3, 3, 1};
    float *p = ops->vector_load(d, &v, 1.0f, &e);
    assert_true(p[0] == 2 && p[1] == 3 && p[2] == 4);
    ops->free(d, p);
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
