/* mla.c - latent attention (DeepSeek-V2, arXiv 2405.04434): all heads share one key of kv_rank +
 * rope numbers per token, the latent and a rotated part; the latent is also the value.
 *
 * kv_b, which maps the latent to each head's keys and values, is absorbed: its key rows map a
 * query to latent space, its value rows map a sum of latents to one of values. This form is used
 * for prompts and for single tokens: see docs/decisions/latent-attention.md. Heads are split over
 * ranks; the latent is the same on each.
 *
 * With an indexer (DeepSeek V3.2, arXiv 2512.02556) a token attends to selected positions. Every
 * rank selects, from equal inputs, so all select the same. A layer without an indexer uses the
 * selection of an earlier layer (GLM-5). A layer may also read the latents of an earlier one
 * (Mistral Large 4): it caches nothing, or the keys of its indexer alone. */
#include "model-server/model/mixer/mla.h"

/* The indexer's queries, its keys and weights are gone before the rest is computed. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct mla_shape s = mla_shape_of(d, layer);
    const struct mla_spec *m = spec_mla(&d->spec, layer);
    const struct index_spec *x = &d->spec.mla.index;
    const uint32_t index = mla_has_indexer(d, layer)
                               ? (x->heads + (x->pool ? 2 : 1)) * x->dim + x->heads +
                                     (x->own_norm ? d->spec.hidden : 0)
                               : 0;
    const uint32_t rest = s.nope + s.rope + s.latent + s.q + s.key;
    return m->q_rank * (m->gate_beside ? 4 : 1) + s.v + s.gate + (rest > index ? rest : index);
}

static bool keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    const struct mla_spec *m = spec_mla(&d->spec, layer);
    const bool own = !d->spec.layers[layer].kv_of;
    *out = (struct kv_layer){.n_heads = own ? 1 : 0,
                             .k_dim = own ? m->kv_rank + m->rope : 0,
                             .v_dim = own ? m->kv_rank : 0,
                             .latent = own,
                             .index_dim = mla_has_indexer(d, layer) ? d->spec.mla.index.dim : 0};
    return own || out->index_dim;
}

static void project(struct decoder *d, const struct sub_step *t, const struct weight *w,
                    enum lora_site site, float *y, uint32_t y_width, const float *x,
                    uint32_t x_width)
{
    layer_project(d, t->layer, &(struct projection){w, NULL, site, y_width}, y, x, x_width,
                  t->tokens);
}

/* The inputs of q's matrices, and of the indexer's. */
struct q_inputs {
    const float *x, *index;
    uint32_t width;
};
static struct q_inputs q_input(struct decoder *d, const struct mla *a, struct sub_step *t)
{
    const struct mla_spec *m = spec_mla(&d->spec, t->layer);
    const uint32_t rank = m->q_rank;
    if (!a->q_a)
        return (struct q_inputs){t->in, t->in, d->spec.hidden};
    float *x = work_take(&t->work, t->tokens, rank), *y = x;
    project(d, t, a->q_a, LORA_Q_A, x, rank, t->in, d->spec.hidden);
    if (m->gate_beside)
        y = work_take(&t->work, t->tokens, rank);
    d->ops->norm(d->dev, y, x, t->tokens, rank, &a->q_norm);
    if (!m->gate_beside)
        return (struct q_inputs){x, x, rank};
    float *both = work_take(&t->work, t->tokens, 2 * (size_t)rank);
    d->ops->beside(d->dev, both, y, x, t->tokens, rank);
    return (struct q_inputs){both, y, 2 * rank};
}

/* The key of a pool's last token becomes that of the pool. */
static void pool(struct decoder *d, const struct indexer *x, struct sub_step *t, struct work *w,
                 float *k)
{
    const struct index_spec *s = &d->spec.mla.index;
    const struct state_ref state = layer_state(d, x->state);
    float *gates = work_take(w, t->tokens, s->dim);
    d->ops->linear(d->dev, gates, t->in, t->tokens, x->pool_gate, NULL);
    d->ops->pool_keys(d->dev, k, &state,
                      &(struct pool_keys){.dim = s->dim,
                                          .size = s->pool,
                                          .series = 1,
                                          .x = k,
                                          .gates = gates,
                                          .bias = x->pool_bias});
}

/* x[tokens, heads, n] *= the heads' factors. */
static void grow(struct decoder *d, const struct sub_step *t, const struct head_growth *g, float *x,
                 uint32_t heads, uint32_t n)
{
    if (g->slope)
        d->ops->scale_heads(d->dev, x, t->tokens, heads, n, d->scratch.q_scale + t->first, g->slope,
                            g->offset);
}

/* Selects the positions to which each token attends; q_in: the input of q's matrices. */
static void select_top(struct decoder *d, const struct indexer *x, struct sub_step *t,
                       const float *q_in)
{
    const struct index_spec *s = &d->spec.mla.index;
    const uint32_t n = t->tokens;
    const uint32_t turns = spec_mla(&d->spec, t->layer)->rope;
    struct work w = t->work;
    float *q = work_take(&w, n, (size_t)s->heads * s->dim), *k = work_take(&w, n, s->dim);
    float *weights = work_take(&w, n, s->heads);
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const uint32_t kv = ls->kv_of ? d->kv_in[d->index_at[t->layer]] : t->kv;
    if (s->own_norm) {
        float *own = work_take(&w, n, d->spec.hidden);
        d->ops->norm(d->dev, own, t->in, n, d->spec.hidden, &x->in_norm);
        q_in = own;
    }
    d->ops->linear(d->dev, q, q_in, n, x->q, NULL);
    grow(d, t, &x->growth, q, s->heads, s->dim);
    d->ops->linear(d->dev, k, t->in, n, x->k, NULL);
    d->ops->norm(d->dev, k, k, n, s->dim, &x->norm);
    d->ops->linear(d->dev, weights, t->in, n, x->weights, NULL);
    if (s->pool)
        pool(d, x, t, &w, k);
    d->ops->select_keys(d->dev, d->scratch.top, q, k, t->cache, kv,
                        &(struct select_keys){.n_heads = s->heads,
                                              .dim = s->dim,
                                              .rot_at = s->rope_last ? s->dim - turns : 0,
                                              .rot_dim = turns,
                                              .top = s->top,
                                              .block = s->pool,
                                              .pooled = s->pool > 0,
                                              .interleaved = s->interleaved,
                                              .rope = turns ? d->scratch.rope[ls->rope] : NULL,
                                              .weights = weights});
}

/* Computes q in latent space, and writes the token's key to the cache. `gates`: of those that q's
 * matrix makes. */
static const float *queries(struct decoder *d, const struct mla *a, struct sub_step *t,
                            float *gates)
{
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const struct mla_spec *m = spec_mla(&d->spec, t->layer);
    const struct mla_shape s = mla_shape_of(d, t->layer);
    const struct q_inputs in = q_input(d, a, t);
    if (a->index.q)
        select_top(d, &a->index, t, in.index);
    if (m->gate_beside)
        d->ops->linear(d->dev, gates, in.x, t->tokens, a->gate, NULL);
    float *nope = work_take(&t->work, t->tokens, s.nope);
    float *turned = work_take(&t->work, t->tokens, s.rope);
    float *latent = work_take(&t->work, t->tokens, s.latent);
    float *key = work_take(&t->work, t->tokens, s.key), *q = work_take(&t->work, t->tokens, s.q);
    project(d, t, a->q_nope, LORA_QKV, nope, s.nope, in.x, in.width);
    if (a->q_rope)
        project(d, t, a->q_rope, LORA_Q_ROPE, turned, s.rope, in.x, in.width);
    if (a->kv_a)
        project(d, t, a->kv_a, LORA_KV_A, key, s.key, t->in, d->spec.hidden);
    d->ops->linear_heads(d->dev, latent, nope, t->tokens, a->k_up, s.heads);
    d->ops->latent_kv(d->dev, q, a->kv_a ? key : NULL, t->cache, t->kv,
                      &(struct latent_kv){.n_heads = s.heads,
                                          .rank = m->kv_rank,
                                          .rot_dim = m->rope,
                                          .interleaved = d->spec.rope[ls->rope].interleaved,
                                          .rope = a->q_rope ? d->scratch.rope[ls->rope] : NULL,
                                          .norm = a->kv_norm,
                                          .turn_norm = a->turn_norm,
                                          .eps = m->eps,
                                          .latent = latent,
                                          .turned = turned,
                                          .q_scale = ls->q_grows && !a->growth.slope
                                                         ? d->scratch.q_scale + t->first
                                                         : NULL});
    grow(d, t, &a->growth, q, s.heads, s.key);
    return q;
}

/* Multiplies the heads' results by functions of the token, `by`. */
static void gate(struct decoder *d, const struct mla *a, struct sub_step *t, float *v, float *by)
{
    const struct mla_shape s = mla_shape_of(d, t->layer);
    const struct mla_spec *m = spec_mla(&d->spec, t->layer);
    if (!m->gate_beside)
        project(d, t, a->gate, LORA_Q_GATE, by, s.gate, t->in, d->spec.hidden);
    if (attn_gate_by_head(d->spec.attn_gate))
        d->ops->gate_rows(d->dev, v, t->tokens * s.heads, m->v, by,
                          d->spec.attn_gate == ATTN_GATE_SOFTPLUS_BY_HEAD);
    else
        d->ops->gate_norm(d->dev, v, s.v, t->tokens, s.v,
                          &(struct gate_norm){.kind = GATE_SIGMOID, .gate = by, .stride = s.v});
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct mla *a = self;
    const struct decoder_spec *m = &d->spec;
    const struct mla_shape s = mla_shape_of(d, t->layer);
    const struct layer_spec *ls = &m->layers[t->layer];
    const bool selects = m->mla.index.top && !ls->selects_none;
    (void)e;
    float *v = work_take(&t->work, t->tokens, s.v);
    float *gates = work_take(&t->work, t->tokens, s.gate);
    struct work before = t->work;
    const float *q = queries(d, a, t, gates);
    /* the inputs of q are no longer needed */
    float *sums = work_take(&before, t->tokens, s.latent);
    d->ops->attention(d->dev, sums, q, s.q, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = 1,
                                     .head_dim = s.key,
                                     .scale = ls->attn_scale,
                                     .window = ls->window,
                                     .sinks = a->sinks,
                                     .top = selects ? d->scratch.top : NULL,
                                     .n_top = selects ? m->mla.index.top : 0,
                                     .top_block = m->mla.index.pool,
                                     .top_tail = m->mla.index.pool > 0});
    d->ops->linear_heads(d->dev, v, sums, t->tokens, a->v_up, s.heads);
    if (a->gate)
        gate(d, a, t, v, gates);
    project(d, t, a->o, LORA_O, t->out, m->hidden, v, s.v);
    return 0;
}

/* But for the keys of an indexer that have not filled a pooled one yet. */
static bool stateless(const struct decoder *d) { return !d->spec.mla.index.pool; }

const struct sublayer_ops mixer_mla = {"mla", width, mla_load, mla_free, forward, keeps, stateless};
