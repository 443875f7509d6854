/* RWKV-7's recurrence (RECUR_RWKV) before and after the update of the state, which is state.c's. */
#include "model-server/backend/cpu/cpu.h"
#include <math.h>
#include <string.h>

enum { AT_ONCE = 256 };                   /* numbers on the stack; a multiple of LANES */
static const float DECAY = 0x1.368b3p-1f; /* exp(-1 / 2) */
static const float LEAST_LENGTH = 1e-12f;

/* p->work of a head: decays, then `erase` and `put` of struct recur_step. */
static float *work_of(const struct recur *p, size_t row, uint32_t h)
{
    return p->work + (row * p->heads + h) * 3 * p->key_dim;
}

/* y = sigmoid(x + bias) */
static void sigmoids(const struct device *d, float *y, const float *x, const float *bias,
                     uint32_t n)
{
    memcpy(y, x, n * sizeof(*y));
    d->kern.axpy(y, bias, 1, n);
    d->kern.act(y, y, NULL, n, ACT_SIGMOID);
}

/* x = exp(x) of numbers up to 0; the kernel takes whole vectors. */
static void exps(const struct device *d, float *x, uint32_t n)
{
    float some[AT_ONCE];
    for (uint32_t at = 0; at < n; at += AT_ONCE) {
        const uint32_t m = n - at < AT_ONCE ? n - at : AT_ONCE;
        memset(some, 0, sizeof(some));
        memcpy(some, x + at, m * sizeof(*x));
        d->kern.exp_sum(some, (m + LANES - 1) / LANES * LANES, 0);
        memcpy(x + at, some, m * sizeof(*x));
    }
}

/* Decays, what is erased and put, and the key that is written. */
static void prepare_keys(const struct device *d, const struct recur *p, size_t row, uint32_t h)
{
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->key_dim, first = h * n;
    float *decay = work_of(p, row, h), *erase = decay + n, *put = erase + n;
    float *k = p->x + row * p->x_stride + p->k + first;
    sigmoids(d, decay, p->step + row * p->step_stride + first, p->dt_bias + first, n);
    d->kern.soft_cap(decay, n, -DECAY, 0.0f);
    exps(d, decay, n);
    sigmoids(d, put, p->beta + row * p->beta_stride + first, p->beta_bias + first, n);
    memcpy(erase, k, n * sizeof(*k));
    d->kern.gate(erase, w->erase + first, n, false);
    for (uint32_t i = 0; i < n; i++)
        k[i] *= 1 + (put[i] - 1) * w->replace[first + i];
    const float length = sqrtf(d->kern.dot(erase, erase, n));
    d->kern.soft_cap(erase, n, 1 / fmaxf(length, LEAST_LENGTH), 0.0f);
    d->kern.gate(put, erase, n, false);
}

/* Values take some of the first layer's. */
static void blend_values(const struct device *d, const struct recur *p, size_t row)
{
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->heads * p->key_dim;
    const float *blend = w->blend + row * n, *first = w->first + row * n;
    float some[AT_ONCE], *v = p->x + row * p->x_stride + p->v;
    for (uint32_t at = 0; at < n; at += AT_ONCE) {
        const uint32_t m = n - at < AT_ONCE ? n - at : AT_ONCE;
        sigmoids(d, some, blend + at, w->blend_bias + at, m);
        for (uint32_t i = 0; i < m; i++)
            v[at + i] += some[i] * (first[at + i] - v[at + i]);
    }
}

void cpu_rwkv_prepare(const struct device *d, const struct recur *p, size_t row)
{
    for (uint32_t h = 0; h < p->heads; h++)
        prepare_keys(d, p, row, h);
    if (p->rwkv->first)
        blend_values(d, p, row);
}

struct finish_job {
    const struct device *d;
    const struct recur *p;
    float *o;
};

/* Norm, bonus and gate of a head's result. */
static void finish_head(const struct finish_job *j, size_t row, uint32_t h)
{
    const struct recur *p = j->p;
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->key_dim, first = h * n;
    const size_t at = row * p->heads * n + first;
    float *o = j->o + at, *r = work_of(p, row, h);
    const float *x = p->x + row * p->x_stride + first;
    memcpy(r, x + p->q, n * sizeof(*r));
    j->d->kern.gate(r, w->bonus + first, n, false);
    j->d->kern.norm_layer(o, o, w->norm + first, w->norm_bias + first, n, w->eps);
    j->d->kern.axpy(o, x + p->v, j->d->kern.dot(r, x + p->k, n), n);
    j->d->kern.gate(o, w->gate + at, n, false);
}

static void finish_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct finish_job *j = arg;
    (void)thread;
    for (size_t row = begin; row < end; row++)
        for (uint32_t h = 0; h < j->p->heads; h++)
            finish_head(j, row, h);
}

void cpu_rwkv_finish(struct device *d, float *o, const struct recur *p)
{
    struct finish_job j = {d, p, o};
    pool_run(d->pool, finish_rows, &j, d->batch->n_tokens, 1);
}
