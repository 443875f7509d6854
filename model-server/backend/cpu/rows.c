/* rows.c - row-wise operations: embedding, norms, activations, gathering. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <math.h>
#include <string.h>

/* Elements that pay for a thread: with fewer the synchronisation costs more than the work. */
enum { GRAIN_ELEMENTS = 16384 };

static size_t row_grain(uint32_t n) { return n >= GRAIN_ELEMENTS ? 1 : GRAIN_ELEMENTS / n; }

struct row_job {
    const struct device *d;
    float *y;
    const float *x;
    uint32_t n;
    float scale, cap;
    const struct weight *w;
    uint32_t first_row;
    const struct norm *norm;
    float *sum;
    enum act act;
    bool add;
};

static void run_rows(struct device *d, range_fn *fn, struct row_job *job, uint32_t rows)
{
    job->d = d;
    if (job->n)
        pool_run(d->pool, fn, job, rows, row_grain(job->n));
}

/* ---------------------------------------------------------------- embedding */

static void embed_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *y = j->y + t * j->n;
        uint32_t row = j->d->batch->ids[t] - j->first_row; /* wraps below: not in the slice */
        if (row >= j->w->rows) {
            memset(y, 0, j->n * sizeof(*y));
            continue;
        }
        j->w->kind->row(y, j->w, row, 0, j->n);
        if (j->scale != 1.0f)
            j->d->kern.soft_cap(y, j->n, j->scale, 0.0f);
    }
}

void cpu_embed(struct device *d, float *y, const struct weight *w, uint32_t first_row, float scale)
{
    struct row_job j = {.y = y, .n = w->cols, .w = w, .first_row = first_row, .scale = scale};
    run_rows(d, embed_rows, &j, d->batch->n_tokens);
}

/* Rows of x are in the order of the tokens that have one. */
static void give_range(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    const float *const *given = j->d->batch->given, *x = j->x;
    (void)thread;
    for (size_t t = 0; t < begin; t++)
        x += given[t] ? j->n : 0;
    for (size_t t = begin; t < end; t++) {
        if (!given[t])
            continue;
        if (j->add)
            j->d->kern.axpy(j->y + t * j->n, x, 1.0f, j->n);
        else
            memcpy(j->y + t * j->n, x, j->n * sizeof(*x));
        x += j->n;
    }
}

void cpu_give_rows(struct device *d, float *y, const float *x, uint32_t n, bool add)
{
    struct row_job j = {.y = y, .x = x, .n = n, .add = add};
    if (d->batch->given)
        run_rows(d, give_range, &j, d->batch->n_tokens);
}

static void embed_pos_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    float *row = (float *)cpu_thread_scratch((struct device *)j->d, thread);
    for (size_t t = begin; t < end; t++) {
        uint32_t at = j->d->batch->pos[t] + j->first_row;
        for (uint32_t k = 0; at < j->w->rows && k < j->n; k += THREAD_SCRATCH / sizeof(float)) {
            uint32_t left = j->n - k, cap = THREAD_SCRATCH / sizeof(float);
            uint32_t n = left < cap ? left : cap;
            j->w->kind->row(row, j->w, at, k, n);
            j->d->kern.axpy(j->y + t * j->n + k, row, 1.0f, n);
        }
    }
}

void cpu_embed_pos(struct device *d, float *y, const struct weight *w, uint32_t offset)
{
    struct row_job j = {.y = y, .n = w->cols, .w = w, .first_row = offset};
    run_rows(d, embed_pos_rows, &j, d->batch->n_tokens);
}

/* ---------------------------------------------------------------- norms */

static void norm_row(const struct row_job *j, float *y, const float *x)
{
    const struct norm *p = j->norm;
    if (p->kind == NORM_RMS)
        j->d->kern.norm_rms(y, x, p->w, p->b, j->n, p->eps);
    else
        j->d->kern.norm_layer(y, x, p->w, p->b, j->n, p->eps);
}

static void norm_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        norm_row(j, j->y + t * j->n, j->x + t * j->n);
}

void cpu_norm(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
              const struct norm *p)
{
    struct row_job j = {.y = y, .x = x, .n = n, .norm = p};
    run_rows(d, norm_rows, &j, rows);
}

static void add_norm_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *sum = j->sum + t * j->n;
        j->d->kern.axpy(sum, j->x + t * j->n, j->scale, j->n);
        if (j->norm)
            norm_row(j, j->y + t * j->n, sum);
    }
}

void cpu_add_norm(struct device *d, float *y, float *x, const float *r, float scale, uint32_t rows,
                  uint32_t n, const struct norm *p)
{
    struct row_job j = {.y = y, .sum = x, .x = r, .scale = scale, .n = n, .norm = p};
    run_rows(d, add_norm_rows, &j, rows);
}

/* ---------------------------------------------------------------- activations, the rest */

static void act_mul_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + 2 * t * j->n;
        j->d->kern.act(j->y + t * j->n, x, x + j->n, j->n, j->act);
    }
}

void cpu_act_mul(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                 enum act kind)
{
    struct row_job j = {.y = y, .x = x, .n = n, .act = kind};
    run_rows(d, act_mul_rows, &j, rows);
}

static void act_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        j->d->kern.act(j->y + t * j->n, j->y + t * j->n, NULL, j->n, j->act);
}

static void act_by_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *y = j->y + t * j->n;
        j->d->kern.act(y, y, j->x + t * j->n, j->n, j->act);
    }
}

void cpu_act_by(struct device *d, float *x, const float *m, uint32_t rows, uint32_t n,
                enum act kind)
{
    struct row_job j = {.y = x, .x = m, .n = n, .act = kind};
    run_rows(d, act_by_rows, &j, rows);
}

void cpu_act(struct device *d, float *x, uint32_t rows, uint32_t n, enum act kind)
{
    struct row_job j = {.y = x, .n = n, .act = kind};
    run_rows(d, act_rows, &j, rows);
}

struct xielu_job {
    const struct device *d;
    float *x;
    uint32_t n;
    float a, b;
};

enum { XIELU_AT_ONCE = 256 };
static const float XIELU_MOST = -1e-6f; /* of what the exponential is taken of */

static void xielu_some(const struct xielu_job *j, float *x, uint32_t n)
{
    float e[XIELU_AT_ONCE];
    for (uint32_t i = 0; i < XIELU_AT_ONCE; i++)
        e[i] = i < n && x[i] < XIELU_MOST ? x[i] : XIELU_MOST;
    j->d->kern.exp_sum(e, XIELU_AT_ONCE, 0.0f);
    for (uint32_t i = 0; i < n; i++) {
        const float v = x[i], above = j->a * v * v, below = j->b * (e[i] - 1.0f - v);
        x[i] = (v > 0 ? above : below) + 0.5f * v;
    }
}

static void xielu_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct xielu_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        for (uint32_t i = 0; i < j->n; i += XIELU_AT_ONCE)
            xielu_some(j, j->x + t * j->n + i, j->n - i < XIELU_AT_ONCE ? j->n - i : XIELU_AT_ONCE);
}

void cpu_xielu(struct device *d, float *x, uint32_t rows, uint32_t n, float a, float b)
{
    struct xielu_job j = {d, x, n, a, b};
    pool_run(d->pool, xielu_rows, &j, rows, 1);
}

struct squares_job {
    const struct device *d;
    float *y;
    const float *x;
    uint32_t stride, a, b;
};

static void squares_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct squares_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + t * j->stride, *second = x + j->a;
        float *y = j->y + t * SQUARES;
        y[0] = j->d->kern.dot(x, x, j->a);
        y[1] = j->d->kern.dot(second, second, j->b);
        y[2] = y[3] = 0;
    }
}

void cpu_row_squares(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                     uint32_t a, uint32_t b)
{
    struct squares_job j = {d, y, x, stride, a, b};
    pool_run(d->pool, squares_rows, &j, rows, row_grain(a + b));
}

static void gate_some_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        j->d->kern.soft_cap(j->y + t * j->n, j->n, math_sigmoid(j->x[t]), 0.0f);
}

static void softplus_some_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        j->d->kern.soft_cap(j->y + t * j->n, j->n, math_softplus(j->x[t]), 0.0f);
}

void cpu_gate_rows(struct device *d, float *x, uint32_t rows, uint32_t n, const float *gate,
                   bool softplus)
{
    struct row_job j = {.y = x, .x = gate, .n = n};
    run_rows(d, softplus ? softplus_some_rows : gate_some_rows, &j, rows);
}

struct scale_job {
    const struct device *d;
    float *x;
    const float *by, *slope, *offset;
    uint32_t heads, n;
};

static void scale_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct scale_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        for (uint32_t h = 0; h < j->heads; h++)
            j->d->kern.soft_cap(j->x + (t * j->heads + h) * j->n, j->n,
                                fmaf(j->slope[h], j->by[t], j->offset[h]), 0.0f);
}

void cpu_scale_heads(struct device *d, float *x, uint32_t rows, uint32_t heads, uint32_t n,
                     const float *by, const float *slope, const float *offset)
{
    struct scale_job j = {d, x, by, slope, offset, heads, n};
    pool_run(d->pool, scale_rows, &j, rows, row_grain(heads * n));
}

struct clip_job {
    float *y;
    const float *x, *low, *high;
    uint32_t n;
};

static void clip_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct clip_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *x = j->x + t * j->n;
        float *y = j->y + t * j->n;
        for (uint32_t i = 0; i < j->n; i++) /* NaN stays */
            y[i] = x[i] < j->low[i] ? j->low[i] : x[i] > j->high[i] ? j->high[i] : x[i];
    }
}

void cpu_clip(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
              const float *low, const float *high)
{
    struct clip_job j = {y, x, low, high, n};
    pool_run(d->pool, clip_rows, &j, rows, row_grain(n));
}

static void logit_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t t = begin; t < end; t++)
        j->d->kern.soft_cap(j->y + t * j->n, j->n, j->scale, j->cap);
}

void cpu_logit_scale(struct device *d, float *x, uint32_t rows, uint32_t n, float scale, float cap)
{
    struct row_job j = {.y = x, .n = n, .scale = scale, .cap = cap};
    run_rows(d, logit_rows, &j, rows);
}

static void gather_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct row_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        memcpy(j->y + i * j->n, j->x + (size_t)j->d->batch->out_rows[i] * j->n,
               j->n * sizeof(*j->y));
}

void cpu_gather_out(struct device *d, float *y, const float *x, uint32_t n)
{
    struct row_job j = {.y = y, .x = x, .n = n};
    run_rows(d, gather_rows, &j, d->batch->n_out);
}
