/* gated.c - a real-gated linear recurrence (RG-LRU of Griffin, arXiv 2402.19427): a short
 * convolution over channels, a recurrence whose gates each head computes from its own channels, and
 * a gate of another product of the input. */
#include "model-server/backend/numbers.h"
#include "model-server/model/mixer/recurrent.h"
#include <math.h>
#include <stdlib.h>

static const float POWER = 8; /* of the recurrence's gate */

struct gated {
    struct weight *in; /* [channels, gates of the channels; hidden] */
    float *in_bias;
    struct short_conv conv;
    struct weight **step, **beta; /* [heads] of [value_dim; value_dim] */
    uint32_t heads;
    float *step_bias, *beta_bias, *rates; /* [channels] */
    struct out_projection out;
    uint64_t state; /* in a cell */
};

static struct slice channels_of(const struct decoder *d)
{
    return scaled(d->split.mix_heads, d->spec.recur.value_dim, 0);
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    /* channels and gates, the convolution's result, the recurrence's gates, its result */
    return (void)layer, 6 * channels_of(d).n;
}

/* ---------------------------------------------------------------- load */

static struct rows in_rows(struct loader *l, int layer, bool bias, uint32_t inner, struct slice c)
{
    const uint32_t hidden = l->d->spec.hidden;
    struct rows rows = {0};
    rows_add(l, &rows, 0, loader_part(l, W_MIX_IN, layer, NO_EXPERT, bias, inner, hidden), c);
    rows_add(l, &rows, 1, loader_part(l, W_MIX_Z, layer, NO_EXPERT, bias, inner, hidden), c);
    return rows;
}

/* The matrices [heads][inputs][outputs] of a gate, on which the whole state depends: not
 * quantised. */
static struct weight **load_heads(struct loader *l, enum role role, int layer)
{
    const uint32_t dim = l->d->spec.recur.value_dim;
    const struct slice h = l->d->split.mix_heads;
    struct weight **w = calloc(h.n, sizeof(struct weight *));
    if (!w) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; i < h.n && !l->failed; i++) {
        struct mat_part p =
            loader_table(l, role, layer, "", (int64_t)l->d->spec.recur.heads * dim, dim);
        p = loader_turned(loader_rows(p, (h.first + i) * dim, dim));
        w[i] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    return w;
}

/* A vector of all channels. */
static float *load_channels(struct loader *l, enum role role, int layer, struct slice c)
{
    const struct recur_spec *r = &l->d->spec.recur;
    struct mat_part p = loader_table(l, role, layer, "", (int64_t)r->heads * r->value_dim, 1);
    p = loader_rows(p, c.first, c.n);
    return loader_vector(l, &p, 1, 0);
}

/* -8 softplus(W_MIX_RATE) */
static float *load_rates(struct loader *l, int layer, struct slice c)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct mat_part p =
        loader_table(l, W_MIX_RATE, layer, "", (int64_t)r->heads * r->value_dim, 1);
    float *host = malloc(c.n * sizeof(*host)), *v;
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; i < c.n; i++) {
        const float x = p.data ? number_at(p.data, p.dtype, c.first + i) : 0;
        host[i] = -POWER * (fmaxf(x, 0) + log1pf(expf(-fabsf(x))));
    }
    loader_drop(l);
    v = loader_host_vector(l, host, c.n);
    free(host);
    return v;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice c = channels_of(l->d);
    const uint32_t inner = r->heads * r->value_dim;
    const int layer = (int)at;
    struct gated *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->heads = l->d->split.mix_heads.n;
    struct rows in = in_rows(l, layer, false, inner, c);
    y->in = rows_pack(l, &in, l->d->dtype, l->d->quant);
    in = in_rows(l, layer, true, inner, c);
    y->in_bias = rows_vector(l, &in);
    short_conv_load(l, &y->conv, layer, inner, &c, 1);
    y->step = load_heads(l, W_MIX_DECAY, layer);
    y->beta = load_heads(l, W_MIX_BETA, layer);
    y->step_bias = load_channels(l, W_MIX_DT, layer, c);
    y->beta_bias = load_channels(l, W_MIX_BETA_BIAS, layer, c);
    y->rates = load_rates(l, layer, c);
    out_projection_load(l, &y->out, layer, inner, c);
    const struct recur size = {
        .kind = RECUR_GATED, .heads = y->heads, .key_dim = 1, .value_dim = r->value_dim};
    y->state = layer_take_state(l->d, l->d->ops->recur_floats(&size));
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct gated *y = self;
    float *vectors[] = {y->in_bias, y->step_bias, y->beta_bias, y->rates};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    for (uint32_t i = 0; i < y->heads; i++) {
        layer_free_weight(d, y->step ? y->step[i] : NULL);
        layer_free_weight(d, y->beta ? y->beta[i] : NULL);
    }
    free(y->step), free(y->beta);
    layer_free_weight(d, y->in);
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct gated *y = self;
    const struct recur_spec *r = &d->spec.recur;
    const uint32_t n = channels_of(d).n, t = s->tokens;
    float *in = work_take(&s->work, t, 2 * (size_t)n), *x = work_take(&s->work, t, n);
    float *step = work_take(&s->work, t, n), *beta = work_take(&s->work, t, n);
    float *o = work_take(&s->work, t, n);
    const struct projection before = {y->in, y->in_bias, LORA_MIX_IN, 2 * n};
    const struct state_ref state = layer_state(d, y->state);
    (void)e;
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    short_conv_run(d, &y->conv, x, in, 2 * n);
    d->ops->linear_heads(d->dev, step, x, t, y->step, y->heads);
    d->ops->linear_heads(d->dev, beta, x, t, y->beta, y->heads);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_GATED,
                                  .heads = y->heads,
                                  .key_heads = 1,
                                  .key_dim = 1,
                                  .value_dim = r->value_dim,
                                  .x = x,
                                  .x_stride = n,
                                  .step = step,
                                  .step_stride = n,
                                  .beta = beta,
                                  .beta_stride = n,
                                  .dt_bias = y->step_bias,
                                  .beta_bias = y->beta_bias,
                                  .rates = y->rates});
    d->ops->gate_norm(d->dev, o, n, t, n,
                      &(struct gate_norm){.kind = GATE_GELU_TANH, .gate = in + n, .stride = 2 * n});
    out_projection_run(d, &y->out, s, o, n);
    return 0;
}

const struct sublayer_ops mixer_gated = {"gated recurrence", width, load, release, forward};
