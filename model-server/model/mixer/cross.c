/* cross.c - cross-attention to rows of images (Llama 3.2 Vision, arXiv 2407.21783) or of an encoder
 * of texts (arXiv 1706.03762): q is computed from tokens, k and v from those rows, without
 * rotation. store() reads rows, forward() reads tokens: see decoder/cross.c. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <stdlib.h>

struct cross {
    struct weight *q;                 /* [heads * head_dim, hidden], this rank's heads */
    struct weight *kv;                /* [2 * kv_heads * head_dim, hidden] k over v */
    struct weight *o;                 /* [hidden, heads * head_dim] */
    float *q_bias, *kv_bias, *o_bias; /* or NULL; of o only on the first rank */
    float *q_norm, *k_norm;           /* [head_dim], or NULL */
};

/* Elements of a row on this rank: of q; of k, and of v. */
struct shape {
    uint32_t dim, heads, kv_heads, q, kv;
};
static struct shape shape_of(const struct decoder *d, uint32_t layer)
{
    struct shape s = {.dim = spec_head_dim(&d->spec, layer),
                      .heads = d->split.heads.n,
                      .kv_heads = split_kv_heads(&d->split, &d->spec, layer).n};
    s.q = s.heads * s.dim;
    s.kv = s.kv_heads * s.dim;
    return s;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct shape s = shape_of(d, layer);
    return 2 * (s.q > s.kv ? s.q : s.kv);
}

/* Rows of some heads of a matrix, or of its bias. */
static struct mat_part heads_of(struct loader *l, enum role role, int layer, bool bias,
                                struct slice heads)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = spec_head_dim(s, (uint32_t)layer);
    const uint32_t all = role == W_Q ? s->n_heads : spec_kv_heads(s, (uint32_t)layer);
    return loader_rows(loader_part(l, role, layer, NO_EXPERT, bias, (int64_t)all * dim, s->hidden),
                       heads.first * dim, heads.n * dim);
}

static void load_biases(struct loader *l, struct cross *c, int layer, struct slice h,
                        struct slice g)
{
    struct mat_part parts[2];
    if (l->d->spec.bias.qkv) {
        parts[0] = heads_of(l, W_Q, layer, true, h);
        c->q_bias = loader_vector(l, parts, 1, 0);
        parts[0] = heads_of(l, W_K, layer, true, g);
        parts[1] = heads_of(l, W_V, layer, true, g);
        c->kv_bias = loader_vector(l, parts, 2, 0);
    }
    if (l->d->spec.bias.o && l->d->split.rank == 0) /* added once, before the sum over ranks */
        c->o_bias = loader_bias(l, W_O, layer, l->d->spec.hidden);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads, g = split_kv_heads(&l->d->split, s, at);
    const int64_t dim = spec_head_dim(s, at);
    const int layer = (int)at;
    struct cross *c = calloc(1, sizeof(*c));
    struct mat_part parts[2];
    if (!c) {
        loader_nomem(l);
        return NULL;
    }
    parts[0] = heads_of(l, W_Q, layer, false, h);
    c->q = loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
    parts[0] = heads_of(l, W_K, layer, false, g);
    parts[1] = heads_of(l, W_V, layer, false, g);
    c->kv = loader_pack(l, parts, 2, l->d->dtype, l->d->quant);
    load_biases(l, c, layer, h, g);
    if (s->cross_norms) {
        c->q_norm = loader_weight_vector(l, W_Q_NORM, layer, (uint32_t)dim);
        c->k_norm = loader_weight_vector(l, W_K_NORM, layer, (uint32_t)dim);
    }
    parts[0] = loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, s->n_heads * dim);
    parts[0] = loader_cut(parts[0], 0, s->hidden, h.first * dim, h.n * dim);
    c->o = loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
    return c;
}

static void release(struct decoder *d, void *self)
{
    struct cross *c = self;
    layer_free_weight(d, c->q);
    layer_free_weight(d, c->kv);
    layer_free_weight(d, c->o);
    float *vectors[] = {c->q_bias, c->kv_bias, c->o_bias, c->q_norm, c->k_norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    free(c);
}

/* Features to keys and values. */
static int store(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct cross *c = self;
    const struct shape s = shape_of(d, t->layer);
    (void)e;
    if (t->out) /* a step of tokens stores nothing */
        return 0;
    float *kv = work_take(&t->work, t->total, 2 * (size_t)s.kv);
    d->ops->linear(d->dev, kv, t->in, t->tokens, c->kv, c->kv_bias);
    d->ops->rope_kv(d->dev, kv, t->cache, t->kv,
                    &(struct rope_kv){.n_kv_heads = s.kv_heads,
                                      .head_dim = s.dim,
                                      .k_norm = c->k_norm,
                                      .norm_eps = d->spec.norm.eps,
                                      .norm_kind = NORM_RMS});
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct cross *c = self;
    const struct decoder_spec *m = &d->spec;
    const struct shape s = shape_of(d, t->layer);
    const uint32_t at = decoder_cross_at(d, t->layer);
    float *q = work_take(&t->work, t->total, s.q), *att = work_take(&t->work, t->total, s.q);
    (void)e;
    layer_project(d, t->layer, &(struct projection){c->q, c->q_bias, LORA_QKV, s.q}, q, t->in,
                  m->hidden, t->tokens);
    d->ops->rope_kv(d->dev, q, d->cross.kv, at,
                    &(struct rope_kv){.n_heads = s.heads,
                                      .head_dim = s.dim,
                                      .q_norm = c->q_norm,
                                      .norm_eps = m->norm.eps,
                                      .norm_kind = NORM_RMS});
    d->ops->attention(d->dev, att, q, s.q, d->cross.kv, at,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = m->layers[t->layer].attn_scale,
                                     .softcap = m->attn_softcap,
                                     .both = true,
                                     .mutual = MUTUAL_ALONE});
    layer_project(d, t->layer, &(struct projection){c->o, c->o_bias, LORA_O, m->hidden}, t->out,
                  att, s.q, t->tokens);
    return 0;
}

const struct sublayer_ops mixer_cross = {.name = "cross-attention",
                                         .width = width,
                                         .load = load,
                                         .free = release,
                                         .stateless = layer_stateless,
                                         .store = store,
                                         .forward = forward};
