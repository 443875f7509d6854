/* Mixed residual streams against double precision, at widths around vectors, with every number of
 * streams and rows divided over threads; and the same bits on each instruction set. */
#include "model-server/backend/backend.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <string.h>

enum { ROWS = 19, MOST = MIX_MOST };
static const uint32_t widths[] = {1, 15, 16, 129, 1003};
enum { N_WIDTHS = sizeof(widths) / sizeof(*widths) };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static float *copy_of(const float *x, size_t n)
{
    float *y = malloc((n ? n : 1) * sizeof(*y));
    assert_non_null(y);
    return memcpy(y, x, n * sizeof(*y));
}

static void assert_near(double got, double want, double magnitude)
{
    if (!(fabs(got - want) <= 5e-6 * (1 + magnitude)))
        fail_msg("%.9g, not %.9g", got, want);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A kind of factors, its inputs and what the operation may have changed. */
struct rig {
    struct mix p;
    uint32_t n; /* elements */
    float *streams, *factors, *scale, *base, *x;
};

static struct rig rig_new(uint32_t streams, uint32_t rounds, bool last, uint32_t n)
{
    struct rig r = {.n = n};
    r.p = (struct mix){.n = streams,
                       .rounds = rounds,
                       .last = last,
                       .eps = 1e-5f,
                       .floor = 1e-3f,
                       .magnitude = 1.7f,
                       .result_floor = 2e-3f};
    const uint32_t count = mix_factors(&r.p);
    r.streams = rng_floats(&rng, (size_t)ROWS * streams * n);
    r.factors = rng_floats(&rng, (size_t)ROWS * count);
    for (uint32_t i = 0; i < ROWS * count; i++)
        r.factors[i] *= 3;
    r.scale = rng_floats(&rng, 3), r.base = rng_floats(&rng, count);
    r.x = rng_floats(&rng, (size_t)ROWS * n);
    r.p.streams = r.streams, r.p.factors = r.factors;
    r.p.scale = r.scale, r.p.base = r.base;
    return r;
}

static void rig_free(struct rig *r)
{
    free(r->streams), free(r->factors), free(r->scale), free(r->base), free(r->x);
}

static void run(struct device *d, struct rig *r, enum mix_kind kind)
{
    r->p.kind = kind;
    ops->mix(d, r->x, ROWS, r->n, &r->p);
}

/* ---------------------------------------------------------------- in double precision */

static void divide(double *m, uint32_t n, bool rows, double floor)
{
    for (uint32_t a = 0; a < n; a++) {
        double sum = floor;
        for (uint32_t b = 0; b < n; b++)
            sum += m[rows ? a * n + b : b * n + a];
        for (uint32_t b = 0; b < n; b++)
            m[rows ? a * n + b : b * n + a] /= sum;
    }
}

static void balance(const struct mix *p, double *m)
{
    for (uint32_t r = 0; r < p->n; r++) {
        double most = -INFINITY, sum = 0;
        for (uint32_t c = 0; c < p->n; c++)
            most = fmax(most, m[r * p->n + c]);
        for (uint32_t c = 0; c < p->n; c++)
            sum += m[r * p->n + c] = exp(m[r * p->n + c] - most);
        for (uint32_t c = 0; c < p->n; c++)
            m[r * p->n + c] = m[r * p->n + c] / sum + (double)p->floor;
    }
    divide(m, p->n, false, p->floor);
    for (uint32_t i = 1; i < p->rounds; i++) {
        divide(m, p->n, true, p->floor);
        divide(m, p->n, false, p->floor);
    }
}

/* Of row t, from its products. */
static void exact_factors(const struct rig *r, const float *streams, const float *products,
                          size_t t, double *f)
{
    const struct mix *p = &r->p;
    const uint32_t n = p->n, count = mix_factors(p), all = n * r->n;
    double squares = 0;
    for (size_t i = t * all; i < (t + 1) * all; i++)
        squares += (double)streams[i] * streams[i];
    const double root = sqrt(squares / all + (double)p->eps);
    for (uint32_t i = 0; i < count; i++) {
        const double scale = r->scale[i < n ? 0 : i < 2 * n ? 1 : 2];
        const double g = products[t * count + i] / root * scale + r->base[i];
        f[i] = i < n       ? sigmoid(g) + (double)p->floor
               : i < 2 * n ? (double)p->magnitude * sigmoid(g) + (double)p->result_floor
                           : g;
    }
    if (count > 2 * n)
        balance(p, f + 2 * n);
}

/* ---------------------------------------------------------------- tests */

static void check_read(struct device *d, struct rig *r)
{
    const uint32_t n = r->p.n, count = mix_factors(&r->p);
    float *products = copy_of(r->factors, (size_t)ROWS * count);
    run(d, r, MIX_READ);
    for (size_t t = 0; t < ROWS; t++) {
        double f[MOST * (MOST + 2)];
        exact_factors(r, r->streams, products, t, f);
        for (uint32_t i = n; i < count; i++)
            assert_near(r->factors[t * count + i], f[i], 1);
        for (uint32_t i = 0; i < r->n; i++) {
            double want = 0, magnitude = 0;
            for (uint32_t s = 0; s < n; s++) {
                const double v = f[s] * r->streams[(t * n + s) * r->n + i];
                want += v, magnitude += fabs(v);
            }
            assert_near(r->x[t * r->n + i], want, magnitude);
        }
    }
    free(products);
}

static void check_write(struct device *d, struct rig *r)
{
    const uint32_t n = r->p.n, count = mix_factors(&r->p);
    float *was = copy_of(r->streams, (size_t)ROWS * n * r->n);
    run(d, r, MIX_WRITE);
    for (size_t t = 0; t < ROWS; t++)
        for (uint32_t s = 0; s < n; s++)
            for (uint32_t i = 0; i < r->n; i++) {
                const float *f = r->factors + t * count;
                double want = (double)f[n + s] * r->x[t * r->n + i];
                double magnitude = fabs(want);
                for (uint32_t from = 0; from < n; from++) {
                    double v = was[(t * n + from) * r->n + i];
                    v *= r->p.rounds ? f[2 * n + from * n + s] : from == s;
                    want += v, magnitude += fabs(v);
                }
                assert_near(r->streams[(t * n + s) * r->n + i], want, magnitude);
            }
    free(was);
}

/* Streams that stay apart, streams that are exchanged, and the head's sum. */
TEST(sublayers_read_and_write_streams)
{
    struct device *d = device(2, ~0ull);
    for (uint32_t streams = 1; streams <= MOST; streams++)
        for (int w = 0; w < N_WIDTHS; w++)
            for (uint32_t kind = 0; kind < 4; kind++) {
                const uint32_t rounds = kind == 1 ? 1 : kind == 2 ? 20 : 0;
                struct rig r = rig_new(streams, rounds, kind == 3, widths[w]);
                check_read(d, &r);
                if (kind != 3)
                    check_write(d, &r);
                rig_free(&r);
            }
    ops->close(d);
}

/* Rows and columns of the exchange sum to 1, so nothing grows from layer to layer. */
TEST(exchanges_are_doubly_stochastic)
{
    struct device *d = device(1, ~0ull);
    struct rig r = rig_new(4, 20, false, 64);
    r.p.floor = 1e-6f;
    run(d, &r, MIX_READ);
    for (size_t t = 0; t < ROWS; t++)
        for (uint32_t a = 0; a < 4; a++) {
            const float *m = r.factors + t * 24 + 8;
            assert_near(m[a * 4] + m[a * 4 + 1] + m[a * 4 + 2] + m[a * 4 + 3], 1, 1e2);
            assert_near(m[a] + m[4 + a] + m[8 + a] + m[12 + a], 1, 1);
        }
    rig_free(&r);
    ops->close(d);
}

TEST(streams_begin_alike_and_end_as_their_mean)
{
    struct device *d = device(2, ~0ull);
    struct rig r = rig_new(5, 0, false, 129);
    float *x = copy_of(r.x, (size_t)ROWS * 129);
    run(d, &r, MIX_SPREAD);
    for (size_t i = 0; i < (size_t)ROWS * 5 * 129; i++)
        assert_true(r.streams[i] == x[i / (5 * 129) * 129 + i % 129]);
    for (size_t i = 0; i < (size_t)ROWS * 5 * 129; i++)
        r.streams[i] *= (float)(i / 129 % 5);
    run(d, &r, MIX_MEAN);
    for (size_t i = 0; i < (size_t)ROWS * 129; i++)
        assert_near(r.x[i], 2 * (double)x[i], 10 * fabs(x[i]));
    free(x), rig_free(&r);
    ops->close(d);
}

/* The factors of the result alone, as rows of their own. */
TEST(results_are_added_by_their_factors)
{
    enum { STREAMS = 3, WIDE = 129 };
    struct device *d = device(2, ~0ull);
    struct rig r = rig_new(STREAMS, 0, false, WIDE);
    float *was = copy_of(r.streams, (size_t)ROWS * STREAMS * WIDE);
    run(d, &r, MIX_ADD);
    assert_int_equal(mix_factors(&r.p), STREAMS);
    for (size_t i = 0; i < (size_t)ROWS * STREAMS * WIDE; i++) {
        const size_t row = i / WIDE, t = row / STREAMS;
        const double more = (double)r.factors[row] * r.x[t * WIDE + i % WIDE];
        assert_near(r.streams[i], was[i] + more, fabs(was[i]) + fabs(more));
    }
    free(was), rig_free(&r);
    ops->close(d);
}

TEST(all_instruction_sets_give_the_same_bits)
{
    struct device *a = device(1, 0), *b = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        struct rig r = rig_new(4, 20, false, widths[w]), s = r;
        const size_t all = (size_t)ROWS * 4 * r.n, count = (size_t)ROWS * mix_factors(&r.p);
        s.p.streams = s.streams = copy_of(r.streams, all);
        s.p.factors = s.factors = copy_of(r.factors, count);
        s.scale = copy_of(r.scale, 3), s.base = copy_of(r.base, mix_factors(&r.p));
        s.x = copy_of(r.x, (size_t)ROWS * r.n);
        run(a, &r, MIX_READ), run(b, &s, MIX_READ);
        run(a, &r, MIX_WRITE), run(b, &s, MIX_WRITE);
        assert_memory_equal(r.streams, s.streams, all * sizeof(float));
        assert_memory_equal(r.factors, s.factors, count * sizeof(float));
        assert_memory_equal(r.x, s.x, (size_t)ROWS * r.n * sizeof(float));
        rig_free(&r), rig_free(&s);
    }
    ops->close(a), ops->close(b);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
