/* RWKV-7's recurrence (RECUR_RWKV) before and after the update of the state, which is state.c's. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <string.h>

static const float DECAY = 0x1.368b3p-1f; /* exp(-1 / 2) */
static const float LEAST_LENGTH = 1e-12f;

/* p->work of a head: decays, then `erase` and `put` of struct recur_step. */
static float *work_of(const struct recur *p, size_t row, uint32_t h)
{
    return p->work + (row * p->heads + h) * 3 * p->key_dim;
}

/* Decays, what is erased and put, and the key that is written. */
static void prepare_keys(const struct device *d, const struct recur *p, size_t row, uint32_t h)
{
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->key_dim, first = h * n;
    float *decay = work_of(p, row, h), *erase = decay + n, *put = erase + n;
    float *k = p->x + row * p->x_stride + p->k + first;
    const float *step = p->step + row * p->step_stride + first;
    const float *beta = p->beta + row * p->beta_stride + first;
    for (uint32_t i = 0; i < n; i++) {
        decay[i] = math_exp(-DECAY * math_sigmoid(step[i] + p->dt_bias[first + i]));
        erase[i] = k[i] * w->erase[first + i];
        put[i] = math_sigmoid(beta[i] + p->beta_bias[first + i]);
        k[i] *= fmaf(put[i] - 1, w->replace[first + i], 1);
    }
    const float length = sqrtf(d->kern.dot(erase, erase, n));
    d->kern.soft_cap(erase, n, 1 / fmaxf(length, LEAST_LENGTH), 0.0f);
    d->kern.gate(put, erase, n, false);
}

void cpu_rwkv_prepare(const struct device *d, const struct recur *p, size_t row)
{
    const struct rwkv *w = p->rwkv;
    const uint32_t n = p->heads * p->key_dim;
    float *v = p->x + row * p->x_stride + p->v;
    for (uint32_t h = 0; h < p->heads; h++)
        prepare_keys(d, p, row, h);
    for (uint32_t i = 0; w->first && i < n; i++)
        v[i] = fmaf(math_sigmoid(w->blend[row * n + i] + w->blend_bias[i]),
                    w->first[row * n + i] - v[i], v[i]);
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
