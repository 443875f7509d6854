/* cca.c - compressed convolutional attention (arXiv 2510.04476): attention whose queries and keys
 * pass two causal convolutions, one of each channel, then one of the channels of each head. A
 * query's half and half of its key are added to both, and half of the values are those of the token
 * before. Keys and values are in the cache; what the convolutions and values read of earlier tokens
 * is in a cell.
 *
 * The second convolution is a matrix of each head for each of its taps, whose input is the first
 * convolution so many tokens earlier: a convolution that has more taps, of which the last are 0.
 * Heads are split over ranks by groups of a key-value head: a key needs all queries of its group.
 */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/mixer/recurrent.h"
#include <float.h>
#include <stdlib.h>

enum { MOST_TAPS = CONV_MOST };

/* Queries, or keys, of this rank. */
struct side {
    uint32_t heads, channels;
    struct weight *product; /* [channels, hidden] */
    float *bias;            /* [channels] or NULL */
    struct short_conv half; /* half of the product, and the bias of the second convolution */
    struct short_conv tap[MOST_TAPS];
    struct weight **matrix[MOST_TAPS]; /* [heads] of [dim, dim] */
    /* What the other side adds, of each group: keys to queries [group * dim, dim], or the mean of
     * queries to the key [dim, group * dim]. */
    struct weight *other;
    float *norm; /* [channels] */
};

struct cca {
    struct side q, k;
    struct weight *v, *o;
    struct short_conv
        late; /* of values: those of the token, or of the one before, and their bias */
    float *o_bias;
    uint32_t taps;
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t dim = d->spec.head_dim, q = split_heads(&d->split, &d->spec, layer).n * dim;
    return 5 * q + 6 * split_kv_heads(&d->split, &d->spec, layer).n * dim;
}

static bool keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    *out = (struct kv_layer){.n_heads = split_kv_heads(&d->split, &d->spec, layer).n,
                             .k_dim = d->spec.head_dim,
                             .v_dim = d->spec.head_dim};
    return true;
}

/* ---------------------------------------------------------------- load */

/* A convolution of `width` taps, which the caller frees: all 0. */
static float *no_taps(struct loader *l, uint32_t width, uint32_t channels)
{
    float *taps = calloc((size_t)width * channels, sizeof(*taps));
    if (!taps)
        loader_nomem(l);
    return taps;
}

/* Bias of a convolution: elements `of` of all channels. */
static float *conv_bias(struct loader *l, enum role role, int layer, struct slice of)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t all = (s->n_heads + s->n_kv_heads) * s->head_dim;
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, true, all, 1);
    p = loader_rows(p, of.first, of.n);
    return loader_vector(l, &p, 1, 0);
}

/* The first convolution of channels `of`, `later` tokens earlier. */
static void load_tap(struct loader *l, struct short_conv *c, int layer, struct slice of,
                     uint32_t later)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->cca.first, least = 2, all = (s->n_heads + s->n_kv_heads) * s->head_dim;
    const uint32_t width = n + later > least ? n + later : least;
    const struct mat_part w = loader_table(l, W_MIX_CONV, layer, ".weight", all, n);
    float *taps = no_taps(l, width, of.n);
    for (uint32_t i = 0; taps && w.data && i < n; i++)
        for (uint32_t j = 0; j < of.n; j++)
            taps[(size_t)(width - later - n + i) * of.n + j] =
                number_at(w.data, w.dtype, (int64_t)(of.first + j) * n + i);
    short_conv_take(l, c, taps, width, of.n);
    loader_drop(l);
    c->conv.bias = conv_bias(l, W_MIX_CONV, layer, of);
}

/* Matrices of the second convolution's tap `later` tokens earlier, of this side's heads. */
static void load_matrices(struct loader *l, struct side *y, int layer, uint32_t first,
                          uint32_t later)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->cca.second, dim = s->head_dim;
    const int64_t all = (int64_t)(s->n_heads + s->n_kv_heads) * dim;
    struct weight **to = y->matrix[later] = calloc(y->heads, sizeof(struct weight *));
    if (!to) {
        loader_nomem(l);
        return;
    }
    const struct mat_part whole =
        loader_table(l, W_MIX_CONV_HEADS, layer, ".weight", all, (int64_t)dim * n);
    l->hold = true;
    for (uint32_t h = 0; h < y->heads && !l->failed; h++) {
        struct mat_part p = loader_cut(whole, (int64_t)(first + h) * dim, dim, n - 1 - later, 1);
        p.cols = dim;
        p.col_stride = n;
        to[h] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
}

/* Half of the product, and the bias of the second convolution. */
static void load_half(struct loader *l, struct side *y, int layer, struct slice of)
{
    float *taps = no_taps(l, 2, of.n);
    for (uint32_t i = 0; taps && i < of.n; i++)
        taps[of.n + i] = 0.5f;
    short_conv_take(l, &y->half, taps, 2, of.n);
    y->half.conv.bias = conv_bias(l, W_MIX_CONV_HEADS, layer, of);
}

/* `value` times identities of dim: `down` below each other, or side by side. */
static struct weight *identities(struct loader *l, uint32_t n, bool down, float value)
{
    const uint32_t dim = l->d->spec.head_dim, cols = down ? dim : n * dim;
    const uint32_t rows = down ? n * dim : dim;
    float *of = calloc((size_t)rows * cols, sizeof(*of));
    if (!of) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; i < n * dim; i++)
        of[down ? (size_t)i * cols + i % dim : (size_t)(i % dim) * cols + i] = value;
    struct weight *w = loader_host_matrix(l, of, rows, cols);
    free(of);
    return w;
}

/* `heads` of all heads of this kind; `before`: channels of all heads of the kind before. */
static void load_side(struct loader *l, struct side *y, int layer, enum role role,
                      struct slice heads, uint32_t all, uint32_t before)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim;
    const struct slice rows = scaled(heads, dim, 0), channels = scaled(heads, dim, before);
    y->heads = heads.n;
    y->channels = rows.n;
    struct mat_part p =
        loader_part(l, role, layer, NO_EXPERT, false, (int64_t)all * dim, s->hidden);
    p = loader_rows(p, rows.first, rows.n);
    y->product = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    if (s->bias.qkv) {
        p = loader_part(l, role, layer, NO_EXPERT, true, (int64_t)all * dim, 1);
        p = loader_rows(p, rows.first, rows.n);
        y->bias = loader_vector(l, &p, 1, 0);
    }
    load_half(l, y, layer, channels);
    for (uint32_t i = 0; i < s->cca.second; i++) {
        load_tap(l, &y->tap[i], layer, channels, i);
        load_matrices(l, y, layer, channels.first / dim, i);
    }
}

/* This rank's rows of the values' matrices, or of their biases: those of the token first, then
 * those of the one before. Returns how many parts they are. */
static int value_parts(struct loader *l, int layer, bool bias, struct slice rows,
                       struct mat_part p[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t half = s->n_kv_heads * s->head_dim / 2, end = rows.first + rows.n;
    int n = 0;
    for (int late = 0; late < 2; late++) {
        const struct mat_part all = loader_part(l, late ? W_V_LATE : W_V, layer, NO_EXPERT, bias,
                                                half, bias ? 1 : s->hidden);
        const uint32_t from = late ? half : 0, to = from + half;
        const uint32_t first = rows.first > from ? rows.first : from, last = end < to ? end : to;
        if (first < last)
            p[n++] = loader_rows(all, first - from, last - first);
    }
    return n;
}

static void load_values(struct loader *l, struct cca *a, int layer, struct slice heads)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice rows = scaled(heads, s->head_dim, 0);
    const uint32_t half = s->n_kv_heads * s->head_dim / 2;
    struct mat_part p[2];
    int n = value_parts(l, layer, false, rows, p);
    a->v = loader_pack(l, p, n, l->d->dtype, l->d->quant);
    float *taps = no_taps(l, 2, rows.n);
    for (uint32_t i = 0; taps && i < rows.n; i++)
        taps[(rows.first + i < half ? rows.n : 0) + i] = 1;
    short_conv_take(l, &a->late, taps, 2, rows.n);
    if (!s->bias.qkv)
        return;
    n = value_parts(l, layer, true, rows, p);
    a->late.conv.bias = loader_vector(l, p, n, 0);
}

/* The number of each key-value head, for all of its channels. */
static float *load_key_norm(struct loader *l, int layer, struct slice heads)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mat_part p = loader_table(l, W_K_SCALE, layer, "", s->n_kv_heads, 1);
    float *host = calloc((size_t)heads.n * s->head_dim, sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = 0; p.data && i < heads.n * s->head_dim; i++)
        host[i] = number_at(p.data, p.dtype, heads.first + i / s->head_dim);
    float *v = loader_host_vector(l, host, heads.n * s->head_dim);
    free(host);
    loader_drop(l);
    return v;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_heads(&l->d->split, s, at),
                       g = split_kv_heads(&l->d->split, s, at);
    const uint32_t group = s->n_heads / s->n_kv_heads, dim = s->head_dim;
    const int layer = (int)at;
    struct cca *a = calloc(1, sizeof(*a));
    if (!a) {
        loader_nomem(l);
        return NULL;
    }
    a->taps = s->cca.second;
    load_side(l, &a->q, layer, W_Q, h, s->n_heads, 0);
    load_side(l, &a->k, layer, W_K, g, s->n_kv_heads, s->n_heads * dim);
    a->q.other = identities(l, group, true, 0.5f);
    a->k.other = identities(l, group, false, 0.5f / (float)group);
    a->q.norm = loader_ones(l, dim);
    a->k.norm = load_key_norm(l, layer, g);
    load_values(l, a, layer, g);
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * dim);
    o = loader_cut(o, 0, s->hidden, (int64_t)h.first * dim, (int64_t)h.n * dim);
    a->o = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (s->bias.o && l->d->split.rank == 0) /* added once, before the sum over ranks */
        a->o_bias = loader_bias(l, W_O, layer, s->hidden);
    return a;
}

static void release_side(struct decoder *d, struct side *y)
{
    layer_free_weight(d, y->product);
    layer_free_weight(d, y->other);
    d->ops->free(d->dev, y->bias);
    d->ops->free(d->dev, y->norm);
    short_conv_free(d, &y->half);
    for (int i = 0; i < MOST_TAPS; i++) {
        short_conv_free(d, &y->tap[i]);
        for (uint32_t h = 0; y->matrix[i] && h < y->heads; h++)
            layer_free_weight(d, y->matrix[i][h]);
        free(y->matrix[i]);
    }
}

static void release(struct decoder *d, void *self)
{
    struct cca *a = self;
    release_side(d, &a->q);
    release_side(d, &a->k);
    short_conv_free(d, &a->late);
    layer_free_weight(d, a->v);
    layer_free_weight(d, a->o);
    d->ops->free(d->dev, a->o_bias);
    free(a);
}

/* ---------------------------------------------------------------- forward */

/* Two rows of scratch memory, as wide as queries. */
struct spare {
    float *conv, *sum;
};

/* y = the convolutions of a side's products `own`, plus half of these and of the other side's,
 * `other`, of which `cols` numbers are of a group. */
static void convolve(struct decoder *d, const struct cca *a, const struct side *y, float *to,
                     const float *own, const float *other, uint32_t tokens, struct spare w)
{
    const uint32_t groups = tokens * a->k.heads;
    short_conv_run(d, &y->half, to, own, y->channels);
    for (uint32_t i = 0; i < a->taps; i++) {
        short_conv_run(d, &y->tap[i], w.conv, own, y->channels);
        d->ops->linear_heads(d->dev, w.sum, w.conv, tokens, y->matrix[i], y->heads);
        d->ops->add_norm(d->dev, NULL, to, w.sum, 1, tokens, y->channels, NULL);
    }
    d->ops->linear(d->dev, w.sum, other, groups, y->other, NULL);
    d->ops->add_norm(d->dev, NULL, to, w.sum, 1, tokens, y->channels, NULL);
}

/* Normalises heads to the root of their width and rotates them; keys and values, of
 * `kv_heads`, are written to the cache. */
static void rotate(struct decoder *d, const struct cca *a, const struct sub_step *t, float *rows,
                   uint32_t heads, uint32_t kv_heads)
{
    const uint32_t turn = d->spec.layers[t->layer].rope, dim = d->spec.head_dim;
    const struct rope_spec *rope = &d->spec.rope[turn];
    const float *turns = d->scratch.rope[turn] + (size_t)t->first * rope->dim;
    d->ops->rope_kv(d->dev, rows, t->cache, t->kv,
                    &(struct rope_kv){.n_heads = heads,
                                      .n_kv_heads = kv_heads,
                                      .head_dim = dim,
                                      .rot_dim = rope->kind ? rope->dim : 0,
                                      .rope = rope->kind ? turns : NULL,
                                      .q_norm = a->q.norm,
                                      .k_norm = a->k.norm,
                                      .norm_by_head = heads == 0,
                                      .norm_eps = FLT_EPSILON * FLT_EPSILON / (float)dim,
                                      .norm_kind = NORM_RMS});
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct cca *a = self;
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const uint32_t n = t->tokens, hidden = d->spec.hidden, kv = a->k.channels, all = a->q.channels;
    float *q = work_take(&t->work, n, all), *k = work_take(&t->work, n, kv);
    float *v = work_take(&t->work, n, kv), *new_q = work_take(&t->work, n, all);
    float *new_k = work_take(&t->work, n, kv), *new_v = work_take(&t->work, n, kv);
    float *rows = work_take(&t->work, n, 2 * (size_t)kv), *att = work_take(&t->work, n, all);
    const struct spare w = {work_take(&t->work, n, all), work_take(&t->work, n, all)};
    (void)e;
    d->ops->linear(d->dev, q, t->in, n, a->q.product, a->q.bias);
    d->ops->linear(d->dev, k, t->in, n, a->k.product, a->k.bias);
    d->ops->linear(d->dev, v, t->in, n, a->v, NULL);
    convolve(d, a, &a->q, new_q, q, k, n, w);
    convolve(d, a, &a->k, new_k, k, q, n, w);
    short_conv_run(d, &a->late, new_v, v, kv);
    d->ops->beside(d->dev, rows, new_k, new_v, n, kv);
    rotate(d, a, t, new_q, a->q.heads, 0);
    rotate(d, a, t, rows, 0, a->k.heads);
    d->ops->attention(d->dev, att, new_q, all, t->cache, t->kv,
                      &(struct attn){.n_heads = a->q.heads,
                                     .n_kv_heads = a->k.heads,
                                     .head_dim = d->spec.head_dim,
                                     .scale = ls->attn_scale,
                                     .window = ls->window});
    const struct projection p = {a->o, a->o_bias, LORA_O, hidden};
    layer_project(d, t->layer, &p, t->out, att, all, n);
    return 0;
}

const struct sublayer_ops mixer_cca = {.name = "compressed convolutional attention",
                                       .width = width,
                                       .load = load,
                                       .free = release,
                                       .forward = forward,
                                       .kv = keeps};
