/* mla_load.c - the weights of latent attention. */
#include "model-server/model/mixer/mla.h"
#include <stdlib.h>

/* Numbers of a head's gate. */
static uint32_t gates_of_head(const struct decoder_spec *s, const struct mla_spec *m)
{
    return !s->attn_gate ? 0 : attn_gate_by_head(s->attn_gate) ? 1 : m->v;
}

struct mla_shape mla_shape_of(const struct decoder *d, uint32_t layer)
{
    const struct mla_spec *m = spec_mla(&d->spec, layer);
    const uint32_t h = split_heads(&d->split, &d->spec, layer).n;
    return (struct mla_shape){.heads = h,
                              .nope = h * m->nope,
                              .rope = h * m->rope,
                              .latent = h * m->kv_rank,
                              .key = m->kv_rank + m->rope,
                              .q = h * (m->kv_rank + m->rope),
                              .v = h * m->v,
                              .gate = h * gates_of_head(&d->spec, m)};
}

bool mla_has_indexer(const struct decoder *d, uint32_t layer)
{
    const struct layer_spec *s = &d->spec.layers[layer];
    return d->spec.mla.index.top && !s->top_of && !s->selects_none;
}

static struct weight *pack(struct loader *l, struct mat_part p)
{
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* Rows of a head, and columns, of q's matrix or of the second of a pair. */
static uint32_t head_rows(const struct mla_spec *m)
{
    return m->nope + m->rope + (m->gate_beside ? m->v : 0);
}
static uint32_t head_columns(const struct decoder_spec *s, const struct mla_spec *m)
{
    return !m->q_rank ? s->hidden : m->q_rank * (m->gate_beside ? 2 : 1);
}

/* Packs rows [at, at + n) of each of this rank's heads. */
static struct weight *pack_heads(struct loader *l, int layer, uint32_t at, uint32_t n)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = spec_mla(s, (uint32_t)layer);
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t heads = spec_heads(s, (uint32_t)layer), each = head_rows(m);
    struct mat_part *parts = calloc(h.n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return NULL;
    }
    const struct mat_part whole = loader_part(l, m->q_rank ? W_Q_B : W_Q, layer, NO_EXPERT, false,
                                              (int64_t)heads * each, head_columns(s, m));
    for (uint32_t i = 0; i < h.n; i++)
        parts[i] = loader_rows(whole, (h.first + i) * each + at, n);
    struct weight *w = loader_pack(l, parts, (int)h.n, l->d->dtype, l->d->quant);
    free(parts);
    return w;
}

static void load_q(struct loader *l, struct mla *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = spec_mla(s, (uint32_t)layer);
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
    const struct mla_spec *m = spec_mla(s, (uint32_t)layer);
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t each = m->nope + m->v;
    struct mat_part all = loader_part(l, W_KV_B, layer, NO_EXPERT, false,
                                      (int64_t)spec_heads(s, (uint32_t)layer) * each, m->kv_rank);
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

static struct head_growth load_growth(struct loader *l, enum role slope, enum role offset,
                                      int layer, uint32_t heads, struct slice own)
{
    struct head_growth g = {0};
    if (!l->d->spec.q_growth.by_head)
        return g;
    g.slope = loader_plain_vector(l, slope, layer, heads, own);
    g.offset = loader_plain_vector(l, offset, layer, heads, own);
    return g;
}

/* Keys and weights are small, and decide what all heads attend to: they keep their numbers. */
static void load_indexer(struct loader *l, struct indexer *x, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct index_spec *m = &s->mla.index;
    const uint32_t in = m->own_norm ? s->hidden : spec_mla(s, (uint32_t)layer)->q_rank;
    struct mat_part p =
        loader_part(l, W_INDEX_Q, layer, NO_EXPERT, false, (int64_t)m->heads * m->dim, in);
    x->q = pack(l, p);
    if (m->own_norm) {
        x->in_norm = (struct norm){.kind = NORM_LAYER, .eps = m->eps};
        x->in_norm.w = loader_weight_vector(l, W_INDEX_IN_NORM, layer, in);
        x->in_norm.b = loader_bias(l, W_INDEX_IN_NORM, layer, in);
    }
    x->growth =
        load_growth(l, W_INDEX_SLOPE, W_INDEX_OFFSET, layer, m->heads, (struct slice){0, m->heads});
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
    const struct mla_spec *m = spec_mla(s, (uint32_t)layer);
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t each = gates_of_head(s, m);
    if (m->gate_beside) {
        a->gate = pack_heads(l, layer, m->nope + m->rope, m->v);
        return;
    }
    const struct mat_part all =
        loader_part(l, W_ATTN_GATE, layer, NO_EXPERT, false,
                    (int64_t)spec_heads(s, (uint32_t)layer) * each, s->hidden);
    a->gate = pack(l, loader_rows(all, h.first * each, h.n * each));
}

static void load_kv_a(struct loader *l, struct mla *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = spec_mla(s, (uint32_t)layer);
    a->kv_a =
        pack(l, loader_part(l, W_KV_A, layer, NO_EXPERT, false, m->kv_rank + m->rope, s->hidden));
    a->kv_norm = loader_weight_vector(l, W_KV_A_NORM, layer, m->kv_rank);
    if (m->turn_norm)
        a->turn_norm = loader_weight_vector(l, W_K_TURN_NORM, layer, m->rope);
    if (m->kv_scale != 0)
        scale_vector(l, a->kv_norm, m->kv_rank, m->kv_scale);
}

void *mla_load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mla_spec *m = spec_mla(s, at);
    const struct slice h = split_heads(&l->d->split, s, at);
    const uint32_t heads = spec_heads(s, at);
    const int layer = (int)at;
    struct mla *a = calloc(1, sizeof(*a));
    if (!a || !(a->k_up = calloc(h.n, sizeof(struct weight *))) ||
        !(a->v_up = calloc(h.n, sizeof(struct weight *)))) {
        loader_nomem(l);
        return a;
    }
    a->heads = h.n;
    load_q(l, a, layer);
    if (!s->layers[at].kv_of)
        load_kv_a(l, a, layer);
    load_kv_b(l, a, layer);
    if (mla_has_indexer(l->d, at))
        load_indexer(l, &a->index, layer);
    if (s->attn_gate)
        load_gate(l, a, layer);
    if (s->sinks)
        a->sinks = loader_plain_vector(l, W_SINKS, layer, heads, h);
    a->growth = load_growth(l, W_HEAD_SLOPE, W_HEAD_OFFSET, layer, heads, h);
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)heads * m->v);
    a->o = pack(l, loader_cut(o, 0, s->hidden, (int64_t)h.first * m->v, (int64_t)h.n * m->v));
    return a;
}

void mla_free(struct decoder *d, void *self)
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
    layer_free_norm(d, &a->index.in_norm);
    float *vectors[] = {a->kv_norm,
                        a->turn_norm,
                        a->sinks,
                        a->index.pool_bias,
                        a->growth.slope,
                        a->growth.offset,
                        a->index.growth.slope,
                        a->index.growth.offset};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    free(a->k_up), free(a->v_up);
    free(a);
}
