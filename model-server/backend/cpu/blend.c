/* blend.c - rows of earlier layers that a token reads together (struct blend), and heads whose
 * length is limited. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { GRAIN_ELEMENTS = 16384 }; /* as in rows.c */

static size_t row_grain(uint32_t n) { return n >= GRAIN_ELEMENTS ? 1 : GRAIN_ELEMENTS / (n + 1); }

struct blend_job {
    const struct device *d;
    float *x;
    uint32_t n;
    const struct blend *p;
};

/* A row's mean and its score need one pass each; the largest score is subtracted from all. */
static void read_row(const struct blend_job *j, float *x, const float *rows)
{
    const struct blend *p = j->p;
    const uint32_t n = j->n;
    float by[BLEND_MOST], score[BLEND_MOST], most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < p->at; i++) {
        const float *row = rows + (size_t)i * n;
        by[i] = 1.0f / sqrtf(j->d->kern.dot(row, row, n) / (float)n + p->eps);
        score[i] = j->d->kern.dot(row, p->query, n) * by[i] / sqrtf((float)n);
        most = score[i] > most ? score[i] : most;
    }
    for (uint32_t i = 0; i < p->at; i++)
        sum += score[i] = math_exp(score[i] - most);
    memset(x, 0, n * sizeof(*x));
    for (uint32_t i = 0; i < p->at; i++)
        j->d->kern.axpy(x, rows + (size_t)i * n, score[i] / sum * (p->raw ? 1.0f : by[i]), n);
}

static void blend_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct blend_job *j = arg;
    const struct blend *p = j->p;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *x = j->x + t * j->n, *rows = p->rows + t * p->slots * j->n;
        if (p->kind == BLEND_READ)
            read_row(j, x, rows);
        else if (p->kind == BLEND_SET)
            memcpy(rows + (size_t)p->at * j->n, x, j->n * sizeof(*x));
        else
            j->d->kern.axpy(rows + (size_t)p->at * j->n, x, 1.0f, j->n);
    }
}

void cpu_blend(struct device *d, float *x, uint32_t rows, uint32_t n, const struct blend *p)
{
    struct blend_job j = {d, x, n, p};
    assert(p->slots <= BLEND_MOST && p->at < p->slots + (p->kind == BLEND_READ));
    pool_run(d->pool, blend_rows, &j, rows, row_grain(n * p->slots));
}

/* ---------------------------------------------------------------- lengths */

struct shorten_job {
    const struct device *d;
    float *x;
    size_t stride;
    uint32_t heads, n;
    const float *by;
    float most;
};

static void shorten_heads(void *arg, int thread, size_t begin, size_t end)
{
    static const float least = 1e-6f;
    const struct shorten_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const uint32_t head = (uint32_t)(i % j->heads);
        float *x = j->x + i / j->heads * j->stride + (size_t)head * j->n;
        const float *by = j->by ? j->by + (size_t)head * j->n : NULL;
        for (uint32_t k = 0; by && k < j->n; k++)
            x[k] *= by[k];
        const float share = j->most / (sqrtf(j->d->kern.dot(x, x, j->n)) + least);
        for (uint32_t k = 0; share < 1.0f && k < j->n; k++)
            x[k] *= share;
    }
}

void cpu_shorten(struct device *d, float *x, uint32_t stride, uint32_t rows, uint32_t heads,
                 uint32_t n, const float *by, float most)
{
    struct shorten_job j = {d, x, stride, heads, n, by, most};
    pool_run(d->pool, shorten_heads, &j, (size_t)rows * heads, row_grain(n));
}
