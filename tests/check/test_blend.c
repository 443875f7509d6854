/* test_blend.c - blends of earlier rows, heads of limited length, and convolutions whose weights
 * tokens make: on the CPU beside double precision, the latter whatever the cut of a text. */
#include "model-server/backend/backend.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include "tests/check/rows.h"
#include <string.h>

enum { ROWS = 19, SLOTS = 5 };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* The blend of `at` rows of n numbers: element k. */
static double blended(const struct blend *p, const float *rows, uint32_t n, uint32_t k)
{
    double sum = 0, y = 0;
    for (uint32_t i = 0; i < p->at; i++) {
        const float *row = rows + (size_t)i * n;
        double square = 0, product = 0;
        for (uint32_t e = 0; e < n; e++) {
            square += (double)row[e] * row[e];
            product += (double)row[e] * p->query[e];
        }
        const double by = 1 / sqrt(square / n + (double)p->eps);
        const double weight = exp(product * by / sqrt(n));
        sum += weight;
        y += weight * (p->raw ? 1 : by) * row[k];
    }
    return y / sum; /* at most the root of n */
}

TEST(rows_are_blended)
{
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        const uint32_t n = widths[w];
        float *rows = rng_floats(&rng, (size_t)ROWS * SLOTS * n), *query = rng_floats(&rng, n);
        float *x = rng_floats(&rng, (size_t)ROWS * n);
        for (uint32_t at = 1; at <= SLOTS; at += 2) {
            const struct blend p = {BLEND_READ, SLOTS, at, rows, query, 1e-6f, at == 3};
            ops->blend(d, x, ROWS, n, &p);
            for (size_t i = 0; i<(size_t)ROWS * n; i += n> 16 ? 7 : 1)
                assert_near(4e-6, x[i], blended(&p, rows + i / n * SLOTS * n, n, i % n), sqrt(n));
        }
        free(rows), free(query), free(x);
    }
    ops->close(d);
}

TEST(a_row_is_set_and_added_to)
{
    enum { N = 129, EACH = SLOTS * N };
    struct device *d = device(2, ~0ull);
    float *rows = rng_floats(&rng, (size_t)ROWS * EACH), *was = copy_of(rows, (size_t)ROWS * EACH);
    float *x = rng_floats(&rng, (size_t)ROWS * N);
    ops->blend(d, x, ROWS, N, &(struct blend){BLEND_SET, SLOTS, 3, rows, NULL, 0, false});
    ops->blend(d, x, ROWS, N, &(struct blend){BLEND_ADD, SLOTS, 1, rows, NULL, 0, false});
    for (size_t i = 0; i < (size_t)ROWS * EACH; i++) {
        const size_t slot = i / N % SLOTS;
        const float own = x[i / EACH * N + i % N];
        assert_true(rows[i] == (slot == 3 ? own : slot == 1 ? was[i] + own : was[i]));
    }
    free(rows), free(was), free(x);
    ops->close(d);
}

TEST(heads_are_shortened)
{
    enum { HEADS = 3, BEHIND = 7 };
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < 2 * N_WIDTHS; w++) {
        const uint32_t n = widths[w / 2], stride = HEADS * n + BEHIND;
        float *x = rng_floats(&rng, (size_t)ROWS * stride),
              *was = copy_of(x, (size_t)ROWS * stride);
        float *by = rng_floats(&rng, (size_t)HEADS * n);
        const float most = 0.5f * sqrtf((float)n); /* of some heads */
        ops->shorten(d, x, stride, ROWS, HEADS, n, w % 2 ? by : NULL, most);
        for (size_t i = 0; i < (size_t)ROWS * stride; i++) {
            const size_t at = i % stride, head = at / n;
            if (at >= (size_t)HEADS * n) {
                assert_true(x[i] == was[i]);
                continue;
            }
            double square = 0;
            const float *of = was + i / stride * stride + head * n;
            for (uint32_t k = 0; k < n; k++)
                square += pow((double)of[k] * (w % 2 ? by[head * n + k] : 1), 2);
            const double share = fmin((double)most / (sqrt(square) + 1e-6), 1);
            assert_near(4e-6, x[i], was[i] * (w % 2 ? (double)by[at] : 1) * share,
                        fabs((double)was[i]));
        }
        free(x), free(was), free(by);
    }
    ops->close(d);
}

/* ---------------------------------------------------------------- convolutions */

enum { TOKENS = 23, EACH = 6, GROUPS = 50, CHANNELS = EACH * GROUPS, WIDTH = 4 };

struct text {
    float *x, *w, *by;
};

/* Steps of up to `most` tokens; two cells in turns. */
static void convolve(const struct text *t, uint32_t most, float *y)
{
    static const uint32_t zero[TOKENS];
    struct err e = ERR_INIT;
    struct device *d = device(2, ~0ull);
    struct conv p = {.channels = CHANNELS, .width = WIDTH, .w = t->w, .each = EACH};
    const size_t stride = ops->conv_floats(&p);
    float *cells = calloc(2, stride * sizeof(*cells));
    const struct state_ref s = {cells, stride};
    assert_non_null(cells);
    for (uint32_t at = 0, n, turn = 0; at < TOKENS; at += n, turn = 1 - turn) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        const struct span span = {
            .n = n, .kv_len = at + n, .blocks = zero, .state_in = turn, .state_out = 1 - turn};
        const struct ragged b = {
            .n_tokens = n, .n_spans = 1, .ids = zero, .pos = zero, .slots = zero, .spans = &span};
        p.by = t->by + (size_t)at * GROUPS * WIDTH;
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->conv(d, y + (size_t)at * CHANNELS, t->x + (size_t)at * CHANNELS, CHANNELS, &s, &p);
        assert_int_equal(ops->step_end(d, &e), 0);
    }
    free(cells);
    ops->close(d);
}

TEST(tokens_make_weights)
{
    const size_t all = (size_t)TOKENS * CHANNELS;
    struct text t = {rng_floats(&rng, all), rng_floats(&rng, (size_t)WIDTH * CHANNELS),
                     rng_floats(&rng, (size_t)TOKENS * GROUPS * WIDTH)};
    float *y = calloc(all, sizeof(*y)), *parts = calloc(all, sizeof(*parts));
    assert_true(y && parts);
    convolve(&t, TOKENS, y);
    convolve(&t, 5, parts);
    assert_memory_equal(y, parts, all * sizeof(*y));
    for (size_t i = 0; i < all; i++) {
        const size_t token = i / CHANNELS, c = i % CHANNELS;
        double want = 0, magnitude = 0;
        for (size_t back = 0; back < WIDTH && back <= token; back++) {
            const double own = t.w[(WIDTH - 1 - back) * CHANNELS + c];
            const double more = t.by[(token * GROUPS + c / EACH) * WIDTH + back];
            want += (own + more) * t.x[i - back * CHANNELS];
            magnitude += (fabs(own) + fabs(more)) * fabs((double)t.x[i - back * CHANNELS]);
        }
        assert_near(4e-6, y[i], want, magnitude);
    }
    free(t.x), free(t.w), free(t.by), free(y), free(parts);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
