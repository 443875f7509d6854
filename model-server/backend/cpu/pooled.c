/* pooled.c - keys of pools of tokens, which sparse attention selects by: see struct pool_keys.
 *
 * The softmax over a pool's tokens is computed as they come, token by token: the largest logit so
 * far, the sum of weights and the weighted sum. So a result depends on the tokens, not on where a
 * prompt was cut. Threads divide sequences and numbers of a key. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/mathf.h"
#include <string.h>

enum { NUMBERS_AT_ONCE = 64 };

struct pooled_job {
    const struct device *d;
    float *k;
    const struct state_ref *s;
    const struct pool_keys *p;
    uint32_t parts; /* of a key */
};

/* One number of a pool that is open, of which no token is known if `any` is false. */
struct open_pool {
    float most, weights, sum;
    bool any;
};
/* Numbers of the pool at hand, and with two series of the next one. */
struct open_pools {
    struct open_pool now[NUMBERS_AT_ONCE], next[NUMBERS_AT_ONCE];
};

static void add_token(struct open_pool *o, float logit, float key)
{
    const float most = !o->any || logit > o->most ? logit : o->most;
    const float was = !o->any ? 0.0f : math_exp(o->most - most), by = math_exp(logit - most);
    o->weights = fmaf(o->weights, was, by);
    o->sum = fmaf(o->sum, was, by * key);
    o->most = most;
    o->any = true;
}

static float logit_of(const float *gate, const float *bias, size_t i)
{
    return (gate ? gate[i] : 0) + (bias ? bias[i] : 0);
}

/* Numbers from `c` on of the cell that a span reads; `before`: its tokens in earlier steps. */
static void load_pools(const struct pooled_job *j, const struct span *s, uint32_t c, uint32_t n,
                       struct open_pools *o)
{
    const struct pool_keys *p = j->p;
    const size_t dim = p->dim;
    const uint32_t before = s->kv_len - s->n;
    const float *in = j->s->base + s->state_in * j->s->stride + c;
    *o = (struct open_pools){0};
    for (uint32_t i = 0; before % p->size && i < n; i++)
        o->now[i] = (struct open_pool){in[i], in[dim + i], in[2 * dim + i], true};
    in += 3 * dim;
    for (uint32_t i = 0; before && p->series > 1 && i < n; i++)
        o->next[i] = (struct open_pool){in[i], in[dim + i], in[2 * dim + i], true};
}

static void store_pools(const struct pooled_job *j, const struct span *s, uint32_t c, uint32_t n,
                        const struct open_pools *o)
{
    const size_t dim = j->p->dim;
    float *out = j->s->base + s->state_out * j->s->stride + c;
    for (uint32_t part = 0; part < j->p->series; part++, out += 3 * dim)
        for (uint32_t i = 0; i < n; i++) {
            const struct open_pool *of = part ? &o->next[i] : &o->now[i];
            out[i] = of->most, out[dim + i] = of->weights, out[2 * dim + i] = of->sum;
        }
}

/* Numbers [c, c + n) of the keys of a span. */
static void pool_span(const struct pooled_job *j, const struct span *s, uint32_t c, uint32_t n)
{
    const struct pool_keys *p = j->p;
    const uint32_t before = s->kv_len - s->n;
    const size_t own = (size_t)(p->series - 1) * p->dim, wide = own + p->dim;
    struct open_pools o;
    load_pools(j, s, c, n, &o);
    for (uint32_t t = 0; t < s->n; t++) {
        const uint32_t at = (before + t) % p->size;
        const size_t row = (s->first + t) * wide + c;
        const float *x = p->x + row, *gate = p->gates ? p->gates + row : NULL;
        const float *bias = p->bias ? p->bias + at * wide + c : NULL;
        float *k = j->k + (size_t)(s->first + t) * p->dim + c;
        for (uint32_t i = 0; i < n; i++) {
            if (at == 0)
                o.now[i] = o.next[i], o.next[i] = (struct open_pool){0};
            add_token(&o.now[i], logit_of(gate, bias, own + i), x[own + i]);
            if (own)
                add_token(&o.next[i], logit_of(gate, bias, i), x[i]);
            k[i] = at + 1 == p->size ? o.now[i].sum / o.now[i].weights : 0.0f;
        }
    }
    store_pools(j, s, c, n, &o);
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
