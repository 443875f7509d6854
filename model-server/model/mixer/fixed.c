/* fixed.c - linear attention with a fixed decay for each head (lightning attention, arXiv
 * 2401.04658; MiniMax-01, arXiv 2501.08313): q, k and v pass SiLU, and a norm over all heads is
 * gated by another product of the input. */
#include "model-server/model/mixer/recurrent.h"
#include <math.h>
#include <stdlib.h>

static const float NORM_EPS = 1e-6F; /* whatever the file's is */

struct fixed {
    struct weight *in;   /* [q of the heads, k, v; hidden] */
    struct weight *gate; /* [heads * dim; hidden] */
    float *rate;         /* [heads] see struct recur */
    float *norm;         /* [heads * dim] */
    struct out_projection out;
    uint64_t state; /* in a cell */
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    /* q, k and v, the gate, the result, squares, decays */
    return (void)layer, 5 * recur_values(d) + SQUARES + 2 * d->split.mix_heads.n;
}

/* ---------------------------------------------------------------- load */

/* In the checkpoint q, k and v of a head are adjacent. */
static struct weight *load_in(struct loader *l, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads;
    const uint32_t dim = r->value_dim;
    const struct mat_part in = loader_part(l, W_MIX_IN, layer, NO_EXPERT, false,
                                           (int64_t)3 * r->heads * dim, l->d->spec.hidden);
    struct rows rows = {0};
    for (uint32_t part = 0; part < 3; part++)
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++)
            if (!rows_add(l, &rows, 0, in, (struct slice){(3 * h + part) * dim, dim}))
                break;
    return rows_pack(l, &rows, l->d->dtype, l->d->quant);
}

/* The decay of a head is exp(-rate): a geometric series over heads, less in higher layers. */
static float *load_rates(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice heads = l->d->split.mix_heads;
    const double share = 1 - layer / (s->n_layers - 1 + 1e-5) + 1e-5;
    float *host = malloc(heads.n * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t h = 0; h < heads.n; h++)
        host[h] = (float)log(exp2(-8.0 * (heads.first + h + 1) / (double)s->recur.heads) * share);
    float *rate = loader_host_vector(l, host, heads.n);
    free(host);
    return rate;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads, v = scaled(heads, r->value_dim, 0);
    const uint32_t all = r->heads * r->value_dim;
    const int layer = (int)at;
    struct fixed *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->in = load_in(l, layer);
    struct mat_part gate = loader_part(l, W_MIX_Z, layer, NO_EXPERT, false, all, l->d->spec.hidden);
    gate = loader_rows(gate, v.first, v.n);
    y->gate = loader_pack(l, &gate, 1, l->d->dtype, l->d->quant);
    y->rate = load_rates(l, at);
    y->norm = loader_plain_vector(l, W_MIX_NORM, layer, all, v);
    out_projection_load(l, &y->out, layer, all, v);
    y->state = recur_take_state(l->d);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct fixed *y = self;
    layer_free_weight(d, y->in);
    layer_free_weight(d, y->gate);
    d->ops->free(d->dev, y->rate);
    d->ops->free(d->dev, y->norm);
    out_projection_free(d, &y->out);
    free(y);
}

/* ---------------------------------------------------------------- forward */

/* o = norm(o) sigmoid(gate), where the norm is over the heads of all ranks. */
static int norm_and_gate(struct decoder *d, const struct fixed *y, struct sub_step *s, float *o,
                         const float *gate, struct err *e)
{
    const uint32_t n = recur_values(d);
    const struct gate_norm p = {.kind = GATE_SIGMOID,
                                .gate = gate,
                                .stride = n,
                                .w = y->norm,
                                .eps = NORM_EPS,
                                .norm_first = true,
                                .all = d->spec.recur.heads * d->spec.recur.value_dim};
    return layer_norm_parts(d, o, s->tokens, n, p, work_take(&s->work, s->tokens, SQUARES), e);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct fixed *y = self;
    const uint32_t n = recur_values(d), t = s->tokens, heads = d->split.mix_heads.n;
    float *x = work_take(&s->work, t, (size_t)3 * n), *gate = work_take(&s->work, t, n);
    float *o = work_take(&s->work, t, n), *work = work_take(&s->work, t, (size_t)2 * heads);
    const struct projection in = {y->in, NULL, LORA_MIX_IN, 3 * n};
    layer_project(d, s->layer, &in, x, s->in, d->spec.hidden, t);
    d->ops->linear(d->dev, gate, s->in, t, y->gate, NULL);
    d->ops->act(d->dev, x, t, 3 * n, ACT_SILU);
    const struct state_ref state = layer_state(d, y->state);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_FIXED,
                                  .heads = heads,
                                  .key_heads = heads,
                                  .key_dim = d->spec.recur.key_dim,
                                  .value_dim = d->spec.recur.value_dim,
                                  .x = x,
                                  .x_stride = 3 * n,
                                  .k = n,
                                  .v = 2 * n,
                                  .a_log = y->rate,
                                  .work = work});
    if (norm_and_gate(d, y, s, o, gate, e))
        return -1;
    out_projection_run(d, &y->out, s, o, n);
    return 0;
}

const struct sublayer_ops mixer_fixed = {"lightning", width, load, release, forward};
