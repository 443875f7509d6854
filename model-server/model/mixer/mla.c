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
 * selection of an earlier layer (GLM-5). */
#include "model-server/model/decoder.h"
#include "model-server/model/loader.h"
#include <stdlib.h>

/* Queries [index.heads * dim, q_rank], keys [dim, hidden] and their norm, weights [heads, hidden].
 */
struct indexer {
    struct weight *q, *k, *weights;
    struct norm norm;
    struct weight *pool_gate; /* [dim, hidden] with index.pool; else NULL */
    float *pool_bias;         /* [pool, dim] */
    uint64_t state;           /* the pool that is open, in a cell */
};

struct mla {
    struct indexer index;
    struct weight *q_a; /* [q_rank, hidden], or NULL */
    /* [heads * nope], [heads * rope] of hidden or q_rank; q_rope is NULL without rotation */
    struct weight *q_nope, *q_rope;
    struct weight *kv_a;          /* [kv_rank + rope, hidden] */
    struct weight *gate;          /* [heads] or [heads * v] of hidden, or NULL */
    struct weight *o;             /* [hidden, heads * v] */
    struct weight **k_up, **v_up; /* [heads] of [kv_rank, nope] and [v, kv_rank] */
    uint32_t heads;
    struct norm q_norm; /* [q_rank] */
    float *kv_norm;     /* [kv_rank] */
    float *sinks;       /* [heads], or NULL */
};

/* Elements of a row on this rank. */
struct shape {
    uint32_t heads, nope, rope, latent, key, q, v, gate;
};
/* Numbers of a head's gate. */
static uint32_t gates_of_head(const struct decoder_spec *s)
{
    return !s->attn_gate ? 0 : attn_gate_by_head(s->attn_gate) ? 1 : s->mla.v;
}
static struct shape shape_of(const struct decoder *d)
{
    const struct mla_spec *m = &d->spec.mla;
    const uint32_t h = d->split.heads.n;
    return (struct shape){.heads = h,
                          .nope = h * m->nope,
                          .rope = h * m->rope,
                          .latent = h * m->kv_rank,
                          .key = m->kv_rank + m->rope,
                          .q = h * (m->kv_rank + m->rope),
                          .v = h * m->v,
                          .gate = h * gates_of_head(&d->spec)};
}

static bool has_indexer(const struct decoder *d, uint32_t layer)
{
    return d->spec.mla.index.top && !d->spec.layers[layer].top_of;
}

/* The indexer's queries, its keys and weights are gone before the rest is computed. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct shape s = shape_of(d);
    const struct index_spec *x = &d->spec.mla.index;
    const uint32_t index =
        has_indexer(d, layer) ? (x->heads + (x->pool ? 2 : 1)) * x->dim + x->heads : 0;
    const uint32_t rest = s.nope + s.rope + s.latent + s.q + s.key;
    return d->spec.mla.q_rank * (d->spec.mla.gate_beside ? 4 : 1) + s.v + s.gate +
           (rest > index ? rest : index);
}

static bool keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    const struct mla_spec *m = &d->spec.mla;
    *out = (struct kv_layer){.n_heads = 1,
                             .k_dim = m->kv_rank + m->rope,
                             .v_dim = m->kv_rank,
                             .latent = true,
                             .index_dim = has_indexer(d, layer) ? m->index.dim : 0};
    return true;
}

/* ---------------------------------------------------------------- load */

static struct weight *pack(struct loader *l, struct mat_part p)
{
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* Rows of a head, and columns, of q's matrix or of the second of a pair. */
static uint32_t head_rows(const struct mla_spec *m)
{
    return m->nope + m->rope + (m->gate_beside ? m->v : 0);
}
static uint32_t head_columns(const struct decoder_spec *s)
{
    return !s->mla.q_rank ? s->hidden : s->mla.q_rank * (s->mla.gate_beside ? 2 : 1);
}

/* Packs rows [at, at + n) of each of this rank's heads. */
static struct weight *pack_heads(struct loader *l, int layer, uint32_t at, uint32_t n)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = &s->mla;
    const struct slice h = l->d->split.heads;
    const uint32_t each = head_rows(m);
    struct mat_part *parts = calloc(h.n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return NULL;
    }
    const struct mat_part whole = loader_part(l, m->q_rank ? W_Q_B : W_Q, layer, NO_EXPERT, false,
                                              (int64_t)s->n_heads * each, head_columns(s));
    for (uint32_t i = 0; i < h.n; i++)
        parts[i] = loader_rows(whole, (h.first + i) * each + at, n);
    struct weight *w = loader_pack(l, parts, (int)h.n, l->d->dtype, l->d->quant);
    free(parts);
    return w;
}

static void load_q(struct loader *l, struct mla *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = &s->mla;
    if (m->q_rank) {
        a->q_a = pack(l, loader_part(l, W_Q_A, layer, NO_EXPERT, false, m->q_rank, s->hidden));
        a->q_norm = (struct norm){.kind = NORM_RMS, .eps = m->eps};
        a->q_norm.w = loader_weight_vector(l, W_Q_A_NORM, layer, m->q_rank);
    }
    a->q_nope = pack_heads(l, layer, 0, m->nope);
    if (m->rope)
        a->q_rope = pack_heads(l, layer, m->nope, m->rope);
}

/* The two halves of each head of kv_b, in the checkpoint's type: they are a thousandth of a large
 * model, and all of its keys and values pass through them. */
static void load_kv_b(struct loader *l, struct mla *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = &s->mla;
    const struct slice h = l->d->split.heads;
    const uint32_t each = m->nope + m->v;
    struct mat_part all =
        loader_part(l, W_KV_B, layer, NO_EXPERT, false, (int64_t)s->n_heads * each, m->kv_rank);
    all = loader_rows(all, h.first * each, h.n * each);
    loader_numbers(l, &all);
    l->hold = true;
    for (uint32_t i = 0; i < h.n && !l->failed; i++) {
        struct mat_part k = loader_turned(loader_rows(all, i * each, m->nope));
        struct mat_part v = loader_rows(all, i * each + m->nope, m->v);
        a->k_up[i] = loader_pack(l, &k, 1, l->d->dtype, QUANT_NONE);
        a->v_up[i] = loader_pack(l, &v, 1, l->d->dtype, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
}

/* x[n] *= by, of a vector on the device. */
static void scale_vector(struct loader *l, float *x, uint32_t n, float by)
{
    struct decoder *d = l->d;
    const size_t bytes = n * sizeof(*x);
    float *host = l->failed ? NULL : malloc(bytes);
    if (!host) {
        if (!l->failed)
            loader_nomem(l);
        return;
    }
    l->failed = d->ops->download(d->dev, host, x, bytes, l->e);
    for (uint32_t i = 0; i < n && !l->failed; i++)
        host[i] *= by;
    l->failed = l->failed || d->ops->upload(d->dev, x, host, bytes, l->e);
    free(host);
}

/* Keys and weights are small, and decide what all heads attend to: they keep their numbers. */
static void load_indexer(struct loader *l, struct indexer *x, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct index_spec *m = &s->mla.index;
    const int64_t rows = (int64_t)m->heads * m->dim;
    struct mat_part p;
    x->q = pack(l, loader_part(l, W_INDEX_Q, layer, NO_EXPERT, false, rows, s->mla.q_rank));
    p = loader_part(l, W_INDEX_K, layer, NO_EXPERT, false, m->dim, s->hidden);
    x->k = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    x->norm = (struct norm){.kind = NORM_LAYER, .eps = m->eps};
    x->norm.w = loader_weight_vector(l, W_INDEX_K_NORM, layer, m->dim);
    x->norm.b = loader_bias(l, W_INDEX_K_NORM, layer, m->dim);
    p = loader_part(l, W_INDEX_WEIGHTS, layer, NO_EXPERT, false, m->heads, s->hidden);
    x->weights = loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
    if (!m->pool)
        return;
    p = loader_plain_matrix(l, W_INDEX_POOL_GATE, layer, m->dim, s->hidden);
    x->pool_gate = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_plain_matrix(l, W_INDEX_POOL_BIAS, layer, m->pool, m->dim);
    p.rows *= p.cols, p.cols = p.row_stride = 1; /* one vector after the other */
    x->pool_bias = loader_vector(l, &p, 1, 0);
    x->state = layer_take_state(l->d, pool_floats(&(struct pool_keys){.dim = m->dim, .series = 1}));
}

static void load_gate(struct loader *l, struct mla *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    const uint32_t each = gates_of_head(s);
    if (s->mla.gate_beside) {
        a->gate = pack_heads(l, layer, s->mla.nope + s->mla.rope, s->mla.v);
        return;
    }
    const struct mat_part all =
        loader_part(l, W_ATTN_GATE, layer, NO_EXPERT, false, (int64_t)s->n_heads * each, s->hidden);
    a->gate = pack(l, loader_rows(all, h.first * each, h.n * each));
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = &s->mla;
    const struct slice h = l->d->split.heads;
    const int layer = (int)at;
    struct mla *a = calloc(1, sizeof(*a));
    if (!a || !(a->k_up = calloc(h.n, sizeof(struct weight *))) ||
        !(a->v_up = calloc(h.n, sizeof(struct weight *)))) {
        loader_nomem(l);
        return a;
    }
    a->heads = h.n;
    load_q(l, a, layer);
    a->kv_a =
        pack(l, loader_part(l, W_KV_A, layer, NO_EXPERT, false, m->kv_rank + m->rope, s->hidden));
    a->kv_norm = loader_weight_vector(l, W_KV_A_NORM, layer, m->kv_rank);
    if (m->kv_scale != 0)
        scale_vector(l, a->kv_norm, m->kv_rank, m->kv_scale);
    load_kv_b(l, a, layer);
    if (has_indexer(l->d, at))
        load_indexer(l, &a->index, layer);
    if (s->attn_gate)
        load_gate(l, a, layer);
    if (s->sinks)
        a->sinks = loader_plain_vector(l, W_SINKS, layer, s->n_heads, h);
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * m->v);
    a->o = pack(l, loader_cut(o, 0, s->hidden, (int64_t)h.first * m->v, (int64_t)h.n * m->v));
    return a;
}

static void release(struct decoder *d, void *self)
{
    struct mla *a = self;
    struct weight *all[] = {a->q_a, a->q_nope,  a->q_rope,  a->kv_a,          a->gate,
                            a->o,   a->index.q, a->index.k, a->index.weights, a->index.pool_gate};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        layer_free_weight(d, all[i]);
    for (uint32_t i = 0; i < a->heads; i++) {
        layer_free_weight(d, a->k_up[i]);
        layer_free_weight(d, a->v_up[i]);
    }
    layer_free_norm(d, &a->q_norm);
    layer_free_norm(d, &a->index.norm);
    d->ops->free(d->dev, a->kv_norm);
    d->ops->free(d->dev, a->sinks);
    d->ops->free(d->dev, a->index.pool_bias);
    free(a->k_up), free(a->v_up);
    free(a);
}

/* ---------------------------------------------------------------- forward */

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
    const uint32_t rank = d->spec.mla.q_rank;
    if (!a->q_a)
        return (struct q_inputs){t->in, t->in, d->spec.hidden};
    float *x = work_take(&t->work, t->tokens, rank), *y = x;
    project(d, t, a->q_a, LORA_Q_A, x, rank, t->in, d->spec.hidden);
    if (d->spec.mla.gate_beside)
        y = work_take(&t->work, t->tokens, rank);
    d->ops->norm(d->dev, y, x, t->tokens, rank, &a->q_norm);
    if (!d->spec.mla.gate_beside)
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

/* Selects the positions to which each token attends; q_in: the input of q's matrices. */
static void select_top(struct decoder *d, const struct indexer *x, struct sub_step *t,
                       const float *q_in)
{
    const struct decoder_spec *m = &d->spec;
    const struct index_spec *s = &m->mla.index;
    const uint32_t n = t->tokens, rope = m->layers[t->layer].rope;
    struct work w = t->work;
    float *q = work_take(&w, n, (size_t)s->heads * s->dim), *k = work_take(&w, n, s->dim);
    float *weights = work_take(&w, n, s->heads);
    d->ops->linear(d->dev, q, q_in, n, x->q, NULL);
    d->ops->linear(d->dev, k, t->in, n, x->k, NULL);
    d->ops->norm(d->dev, k, k, n, s->dim, &x->norm);
    d->ops->linear(d->dev, weights, t->in, n, x->weights, NULL);
    if (s->pool)
        pool(d, x, t, &w, k);
    d->ops->select_keys(d->dev, d->scratch.top, q, k, t->cache, t->kv,
                        &(struct select_keys){.n_heads = s->heads,
                                              .dim = s->dim,
                                              .rot_at = s->rope_last ? s->dim - m->mla.rope : 0,
                                              .rot_dim = m->mla.rope,
                                              .top = s->top,
                                              .block = s->pool,
                                              .pooled = s->pool > 0,
                                              .interleaved = s->interleaved,
                                              .rope = m->mla.rope ? d->scratch.rope[rope] : NULL,
                                              .weights = weights});
}

/* Computes q in latent space, and writes the token's key to the cache. `gates`: of those that q's
 * matrix makes. */
static const float *queries(struct decoder *d, const struct mla *a, struct sub_step *t,
                            float *gates)
{
    const struct decoder_spec *m = &d->spec;
    const struct rope_spec *rope = &m->rope[m->layers[t->layer].rope];
    const struct shape s = shape_of(d);
    const struct q_inputs in = q_input(d, a, t);
    if (a->index.q)
        select_top(d, &a->index, t, in.index);
    if (m->mla.gate_beside)
        d->ops->linear(d->dev, gates, in.x, t->tokens, a->gate, NULL);
    float *nope = work_take(&t->work, t->tokens, s.nope);
    float *turned = work_take(&t->work, t->tokens, s.rope);
    float *latent = work_take(&t->work, t->tokens, s.latent);
    float *key = work_take(&t->work, t->tokens, s.key), *q = work_take(&t->work, t->tokens, s.q);
    project(d, t, a->q_nope, LORA_QKV, nope, s.nope, in.x, in.width);
    if (a->q_rope)
        project(d, t, a->q_rope, LORA_Q_ROPE, turned, s.rope, in.x, in.width);
    project(d, t, a->kv_a, LORA_KV_A, key, s.key, t->in, m->hidden);
    d->ops->linear_heads(d->dev, latent, nope, t->tokens, a->k_up, s.heads);
    d->ops->latent_kv(
        d->dev, q, key, t->cache, t->kv,
        &(struct latent_kv){.n_heads = s.heads,
                            .rank = m->mla.kv_rank,
                            .rot_dim = m->mla.rope,
                            .interleaved = rope->interleaved,
                            .rope = a->q_rope ? d->scratch.rope[m->layers[t->layer].rope] : NULL,
                            .norm = a->kv_norm,
                            .eps = m->mla.eps,
                            .latent = latent,
                            .turned = turned,
                            .q_scale = m->layers[t->layer].q_grows ? d->scratch.q_scale + t->first
                                                                   : NULL});
    return q;
}

/* Multiplies the heads' results by functions of the token, `by`. */
static void gate(struct decoder *d, const struct mla *a, struct sub_step *t, float *v, float *by)
{
    const struct shape s = shape_of(d);
    if (!d->spec.mla.gate_beside)
        project(d, t, a->gate, LORA_Q_GATE, by, s.gate, t->in, d->spec.hidden);
    if (attn_gate_by_head(d->spec.attn_gate))
        d->ops->gate_rows(d->dev, v, t->tokens * s.heads, d->spec.mla.v, by,
                          d->spec.attn_gate == ATTN_GATE_SOFTPLUS_BY_HEAD);
    else
        d->ops->gate_norm(d->dev, v, s.v, t->tokens, s.v,
                          &(struct gate_norm){.kind = GATE_SIGMOID, .gate = by, .stride = s.v});
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct mla *a = self;
    const struct decoder_spec *m = &d->spec;
    const struct shape s = shape_of(d);
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
                                     .scale = m->layers[t->layer].attn_scale,
                                     .sinks = a->sinks,
                                     .top = m->mla.index.top ? d->scratch.top : NULL,
                                     .n_top = m->mla.index.top,
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

const struct sublayer_ops mixer_mla = {"mla", width, load, release, forward, keeps, stateless};
