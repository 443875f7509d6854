/* mix.c - mixed residual streams (hyper-connections): factors of a token's streams, their weighted
 * sum, and the addition of a sublayer's result. Vectors are added by the kernels of the instruction
 * set, so that all of them give the same bits; the few factors of a token are plain arithmetic. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { GRAIN_ELEMENTS = 16384 }; /* as in rows.c */

struct mix_job {
    const struct device *d;
    float *x;
    uint32_t n;
    const struct mix *p;
};

static float *stream_at(const struct mix_job *j, size_t t, uint32_t stream)
{
    return j->p->streams + (t * j->p->n + stream) * j->n;
}

static float *factors_at(const struct mix_job *j, size_t t)
{
    return j->p->factors + t * mix_factors(j->p);
}

/* ---------------------------------------------------------------- factors */

/* The n lines of a matrix, `line` apart, whose numbers are `step` apart: each is divided by its sum
 * plus `floor`. */
static void divide(float *m, size_t n, size_t line, size_t step, float floor)
{
    for (size_t i = 0; i < n; i++, m += line) {
        float sum = 0;
        for (size_t k = 0; k < n; k++)
            sum += m[k * step];
        for (size_t k = 0; k < n; k++)
            m[k * step] /= sum + floor;
    }
}

static void softmax(float *row, uint32_t n, float floor)
{
    float most = row[0], sum = 0;
    for (uint32_t c = 1; c < n; c++)
        most = row[c] > most ? row[c] : most;
    for (uint32_t c = 0; c < n; c++)
        sum += row[c] = math_exp(row[c] - most);
    for (uint32_t c = 0; c < n; c++)
        row[c] = row[c] / sum + floor;
}

/* From products to the factors of the streams in each other. */
static void balance(const struct mix *p, float *m)
{
    const uint32_t n = p->n;
    for (uint32_t r = 0; r < n; r++)
        softmax(m + (size_t)r * n, n, p->floor);
    divide(m, n, 1, n, p->floor); /* columns */
    for (uint32_t i = 1; i < p->rounds; i++) {
        divide(m, n, n, 1, p->floor); /* rows */
        divide(m, n, 1, n, p->floor);
    }
}

/* `sum`: the factors of the sum; the others replace their products. */
static void make_factors(const struct mix_job *j, size_t t, float sum[MIX_MOST])
{
    const struct mix *p = j->p;
    const uint32_t n = p->n, count = mix_factors(p), all = n * j->n;
    const float *streams = stream_at(j, t, 0);
    const float squares = j->d->kern.dot(streams, streams, all);
    const float r = 1.0f / sqrtf(squares / (float)all + p->eps);
    float *f = factors_at(j, t);
    for (uint32_t i = 0; i < count; i++) {
        const float g = f[i] * r * p->scale[i < n ? 0 : i < 2 * n ? 1 : 2] + p->base[i];
        if (i < n)
            sum[i] = math_sigmoid(g) + p->floor;
        else
            f[i] = i < 2 * n ? p->magnitude * math_sigmoid(g) + p->result_floor : g;
    }
    if (!p->last && p->rounds)
        balance(p, f + 2 * (size_t)n);
}

/* ---------------------------------------------------------------- rows */

static void weighted_sum(const struct mix_job *j, size_t t, const float *by)
{
    float *x = j->x + t * j->n;
    memset(x, 0, j->n * sizeof(*x));
    for (uint32_t s = 0; s < j->p->n; s++)
        j->d->kern.axpy(x, stream_at(j, t, s), by[s], j->n);
}

/* Each stream becomes a sum of all as they were, in pieces that stay in the nearest cache. */
static void exchange(const struct mix_job *j, size_t t, const float *m)
{
    enum { PIECE = 512 };
    const uint32_t n = j->p->n;
    float was[MIX_MOST][PIECE];
    for (uint32_t first = 0; first < j->n; first += PIECE) {
        const uint32_t k = j->n - first < PIECE ? j->n - first : PIECE;
        for (uint32_t s = 0; s < n; s++)
            memcpy(was[s], stream_at(j, t, s) + first, k * sizeof(float));
        for (uint32_t s = 0; s < n; s++) {
            float *y = stream_at(j, t, s) + first;
            memset(y, 0, k * sizeof(*y));
            for (uint32_t from = 0; from < n; from++)
                j->d->kern.axpy(y, was[from], m[from * n + s], k);
        }
    }
}

static void add_row(const struct mix_job *j, size_t t, const float *by)
{
    for (uint32_t s = 0; s < j->p->n; s++)
        j->d->kern.axpy(stream_at(j, t, s), j->x + t * j->n, by[s], j->n);
}

static void write_row(const struct mix_job *j, size_t t)
{
    const uint32_t n = j->p->n;
    const float *f = factors_at(j, t);
    if (j->p->rounds)
        exchange(j, t, f + 2 * (size_t)n);
    add_row(j, t, f + n);
}

static void mix_row(const struct mix_job *j, size_t t)
{
    const uint32_t n = j->p->n;
    float by[MIX_MOST] = {0};
    switch (j->p->kind) {
    case MIX_SPREAD:
        for (uint32_t s = 0; s < n; s++)
            memcpy(stream_at(j, t, s), j->x + t * j->n, j->n * sizeof(float));
        return;
    case MIX_READ:
        make_factors(j, t, by);
        weighted_sum(j, t, by);
        return;
    case MIX_WRITE:
        write_row(j, t);
        return;
    case MIX_ADD:
        add_row(j, t, factors_at(j, t));
        return;
    case MIX_MEAN:
        for (uint32_t s = 0; s < n; s++)
            by[s] = 1.0f / (float)n;
        weighted_sum(j, t, by);
        return;
    }
}

static void mix_rows(void *arg, int thread, size_t begin, size_t end)
{
    (void)thread;
    for (size_t t = begin; t < end; t++)
        mix_row(arg, t);
}

void cpu_mix(struct device *d, float *x, uint32_t rows, uint32_t n, const struct mix *p)
{
    struct mix_job j = {d, x, n, p};
    const size_t each = (size_t)n * p->n;
    assert(p->n && p->n <= MIX_MOST);
    pool_run(d->pool, mix_rows, &j, rows, each >= GRAIN_ELEMENTS ? 1 : GRAIN_ELEMENTS / (each + 1));
}
