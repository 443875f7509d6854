/* The operations of parallel residual streams against double precision, at widths around vectors
 * and with rows divided over threads: Gemma 3n. */
#include "model-server/backend/backend.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include "tests/check/rows.h"
#include <string.h>

enum { ROWS = 37, STREAMS = 5, ACTIVE = 2 };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

static void at_widths(int first, void (*check)(struct device *d, uint32_t n))
{
    struct device *d = device(2, ~0ull);
    for (int w = first; w < N_WIDTHS; w++)
        check(d, widths[w]);
    ops->close(d);
}

/* Each stream gains a sum of all as they were; x is the active one. */
static void predict(struct device *d, uint32_t n)
{
    const size_t each = (size_t)ROWS * n;
    float *streams = rng_floats(&rng, STREAMS * each), *was = copy_of(streams, STREAMS * each);
    float *coefs = rng_floats(&rng, (size_t)ROWS * STREAMS * STREAMS);
    float *x = rng_floats(&rng, each);
    const struct altup p = {ALTUP_PREDICT, STREAMS, ACTIVE, streams, coefs};
    ops->altup(d, x, ROWS, n, &p);
    for (size_t s = 0; s < STREAMS; s++)
        for (size_t i = 0; i < each; i++) {
            double want = was[s * each + i], magnitude = fabs(want);
            for (size_t k = 0; k < STREAMS; k++) {
                const double c = coefs[(i / n * STREAMS + s) * STREAMS + k];
                want += c * was[k * each + i];
                magnitude += fabs(c * was[k * each + i]);
            }
            assert_near(2e-6, streams[s * each + i], want, magnitude);
        }
    assert_memory_equal(x, streams + ACTIVE * each, each * sizeof(*x));
    free(streams), free(was), free(coefs), free(x);
}

TEST(streams_are_predicted_from_all) { at_widths(0, predict); }

/* Each stream gains its share of the difference; x is the active one. */
static void correct(struct device *d, uint32_t n)
{
    const size_t each = (size_t)ROWS * n;
    float *streams = rng_floats(&rng, STREAMS * each), *was = copy_of(streams, STREAMS * each);
    float *coefs = rng_floats(&rng, (size_t)ROWS * STREAMS);
    float *x = rng_floats(&rng, each), *given = copy_of(x, each);
    const struct altup p = {ALTUP_CORRECT, STREAMS, ACTIVE, streams, coefs};
    ops->altup(d, x, ROWS, n, &p);
    for (size_t s = 0; s < STREAMS; s++)
        for (size_t i = 0; i < each; i++) {
            const double c = 1 + (double)coefs[i / n * STREAMS + s];
            const double by = c * ((double)given[i] - was[ACTIVE * each + i]);
            assert_near(2e-6, streams[s * each + i], was[s * each + i] + by,
                        fabs(was[s * each + i]) + fabs(by));
        }
    assert_memory_equal(x, streams + ACTIVE * each, each * sizeof(*x));
    free(streams), free(was), free(coefs), free(x), free(given);
}

TEST(streams_are_corrected_by_the_difference) { at_widths(0, correct); }

TEST(all_streams_but_the_first_gain)
{
    enum { N = 129, EACH = ROWS * N };
    struct device *d = device(2, ~0ull);
    float *streams = rng_floats(&rng, STREAMS * EACH), *was = copy_of(streams, STREAMS * EACH);
    float *x = rng_floats(&rng, EACH);
    const struct altup p = {ALTUP_SPREAD, STREAMS, ACTIVE, streams, NULL};
    ops->altup(d, x, ROWS, N, &p);
    assert_memory_equal(streams, was, EACH * sizeof(*x));
    for (size_t i = EACH; i < STREAMS * EACH; i++)
        assert_true(streams[i] == was[i] + x[i % EACH]);
    free(streams), free(was), free(x);
    ops->close(d);
}

/* Also of rows that are almost 0, whose magnitude counts as the square root of 1e-5. */
static void match(struct device *d, uint32_t n)
{
    const size_t all = (size_t)ROWS * n;
    float *x = rng_floats(&rng, all), *like = rng_floats(&rng, all);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= 1e-5f;
    float *y = copy_of(like, all), *sum = copy_of(like, all);
    ops->match_rows(d, y, x, like, ROWS, n, false);
    ops->match_rows(d, sum, x, like, ROWS, n, true);
    for (size_t t = 0; t < ROWS; t++) {
        double own = 0, other = 0;
        for (size_t i = t * n; i < (t + 1) * n; i++)
            own += (double)x[i] * x[i] / n, other += (double)like[i] * like[i] / n;
        for (size_t i = t * n; i < (t + 1) * n; i++) {
            const double want = x[i] * sqrt(other) / sqrt(fmax(own, 1e-5));
            assert_near(2e-6, y[i], want, fabs(want));
            assert_near(2e-6, sum[i], like[i] + want, fabs(like[i]) + fabs(want));
        }
    }
    ops->match_rows(d, x, x, like, ROWS, n, false); /* in place */
    assert_memory_equal(x, y, all * sizeof(*x));
    free(x), free(like), free(y), free(sum);
}

TEST(rows_get_the_magnitude_of_others) { at_widths(0, match); }

/* Rows lie further apart than they are wide; what lies between stays. The parts of a row may be on
 * several ranks: their moments are sums. */
static void cut(struct device *d, uint32_t n)
{
    const uint32_t stride = n + 7, half = n / 2;
    float *x = rng_floats(&rng, (size_t)ROWS * stride), *was = copy_of(x, (size_t)ROWS * stride);
    float moments[ROWS * SQUARES], more[ROWS * SQUARES];
    ops->row_moments(d, moments, x, stride, ROWS, half);
    ops->row_moments(d, more, x + half, stride, ROWS, n - half);
    for (int i = 0; i < ROWS * SQUARES; i++)
        moments[i] += more[i];
    const struct sparsify p = {moments, n, 0.84f};
    ops->sparsify(d, x, stride, ROWS, n, &p);
    for (size_t t = 0; t < ROWS; t++) {
        const float *row = was + t * stride;
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < n; i++)
            mean += (double)row[i] / n;
        for (uint32_t i = 0; i < n; i++)
            variance += pow(row[i] - mean, 2) / n;
        for (uint32_t i = 0; i < stride; i++) {
            const double cut = fmax(row[i] - mean - (double)p.deviations * sqrt(variance), 0);
            assert_near(2e-6, x[t * stride + i], i < n ? cut : row[i], fabs(row[i]));
        }
    }
    free(x), free(was);
}

TEST(rows_are_cut_off_by_their_deviation) { at_widths(1, cut); }

TEST(rows_stand_side_by_side)
{
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        const size_t n = widths[w];
        float *a = rng_floats(&rng, ROWS * n), *b = rng_floats(&rng, ROWS * n);
        float *y = rng_floats(&rng, 2 * ROWS * n);
        ops->beside(d, y, a, b, ROWS, (uint32_t)n);
        for (size_t t = 0; t < ROWS; t++) {
            assert_memory_equal(y + 2 * t * n, a + t * n, n * sizeof(*a));
            assert_memory_equal(y + (2 * t + 1) * n, b + t * n, n * sizeof(*b));
        }
        ops->beside(d, y, b, NULL, ROWS, (uint32_t)n);
        assert_memory_equal(y, b, ROWS * n * sizeof(*b));
        free(a), free(b), free(y);
    }
    ops->close(d);
}

/* Also of rows whose numbers would overflow without the largest. */
TEST(rows_become_probabilities)
{
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        const size_t n = widths[w];
        float *x = rng_floats(&rng, ROWS * n), *was = copy_of(x, ROWS * n);
        for (size_t i = 0; i < n; i++)
            x[i] = was[i] = 300 * x[i];
        ops->softmax(d, x, ROWS, (uint32_t)n);
        for (size_t t = 0; t < ROWS; t++) {
            double most = -INFINITY, sum = 0;
            for (size_t i = t * n; i < (t + 1) * n; i++)
                most = fmax(most, was[i]);
            for (size_t i = t * n; i < (t + 1) * n; i++)
                sum += exp(was[i] - most);
            for (size_t i = t * n; i < (t + 1) * n; i++)
                assert_near(2e-6, x[i], exp(was[i] - most) / sum, 1);
        }
        free(x), free(was);
    }
    ops->close(d);
}

/* Two sources in one softmax, one of whose scores may be much larger. */
TEST(attention_to_two_sources_is_merged)
{
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        const size_t n = widths[w];
        float *y = rng_floats(&rng, ROWS * n), *was = copy_of(y, ROWS * n);
        float *x = rng_floats(&rng, ROWS * n);
        float *of_y = rng_floats(&rng, (size_t)ROWS * ATTN_SUMS);
        float *of_x = rng_floats(&rng, (size_t)ROWS * ATTN_SUMS);
        for (size_t t = 0; t < ROWS; t++) {
            of_y[t * ATTN_SUMS] *= 300;
            of_y[t * ATTN_SUMS + 1] = 1 + fabsf(of_y[t * ATTN_SUMS + 1]);
            of_x[t * ATTN_SUMS] = of_y[t * ATTN_SUMS] + (float)((int)t - ROWS / 2);
            of_x[t * ATTN_SUMS + 1] = 1 + fabsf(of_x[t * ATTN_SUMS + 1]);
        }
        ops->merge_attention(d, y, of_y, x, of_x, ROWS, (uint32_t)n);
        for (size_t i = 0; i < ROWS * n; i++) {
            const float *a = of_y + i / n * ATTN_SUMS, *b = of_x + i / n * ATTN_SUMS;
            const double share = 1 / (1 + b[1] / (double)a[1] * exp((double)b[0] - (double)a[0]));
            const double want = share * was[i] + (1 - share) * x[i];
            assert_near(2e-6, y[i], want, fabs((double)was[i]) + fabs((double)x[i]));
        }
        free(x), free(y), free(was), free(of_x), free(of_y);
    }
    ops->close(d);
}

TEST(rows_are_gated)
{
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < 2 * N_WIDTHS; w++) {
        const size_t n = widths[w / 2];
        float *x = rng_floats(&rng, ROWS * n), *was = copy_of(x, ROWS * n);
        float *gate = rng_floats(&rng, ROWS);
        gate[0] = 30, gate[1] = -30;
        ops->gate_rows(d, x, ROWS, (uint32_t)n, gate, w % 2);
        for (size_t i = 0; i < ROWS * n; i++) {
            const double g = gate[i / n];
            const double by = w % 2 ? g > 20 ? g : log1p(exp(g)) : 1 / (1 + exp(-g));
            assert_near(2e-6, x[i], was[i] * by, fabs(was[i] * by));
        }
        free(x), free(was), free(gate);
    }
    ops->close(d);
}

TEST(heads_are_scaled)
{
    enum { HEADS = 3 };
    struct device *d = device(2, ~0ull);
    for (int w = 0; w < N_WIDTHS; w++) {
        const size_t n = widths[w], all = (size_t)ROWS * HEADS * n;
        float *x = rng_floats(&rng, all), *was = copy_of(x, all), *by = rng_floats(&rng, ROWS);
        float *slope = rng_floats(&rng, HEADS), *offset = rng_floats(&rng, HEADS);
        ops->scale_heads(d, x, ROWS, HEADS, (uint32_t)n, by, slope, offset);
        for (size_t i = 0; i < all; i++) {
            const size_t h = i / n % HEADS;
            const double grown = (double)slope[h] * by[i / n / HEADS];
            assert_near(2e-6, x[i], was[i] * (grown + offset[h]),
                        fabs(was[i] * grown) + fabs((double)was[i] * offset[h]));
        }
        free(x), free(was), free(by), free(slope), free(offset);
    }
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
