/* pooled.c - keys of pools of tokens, which sparse attention selects by: see struct pool_keys.
 *
 * The softmax over a pool's tokens is computed as they come, token by token: the largest logit so
 * far, the sum of weights and the weighted sum. So a result depends on the tokens, not on where a
 * prompt was cut. Threads divide sequences and numbers of a key. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/mathf.h"
#include <string.h>

enum { NUMBERS_AT_ONCE = 64 };

struct pooled_job {
    const struct device *d;
    float *k;
    const struct state_ref *s;
    const struct pool_keys *p;
    uint32_t parts; /* of a key */
};

/* One number of the pool that is open. */
struct open_pool {
    float most, weights, sum;
};

static void add_token(struct open_pool *o, float logit, float key, bool first)
{
    const float most = first || logit > o->most ? logit : o->most;
    const float was = first ? 0.0f : math_exp(o->most - most), by = math_exp(logit - most);
    o->weights = fmaf(o->weights, was, by);
    o->sum = fmaf(o->sum, was, by * key);
    o->most = most;
}

/* Numbers [c, c + n) of the keys of a span. */
static void pool_span(const struct pooled_job *j, const struct span *s, uint32_t c, uint32_t n)
{
    const struct pool_keys *p = j->p;
    const uint32_t before = s->kv_len - s->n;
    float *in = j->s->base + s->state_in * j->s->stride + c;
    float *out = j->s->base + s->state_out * j->s->stride + c;
    struct open_pool open[NUMBERS_AT_ONCE] = {0};
    for (uint32_t i = 0; before % p->size && i < n; i++)
        open[i] = (struct open_pool){in[i], in[p->dim + i], in[2 * (size_t)p->dim + i]};
    for (uint32_t t = 0; t < s->n; t++) {
        const uint32_t at = (before + t) % p->size;
        float *k = j->k + (size_t)(s->first + t) * p->dim + c;
        const float *gate = p->gates + (size_t)(s->first + t) * p->dim + c;
        const float *bias = p->bias + (size_t)at * p->dim + c;
        for (uint32_t i = 0; i < n; i++) {
            add_token(&open[i], gate[i] + bias[i], k[i], at == 0);
            k[i] = at + 1 == p->size ? open[i].sum / open[i].weights : 0.0f;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = open[i].most;
        out[p->dim + i] = open[i].weights;
        out[2 * (size_t)p->dim + i] = open[i].sum;
    }
}

static void pool_parts(void *arg, int thread, size_t begin, size_t end)
{
    const struct pooled_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const uint32_t c = (uint32_t)(i % j->parts) * NUMBERS_AT_ONCE, left = j->p->dim - c;
        pool_span(j, &j->d->batch->spans[i / j->parts], c,
                  left < NUMBERS_AT_ONCE ? left : NUMBERS_AT_ONCE);
    }
}

void cpu_pool_keys(struct device *d, float *k, const struct state_ref *s, const struct pool_keys *p)
{
    struct pooled_job j = {d, k, s, p, (p->dim + NUMBERS_AT_ONCE - 1) / NUMBERS_AT_ONCE};
    pool_run(d->pool, pool_parts, &j, (size_t)d->batch->n_spans * j.parts, 1);
}
