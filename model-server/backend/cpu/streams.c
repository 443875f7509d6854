/* streams.c - parallel residual streams (AltUp, arXiv 2301.13310) and what comes with them in Gemma
 * 3n: rows of equal magnitude, activations cut off by their mean and deviation; and rows of
 * probabilities. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { GRAIN_ELEMENTS = 16384 }; /* as in rows.c */

static size_t row_grain(uint32_t n) { return n >= GRAIN_ELEMENTS ? 1 : GRAIN_ELEMENTS / (n + 1); }

/* ---------------------------------------------------------------- streams */

struct altup_job {
    const struct device *d;
    float *x;
    size_t rows;
    uint32_t n;
    const struct altup *p;
};

static float *stream_row(const struct altup_job *j, uint32_t stream, size_t t)
{
    return j->p->streams + (stream * j->rows + t) * j->n;
}

/* Each element of the streams depends only on the same element of each. */
static void predict_row(const struct altup_job *j, size_t t)
{
    const uint32_t k = j->p->n;
    const float *coefs = j->p->coefs + t * k * k;
    float *at[ALTUP_MOST], was[ALTUP_MOST];
    for (uint32_t s = 0; s < k; s++)
        at[s] = stream_row(j, s, t);
    for (uint32_t i = 0; i < j->n; i++) {
        for (uint32_t s = 0; s < k; s++)
            was[s] = at[s][i];
        for (uint32_t s = 0; s < k; s++) {
            float sum = 0;
            for (uint32_t from = 0; from < k; from++)
                sum = fmaf(coefs[s * k + from], was[from], sum);
            at[s][i] = was[s] + sum;
        }
    }
    memcpy(j->x + t * j->n, at[j->p->active], j->n * sizeof(float));
}

static void correct_row(const struct altup_job *j, size_t t)
{
    const uint32_t k = j->p->n;
    const float *coefs = j->p->coefs + t * k;
    float *x = j->x + t * j->n, *active = stream_row(j, j->p->active, t);
    for (uint32_t i = 0; i < j->n; i++)
        x[i] -= active[i];
    for (uint32_t s = 0; s < k; s++)
        j->d->kern.axpy(stream_row(j, s, t), x, 1.0f + coefs[s], j->n);
    memcpy(x, active, j->n * sizeof(float));
}

static void altup_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct altup_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        if (j->p->kind == ALTUP_PREDICT)
            predict_row(j, t);
        else if (j->p->kind == ALTUP_CORRECT)
            correct_row(j, t);
        else
            for (uint32_t s = 1; s < j->p->n; s++)
                j->d->kern.axpy(stream_row(j, s, t), j->x + t * j->n, 1.0f, j->n);
    }
}

void cpu_altup(struct device *d, float *x, uint32_t rows, uint32_t n, const struct altup *p)
{
    struct altup_job j = {d, x, rows, n, p};
    assert(p->n <= ALTUP_MOST && p->active < p->n);
    pool_run(d->pool, altup_rows, &j, rows, row_grain(n * p->n));
}

/* ---------------------------------------------------------------- magnitudes */

struct match_job {
    const struct device *d;
    float *y;
    const float *x, *like;
    uint32_t n;
    bool add;
};

static const float LEAST_SQUARE = 1e-5f;

static void match_some_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct match_job *j = arg;
    const size_t n = j->n;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + t * n, *like = j->like + t * n;
        const float own = j->d->kern.dot(x, x, j->n) / (float)n;
        const float other = j->d->kern.dot(like, like, j->n) / (float)n;
        const float by = sqrtf(other) / sqrtf(own > LEAST_SQUARE ? own : LEAST_SQUARE);
        float *y = j->y + t * n;
        for (size_t i = 0; i < n; i++)
            y[i] = (j->add ? y[i] : 0.0f) + x[i] * by;
    }
}

void cpu_match_rows(struct device *d, float *y, const float *x, const float *like, uint32_t rows,
                    uint32_t n, bool add)
{
    struct match_job j = {d, y, x, like, n, add};
    pool_run(d->pool, match_some_rows, &j, rows, row_grain(n));
}

/* ---------------------------------------------------------------- likeness */

struct dots_job {
    const struct device *d;
    float *y;
    const float *a, *b;
    uint32_t n;
    float scale;
};

static void dot_rows(void *arg, int thread, size_t begin, size_t end)
{
    static const float least = 1e-6f;
    const struct dots_job *j = arg;
    const size_t n = j->n;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float x = j->d->kern.dot(j->a + t * n, j->b + t * n, j->n) * j->scale;
        const float size = fabsf(x) > least ? fabsf(x) : least;
        j->y[t] = x == 0 ? 0 : copysignf(sqrtf(size), x);
    }
}

void cpu_root_dots(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                   uint32_t n, float scale)
{
    struct dots_job j = {d, y, a, b, n, scale};
    pool_run(d->pool, dot_rows, &j, rows, row_grain(n));
}

/* ---------------------------------------------------------------- side by side */

struct beside_job {
    float *y;
    const float *a, *b;
    uint32_t n;
};

static void beside_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct beside_job *j = arg;
    const size_t n = j->n, wide = j->b ? 2 * n : n;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        memcpy(j->y + t * wide, j->a + t * n, n * sizeof(float));
        if (j->b)
            memcpy(j->y + t * wide + n, j->b + t * n, n * sizeof(float));
    }
}

void cpu_beside(struct device *d, float *y, const float *a, const float *b, uint32_t rows,
                uint32_t n)
{
    struct beside_job j = {y, a, b, n};
    pool_run(d->pool, beside_rows, &j, rows, row_grain(n));
}

/* ---------------------------------------------------------------- probabilities */

enum { SOFTMAX_AT_ONCE = 16 }; /* of kern.row_max and kern.exp_sum */

struct softmax_job {
    const struct device *d;
    float *x;
    uint32_t n;
};

static void softmax_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct softmax_job *j = arg;
    const uint32_t even = j->n - j->n % SOFTMAX_AT_ONCE;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *x = j->x + t * j->n, most = even ? j->d->kern.row_max(x, even) : x[0];
        for (uint32_t i = even; i < j->n; i++)
            most = x[i] > most ? x[i] : most;
        float sum = even ? j->d->kern.exp_sum(x, even, most) : 0;
        for (uint32_t i = even; i < j->n; i++)
            sum += x[i] = math_exp_neg(x[i] - most);
        for (uint32_t i = 0; i < j->n; i++)
            x[i] /= sum;
    }
}

void cpu_softmax(struct device *d, float *x, uint32_t rows, uint32_t n)
{
    struct softmax_job j = {d, x, n};
    pool_run(d->pool, softmax_rows, &j, rows, row_grain(n));
}

/* ---------------------------------------------------------------- cut off by moments */

struct moments_job {
    float *y;
    const float *x;
    uint32_t stride, n;
};

/* In double: the variance is a difference of these sums. */
static void moments_rows(void *arg, int thread, size_t begin, size_t end)
{
    enum { SUMS = 4 };
    const struct moments_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + t * j->stride;
        float *y = j->y + t * SQUARES;
        double sum[SUMS] = {0}, squares[SUMS] = {0};
        for (uint32_t i = 0; i < j->n; i++) {
            const double v = x[i];
            sum[i % SUMS] += v;
            squares[i % SUMS] += v * v;
        }
        y[0] = (float)(sum[0] + sum[1] + sum[2] + sum[3]);
        y[1] = (float)(squares[0] + squares[1] + squares[2] + squares[3]);
        y[2] = y[3] = 0;
    }
}

void cpu_row_moments(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                     uint32_t n)
{
    struct moments_job j = {y, x, stride, n};
    pool_run(d->pool, moments_rows, &j, rows, row_grain(n));
}

struct sparsify_job {
    float *x;
    uint32_t stride, n;
    const struct sparsify *p;
};

static void sparsify_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct sparsify_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *m = j->p->moments + t * SQUARES;
        const double of = j->p->of, mean = m[0] / of, variance = m[1] / of - mean * mean;
        const float least =
            (float)(mean + (double)j->p->deviations * sqrt(variance > 0 ? variance : 0));
        float *x = j->x + t * j->stride;
        for (uint32_t i = 0; i < j->n; i++) { /* NaN stays */
            const float above = x[i] - least;
            x[i] = above < 0 ? 0 : above;
        }
    }
}

void cpu_sparsify(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t n,
                  const struct sparsify *p)
{
    struct sparsify_job j = {x, stride, n, p};
    pool_run(d->pool, sparsify_rows, &j, rows, row_grain(n));
}
