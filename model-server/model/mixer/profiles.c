/* profiles.c - attention without a rotation whose scores get a bias by distance (Inkling). A matrix
 * makes a few numbers of each head, and these mix the profiles of a bank, one bias for each
 * distance. Keys and values pass a causal convolution of each channel, to which they are added;
 * what it reads of earlier tokens is in a cell.
 *
 * The op adds such a bias times the factor of q.k, so the bank is divided by that. Distances from
 * layer_spec.profiles on have no bias: a last profile of zeros. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct profiled {
    struct attention *own; /* q, k, v, their norms and o */
    struct short_conv conv; /* of keys and values */
    struct weight *mix;     /* [heads * dim, hidden] */
    struct weight *bank;    /* [buckets, dim] */
    float *none;            /* [heads * buckets] zeros: profiles have no other summand */
    float *ones;            /* [heads] */
    uint32_t *at;           /* [2 * reach + 1] */
};

static uint32_t buckets(const struct decoder *d, uint32_t layer)
{
    return d->spec.layers[layer].profiles + 1;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    return s.qkv + s.k + s.v + s.sums + s.heads * (d->spec.profiles.dim + buckets(d, layer));
}

/* ---------------------------------------------------------------- load */

static struct weight *load_bank(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = buckets(l->d, layer), dim = s->profiles.dim;
    const float by = 1 / s->layers[layer].attn_scale;
    float *of = loader_floats(l, W_PROFILE_BANK, (int)layer, NO_EXPERT, "", dim, n - 1);
    float *turned = calloc((size_t)n * dim, sizeof(*turned));
    struct weight *w = NULL;
    if (!turned)
        loader_nomem(l);
    for (size_t i = 0; of && turned && i < (size_t)(n - 1) * dim; i++)
        turned[i % (n - 1) * dim + i / (n - 1)] = of[i] * by;
    if (!l->failed)
        w = loader_host_matrix(l, turned, n, dim);
    free(of), free(turned);
    return w;
}

/* A key is at most as late as the query. */
static void load_at(struct loader *l, struct profiled *y, uint32_t layer)
{
    const uint32_t reach = buckets(l->d, layer) - 1;
    const size_t n = 2 * (size_t)reach + 1;
    uint32_t *at = malloc(n * sizeof(*at));
    if (!at) {
        loader_nomem(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        at[i] = i < reach ? reach : (uint32_t)i - reach;
    y->at = loader_host_numbers(l, at, n);
    free(at);
}

static void *load(struct loader *l, uint32_t layer)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const struct slice h = split_heads(&d->split, s, layer);
    const struct slice kv = split_kv_heads(&d->split, s, layer);
    const uint32_t dim = spec_head_dim(s, layer), each = s->profiles.dim;
    const uint32_t channels = spec_kv_heads(s, layer) * dim;
    const struct slice of = scaled(kv, dim, 0);
    const struct conv_part parts[] = {{W_MIX_CONV_K, channels, of}, {W_MIX_CONV_V, channels, of}};
    struct profiled *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->own = attention_load(l, layer);
    short_conv_load_kept(l, &y->conv, (int)layer, parts, 2);
    struct mat_part mix = loader_part(l, W_PROFILES, (int)layer, NO_EXPERT, false,
                                      (int64_t)spec_heads(s, layer) * each, s->hidden);
    mix = loader_rows(mix, h.first * each, h.n * each);
    y->mix = loader_pack(l, &mix, 1, d->dtype, d->quant);
    y->bank = load_bank(l, layer);
    y->none = loader_constants(l, h.n * buckets(d, layer), 0);
    y->ones = loader_ones(l, h.n);
    load_at(l, y, layer);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct profiled *y = self;
    if (y->own)
        attention_free(d, y->own);
    short_conv_free(d, &y->conv);
    layer_free_weight(d, y->mix);
    layer_free_weight(d, y->bank);
    d->ops->free(d->dev, y->none);
    d->ops->free(d->dev, y->ones);
    d->ops->free(d->dev, y->at);
    free(y);
}

/* ---------------------------------------------------------------- forward */

/* Normalises q in place, of `rows` [tokens][q, k, v]; then writes the convolved keys and values of
 * `kv` to the cache, over those of `rows`. */
static void store(struct decoder *d, const struct profiled *y, const struct sub_step *t,
                  float *rows, float *kv)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    struct rope_kv p = {
        .n_heads = s.heads,
        .n_kv_heads = s.kv_heads,
        .head_dim = s.dim,
        .q_norm = y->own->q_norm,
        .k_norm = y->own->k_norm,
        .norm_eps = d->spec.norm.eps,
        .norm_kind = NORM_RMS,
        .q_scale = d->spec.layers[t->layer].q_grows ? d->scratch.q_scale + t->first : NULL,
    };
    d->ops->rope_kv(d->dev, rows, t->cache, t->kv, &p);
    p.n_heads = 0;
    d->ops->rope_kv(d->dev, kv, t->cache, t->kv, &p);
}

/* The bias of each distance of each head: [tokens][heads][buckets]. */
static float *biases(struct decoder *d, const struct profiled *y, struct sub_step *t)
{
    const uint32_t heads = attention_shape(d, t->layer).heads, dim = d->spec.profiles.dim;
    float *mix = work_take(&t->work, t->tokens, (size_t)heads * dim);
    float *of = work_take(&t->work, t->tokens, (size_t)heads * buckets(d, t->layer));
    d->ops->linear(d->dev, mix, t->in, t->tokens, y->mix, NULL);
    if (d->spec.layers[t->layer].q_grows)
        d->ops->scale_heads(d->dev, mix, t->tokens, heads, dim, d->scratch.q_scale + t->first,
                            y->ones, y->none);
    d->ops->linear(d->dev, of, mix, t->tokens * heads, y->bank, NULL);
    return of;
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct profiled *y = self;
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens, hidden = d->spec.hidden;
    float *qkv = work_take(&t->work, n, s.qkv), *kv = work_take(&t->work, n, s.k + s.v);
    float *att = work_take(&t->work, n, s.sums);
    (void)e;
    layer_project(d, t->layer, &(struct projection){y->own->qkv, NULL, LORA_QKV, s.qkv}, qkv, t->in,
                  hidden, n);
    short_conv_run(d, &y->conv, kv, qkv + s.q, s.qkv);
    store(d, y, t, qkv, kv);
    d->ops->attention(d->dev, att, qkv, s.qkv, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = ls->attn_scale,
                                     .window = ls->window,
                                     .reach = ls->profiles,
                                     .apart = biases(d, y, t),
                                     .at = y->at,
                                     .buckets = buckets(d, t->layer),
                                     .apart_bias = y->none});
    layer_project(d, t->layer, &(struct projection){y->own->o, NULL, LORA_O, hidden}, t->out, att,
                  s.sums, n);
    return 0;
}

const struct sublayer_ops mixer_profiles = {.name = "attention with profiles",
                                            .width = width,
                                            .load = load,
                                            .free = release,
                                            .forward = forward,
                                            .kv = attention_keeps};
