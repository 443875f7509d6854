/* profiles.c - attention without a rotation whose scores get a bias by distance (Inkling). A matrix
 * makes a few numbers of each head, and these mix the profiles of a bank, one bias for each
 * distance. Keys and values pass a causal convolution of each channel, to which they are added;
 * what it reads of earlier tokens is in a cell.
 *
 * In Inkling 2 the lengths of heads are limited instead of normalised, a token makes the sinks of
 * its heads, and a gate multiplies the result. In layers with apart_inputs a token also makes
 * numbers that are added to the weights of the convolution, one for each key-value head and tap.
 *
 * The op adds such a bias times the factor of q.k, so the bank is divided by that. Distances from
 * layer_spec.profiles on have no bias: a last profile of zeros. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/mixer/recurrent.h"
#include <math.h>
#include <stdlib.h>

struct profiled {
    struct attention *own;          /* q, k, v, their norms, the gate and o */
    struct weight *q, *k, *v;       /* with apart_inputs, instead of own->qkv; else NULL */
    struct weight *k_taps, *v_taps; /* [kv_heads * taps, hidden] */
    struct short_conv conv;         /* of keys and values */
    float *q_scale, *mix_scale;     /* with profile_spec.clip: factors of q and of `mix` */
    struct weight *sinks;           /* [heads, hidden] or NULL */
    struct weight *mix;             /* [heads * dim, hidden] */
    struct weight *bank;            /* [buckets, dim] */
    float *none;                    /* [heads * buckets] zeros: profiles have no other summand */
    float *ones;                    /* [heads] */
    uint32_t *at;                   /* [2 * reach + 1] */
};

static uint32_t buckets(const struct decoder *d, uint32_t layer)
{
    return d->spec.layers[layer].profiles + 1;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    const uint32_t taps = d->spec.layers[layer].apart_inputs ? s.kv_heads * d->spec.recur.conv : 0;
    return s.qkv + 2 * s.k + 2 * s.v + 2 * s.sums + 4 * taps + s.heads +
           s.heads * (d->spec.profiles.dim + buckets(d, layer));
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

/* This rank's rows of a matrix with `each` rows for each of `all` heads. */
static struct weight *load_heads(struct loader *l, enum role role, uint32_t layer, uint32_t all,
                                 struct slice h, uint32_t each)
{
    struct mat_part p =
        loader_part(l, role, (int)layer, NO_EXPERT, false, (int64_t)all * each, l->d->spec.hidden);
    p = loader_rows(p, h.first * each, h.n * each);
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

static float taps_share(const struct decoder_spec *s)
{
    return 1 / sqrtf((float)(2 * s->recur.conv + 1));
}

/* The matrix of taps of keys or values, as an addition to conv.w. It is small, and keeps its
 * numbers. */
static struct weight *load_taps(struct loader *l, enum role role, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice kv = split_kv_heads(&l->d->split, s, layer);
    const size_t n = s->recur.conv, hidden = s->hidden, all = spec_kv_heads(s, layer) * n;
    float *of = loader_floats(l, role, (int)layer, NO_EXPERT, "", (int64_t)all, s->hidden);
    struct weight *w = NULL;
    for (size_t i = 0; of && i < all * hidden; i++)
        of[i] *= taps_share(s);
    if (of)
        w = loader_host_matrix(l, of + kv.first * n * hidden, (int64_t)(kv.n * n), s->hidden);
    free(of);
    return w;
}

/* The weights of keys and values that no token makes: [taps][channels], the latest token first. */
static void load_static_conv(struct loader *l, struct profiled *y, uint32_t layer, struct slice of,
                             uint32_t all)
{
    static const enum role roles[] = {W_STATIC_CONV_K, W_STATIC_CONV_V};
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->recur.conv, channels = 2 * of.n;
    float *taps = calloc((size_t)n * channels, sizeof(*taps));
    if (!taps)
        loader_nomem(l);
    for (uint32_t part = 0; part < 2; part++) {
        float *from = loader_floats(l, roles[part], (int)layer, NO_EXPERT, "", n, all);
        for (uint32_t i = 0; taps && from && i < n * of.n; i++) {
            const uint32_t back = i / of.n, c = i % of.n;
            taps[(size_t)(n - 1 - back) * channels + (size_t)part * of.n + c] =
                (from[(size_t)back * all + of.first + c] + (back ? 0 : 1)) * taps_share(s);
        }
        free(from);
    }
    short_conv_take(l, &y->conv, taps, n, channels);
    y->conv.conv.each = spec_head_dim(s, layer);
}

static void load_apart(struct loader *l, struct profiled *y, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = spec_head_dim(s, layer), heads = spec_heads(s, layer);
    const uint32_t kv_heads = spec_kv_heads(s, layer);
    const struct slice h = split_heads(&l->d->split, s, layer);
    const struct slice kv = split_kv_heads(&l->d->split, s, layer);
    y->q = load_heads(l, W_Q, layer, heads, h, dim);
    y->k = load_heads(l, W_K, layer, kv_heads, kv, dim);
    y->v = load_heads(l, W_V, layer, kv_heads, kv, dim);
    y->k_taps = load_taps(l, W_CONV_TAPS_K, layer);
    y->v_taps = load_taps(l, W_CONV_TAPS_V, layer);
    load_static_conv(l, y, layer, scaled(kv, dim, 0), kv_heads * dim);
}

/* Of Inkling 2. */
static void load_limits(struct loader *l, struct profiled *y, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = spec_head_dim(s, layer), each = s->profiles.dim;
    const uint32_t heads = spec_heads(s, layer);
    const struct slice h = split_heads(&l->d->split, s, layer);
    y->q_scale = loader_plain_vector(l, W_Q_NORM, (int)layer, heads * dim, scaled(h, dim, 0));
    y->mix_scale =
        loader_plain_vector(l, W_PROFILE_SCALE, (int)layer, heads * each, scaled(h, each, 0));
    y->sinks = load_heads(l, W_SINKS, layer, heads, h, 1);
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
    if (s->layers[layer].apart_inputs)
        load_apart(l, y, layer);
    else
        short_conv_load_kept(l, &y->conv, (int)layer, parts, 2);
    if (s->profiles.clip > 0)
        load_limits(l, y, layer);
    y->mix = load_heads(l, W_PROFILES, layer, spec_heads(s, layer), h, each);
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
    struct weight *matrices[] = {y->q, y->k, y->v, y->k_taps, y->v_taps, y->sinks};
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++)
        layer_free_weight(d, matrices[i]);
    d->ops->free(d->dev, y->q_scale);
    d->ops->free(d->dev, y->mix_scale);
    short_conv_free(d, &y->conv);
    layer_free_weight(d, y->mix);
    layer_free_weight(d, y->bank);
    d->ops->free(d->dev, y->none);
    d->ops->free(d->dev, y->ones);
    d->ops->free(d->dev, y->at);
    free(y);
}

/* ---------------------------------------------------------------- forward */

/* Rows of q, `stride` numbers apart, which may have those of k and v behind them; and of keys and
 * values before and after the convolution. */
struct made {
    float *q, *kv, *conv;
    uint32_t stride, kv_stride;
};

/* The products, and the convolution of keys and values. */
static struct made project(struct decoder *d, const struct profiled *y, struct sub_step *t)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens, hidden = d->spec.hidden;
    struct made r = {
        .q = work_take(&t->work, t->total, s.qkv), .stride = s.qkv, .kv_stride = s.qkv};
    r.conv = work_take(&t->work, t->total, s.k + s.v);
    layer_project(d, t->layer, &(struct projection){y->own->qkv, NULL, LORA_QKV, s.qkv}, r.q, t->in,
                  hidden, n);
    r.kv = r.q + s.q;
    short_conv_run(d, &y->conv, r.conv, r.kv, r.kv_stride);
    return r;
}

/* The same where q, k and v have inputs of their own, and tokens make weights. */
static struct made project_apart(struct decoder *d, const struct profiled *y, struct sub_step *t)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens, taps = s.kv_heads * d->spec.recur.conv;
    const size_t first = (size_t)t->first * d->spec.hidden;
    const float *k_in = d->scratch.k_in + first, *v_in = d->scratch.v_in + first;
    struct made r = {
        .q = work_take(&t->work, t->total, s.q), .stride = s.q, .kv_stride = s.k + s.v};
    r.conv = work_take(&t->work, t->total, s.k + s.v);
    r.kv = work_take(&t->work, t->total, s.k + s.v);
    float *k = work_take(&t->work, t->total, s.k), *v = work_take(&t->work, t->total, s.v);
    float *of_k = work_take(&t->work, t->total, taps), *of_v = work_take(&t->work, t->total, taps);
    float *by = work_take(&t->work, t->total, 2 * (size_t)taps);
    d->ops->linear(d->dev, r.q, t->in, n, y->q, NULL);
    d->ops->linear(d->dev, k, k_in, n, y->k, NULL);
    d->ops->linear(d->dev, v, v_in, n, y->v, NULL);
    d->ops->beside(d->dev, r.kv, k, v, n, s.k);
    d->ops->linear(d->dev, of_k, k_in, n, y->k_taps, NULL);
    d->ops->linear(d->dev, of_v, v_in, n, y->v_taps, NULL);
    d->ops->beside(d->dev, by, of_k, of_v, n, taps);
    struct short_conv conv = y->conv;
    conv.conv.by = by;
    short_conv_run(d, &conv, r.conv, r.kv, r.kv_stride);
    return r;
}

/* Makes q of its product; then writes the convolved keys and values to the cache, over those
 * before the convolution. */
static void store(struct decoder *d, const struct profiled *y, const struct sub_step *t,
                  const struct made *r)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    const float most = d->spec.profiles.clip;
    struct rope_kv p = {
        .n_heads = s.heads,
        .n_kv_heads = r->stride == s.qkv ? s.kv_heads : 0,
        .head_dim = s.dim,
        .q_norm = y->own->q_norm,
        .k_norm = y->own->k_norm,
        .v_norm = y->own->v_norm,
        .norm_eps = d->spec.norm.eps,
        .norm_kind = NORM_RMS,
        .q_scale = d->spec.layers[t->layer].q_grows ? d->scratch.q_scale + t->first : NULL,
    };
    if (most > 0) {
        d->ops->shorten(d->dev, r->q, r->stride, t->tokens, s.heads, s.dim, y->q_scale, most);
        d->ops->shorten(d->dev, r->conv, s.k + s.v, t->tokens, s.kv_heads, s.dim, NULL, most);
    }
    d->ops->rope_kv(d->dev, r->q, t->cache, t->kv, &p);
    p.n_heads = 0;
    p.n_kv_heads = s.kv_heads;
    d->ops->rope_kv(d->dev, r->conv, t->cache, t->kv, &p);
}

/* The bias of each distance of each head: [tokens][heads][buckets]. */
static float *biases(struct decoder *d, const struct profiled *y, struct sub_step *t)
{
    const uint32_t heads = attention_shape(d, t->layer).heads, dim = d->spec.profiles.dim;
    float *mix = work_take(&t->work, t->total, (size_t)heads * dim);
    float *of = work_take(&t->work, t->total, (size_t)heads * buckets(d, t->layer));
    d->ops->linear(d->dev, mix, t->in, t->tokens, y->mix, NULL);
    if (y->mix_scale)
        d->ops->shorten(d->dev, mix, heads * dim, t->tokens, heads, dim, y->mix_scale,
                        d->spec.profiles.mix_clip);
    if (d->spec.layers[t->layer].q_grows)
        d->ops->scale_heads(d->dev, mix, t->tokens, heads, dim, d->scratch.q_scale + t->first,
                            y->ones, y->none);
    d->ops->linear(d->dev, of, mix, t->tokens * heads, y->bank, NULL);
    return of;
}

/* NULL: there are none. */
static float *sinks(struct decoder *d, const struct profiled *y, struct sub_step *t)
{
    if (!y->sinks)
        return NULL;
    float *of = work_take(&t->work, t->total, attention_shape(d, t->layer).heads);
    d->ops->linear(d->dev, of, t->in, t->tokens, y->sinks, NULL);
    return of;
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct profiled *y = self;
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const struct attention_shape s = attention_shape(d, t->layer);
    const struct made r = y->q ? project_apart(d, y, t) : project(d, y, t);
    float *att = work_take(&t->work, t->total, s.sums);
    (void)e;
    store(d, y, t, &r);
    d->ops->attention(d->dev, att, r.q, r.stride, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = ls->attn_scale,
                                     .window = ls->window,
                                     .sinks = sinks(d, y, t),
                                     .sinks_by_token = true,
                                     .reach = ls->profiles,
                                     .apart = biases(d, y, t),
                                     .at = y->at,
                                     .buckets = buckets(d, t->layer),
                                     .apart_bias = y->none});
    if (y->own->gate)
        attention_gate(d, y->own, t, att);
    layer_project(d, t->layer, &(struct projection){y->own->o, NULL, LORA_O, d->spec.hidden},
                  t->out, att, s.sums, t->tokens);
    return 0;
}

const struct sublayer_ops mixer_profiles = {.name = "attention with profiles",
                                            .width = width,
                                            .load = load,
                                            .free = release,
                                            .forward = forward,
                                            .kv = attention_keeps};
