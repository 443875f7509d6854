/* test_fourier.c - the Fourier transform over the tokens of texts, against double precision, and
 * that its bits depend on the text alone. */
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;
static const double PI = 3.14159265358979323846;

/* The first half of the transforms of `rows` rows of n real numbers. */
static float *halves(const float *x, uint32_t rows, uint32_t n)
{
    const uint32_t half = n / 2 + 1;
    float *y = malloc(sizeof(float) * rows * 2 * half);
    assert_non_null(y);
    for (uint32_t t = 0; t < rows; t++)
        for (uint32_t k = 0; k < half; k++) {
            double re = 0, im = 0;
            for (uint32_t j = 0; j < n; j++) {
                const double angle = 2 * PI * ((uint64_t)j * k % n) / n;
                re += x[(size_t)t * n + j] * cos(angle);
                im -= x[(size_t)t * n + j] * sin(angle);
            }
            y[(size_t)t * 2 * half + k] = (float)re;
            y[(size_t)t * 2 * half + half + k] = (float)im;
        }
    return y;
}

static void transform(struct device *d, float *y, const float *half, const uint32_t *lengths,
                      uint32_t texts, uint32_t n)
{
    struct err e = ERR_INIT;
    struct span spans[8] = {0};
    uint32_t rows = 0;
    for (uint32_t i = 0; i < texts; rows += lengths[i++])
        spans[i] = (struct span){.first = rows, .n = lengths[i], .kv_len = lengths[i]};
    const struct ragged b = {.n_tokens = rows, .n_spans = texts, .spans = spans};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->fourier(d, y, half, n);
    assert_int_equal(ops->step_end(d, &e), 0);
}

/* One number of the real part of the transform over both: of x [rows][n]. */
static double exact(const float *x, uint32_t rows, uint32_t n, uint32_t t, uint32_t k)
{
    double sum = 0;
    for (uint32_t s = 0; s < rows; s++)
        for (uint32_t j = 0; j < n; j++)
            sum +=
                x[(size_t)s * n + j] *
                cos(2 * PI *
                    ((double)((uint64_t)s * t % rows) / rows + (double)((uint64_t)j * k % n) / n));
    return sum;
}

TEST(agrees_with_double_precision)
{
    static const uint32_t sizes[][2] = {{1, 8}, {2, 2}, {3, 7}, {13, 34}, {110, 36}, {2100, 3}};
    struct device *d = device(2, ~0ull);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const uint32_t rows = sizes[i][0], n = sizes[i][1];
        float *x = rng_floats(&rng, (size_t)rows * n), *half = halves(x, rows, n);
        float *y = malloc(sizeof(float) * rows * n);
        assert_non_null(y);
        double squares = 0; /* numbers of the transform have about their root */
        for (uint32_t k = 0; k < rows * n; k++)
            squares += (double)x[k] * x[k];
        transform(d, y, half, &rows, 1, n);
        for (uint32_t t = 0; t < rows; t += rows / 50 + 1)
            for (uint32_t k = 0; k < n; k++) {
                const double off = fabs(y[(size_t)t * n + k] - exact(x, rows, n, t, k));
                if (off > 1e-7 * sqrt(rows * squares))
                    fail_msg("%u x %u: number %u of token %u is off by %g", rows, n, k, t, off);
            }
        free(x), free(half), free(y);
    }
    ops->close(d);
}

TEST(texts_and_threads_do_not_matter)
{
    enum { N = 38, ROWS = 1 + 150 + 7 + 31 };
    static const uint32_t lengths[] = {1, 150, 7, 31};
    static const uint64_t features[] = {0, 1, ~0ull};
    float *x = rng_floats(&rng, (size_t)ROWS * N), *half = halves(x, ROWS, N);
    float *want = malloc(sizeof(float) * ROWS * N), *got = malloc(sizeof(float) * ROWS * N);
    assert_true(want && got);
    struct device *d = device(1, 0);
    for (uint32_t i = 0, at = 0; i < 4; at += lengths[i++])
        transform(d, want + (size_t)at * N, half + (size_t)at * 2 * (N / 2 + 1), &lengths[i], 1, N);
    ops->close(d);
    for (size_t f = 0; f < sizeof(features) / sizeof(*features); f++)
        for (int threads = 1; threads <= 3; threads++) {
            d = device(threads, features[f]);
            memset(got, 0, sizeof(float) * ROWS * N);
            transform(d, got, half, lengths, 4, N);
            assert_memory_equal(got, want, sizeof(float) * ROWS * N);
            ops->close(d);
        }
    free(x), free(half), free(want), free(got);
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}
