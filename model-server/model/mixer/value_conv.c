/* value_conv.c - attention, to whose result each head adds a convolution over the tokens of its own
 * values (Nystroemformer, arXiv 2102.03902, equation 13 and figure 2). Published files attend to
 * all tokens: with as many landmarks as a segment has tokens nothing is approximated. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/taps.h"
#include <assert.h>
#include <stdlib.h>

enum { Q, K, V, PRODUCTS };

struct value_conv {
    struct weight *w[PRODUCTS], *o; /* of this rank's heads */
    float *bias[PRODUCTS], *o_bias; /* o_bias: of rank 0 alone */
    float *by[TAPS_MOST];           /* [taps] of [heads * dim] */
    struct neighbours *rows;        /* grow while it runs */
};

/* q; k and v, apart and side by side; what attention and the convolution add up to. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    return s.q + 2 * (s.k + s.v) + 3 * s.sums;
}

/* ---------------------------------------------------------------- loading */

static void load_products(struct loader *l, struct value_conv *y, int layer, struct slice rows)
{
    static const enum role roles[PRODUCTS] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const int64_t all = (int64_t)s->n_heads * s->head_dim;
    for (int i = 0; i < PRODUCTS; i++) {
        struct mat_part p = loader_rows(
            loader_part(l, roles[i], layer, NO_EXPERT, false, all, s->hidden), rows.first, rows.n);
        y->w[i] = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
        p = loader_rows(loader_part(l, roles[i], layer, NO_EXPERT, true, all, 1), rows.first,
                        rows.n);
        y->bias[i] = loader_vector(l, &p, 1, 0);
    }
    struct mat_part o = loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, all);
    o = loader_cut(o, 0, s->hidden, rows.first, rows.n);
    y->o = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (!l->failed && l->d->split.rank == 0)
        y->o_bias = loader_bias(l, W_O, layer, s->hidden);
}

/* A head's number of a neighbour, for each number of its values. */
static void load_conv(struct loader *l, struct value_conv *y, int layer, struct slice h)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim, taps = s->value_conv.taps;
    float *w = loader_floats(l, W_VALUE_CONV, layer, NO_EXPERT, ".weight", s->n_heads, taps);
    float *of = malloc((size_t)h.n * dim * sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (uint32_t j = 0; of && !l->failed && j < taps; j++) {
        for (size_t i = 0; i < (size_t)h.n * dim; i++)
            of[i] = w[(h.first + i / dim) * taps + j];
        y->by[j] = loader_host_vector(l, of, h.n * dim);
    }
    free(w), free(of);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_heads(&l->d->split, s, at);
    struct value_conv *y = calloc(1, sizeof(*y));
    if (!y || !(y->rows = calloc(1, sizeof(*y->rows)))) {
        loader_nomem(l);
        return y;
    }
    load_products(l, y, (int)at, (struct slice){h.first * s->head_dim, h.n * s->head_dim});
    load_conv(l, y, (int)at, h);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct value_conv *y = self;
    for (int i = 0; i < PRODUCTS; i++) {
        layer_free_weight(d, y->w[i]);
        d->ops->free(d->dev, y->bias[i]);
    }
    layer_free_weight(d, y->o);
    d->ops->free(d->dev, y->o_bias);
    for (uint32_t j = 0; j < d->spec.value_conv.taps; j++)
        d->ops->free(d->dev, y->by[j]);
    if (y->rows)
        neighbours_free(y->rows);
    free(y->rows);
    free(y);
}

/* ---------------------------------------------------------------- running */

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct value_conv *y = self;
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens;
    float *of[PRODUCTS] = {work_take(&t->work, n, s.q), work_take(&t->work, n, s.k),
                           work_take(&t->work, n, s.v)};
    float *kv = work_take(&t->work, n, s.k + s.v), *att = work_take(&t->work, n, s.sums);
    float *sum = work_take(&t->work, n, s.sums), *part = work_take(&t->work, n, s.sums);
    assert(n == d->step->n_tokens && s.k == s.v && s.v == s.sums);
    for (int i = 0; i < PRODUCTS; i++)
        d->ops->linear(d->dev, of[i], t->in, n, y->w[i], y->bias[i]);
    d->ops->beside(d->dev, kv, of[K], of[V], n, s.k);
    d->ops->rope_kv(d->dev, kv, t->cache, t->kv,
                    &(struct rope_kv){.n_kv_heads = s.kv_heads, .head_dim = s.dim});
    d->ops->attention(d->dev, att, of[Q], s.q, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = d->spec.layers[t->layer].attn_scale,
                                     .both = d->spec.both_ways});
    if (neighbours_sum(d, y->rows, d->step, sum, of[V], s.v, y->by, d->spec.value_conv.taps, part,
                       e))
        return -1;
    d->ops->add_norm(d->dev, NULL, att, sum, 1, n, s.sums, NULL);
    d->ops->linear(d->dev, t->out, att, n, y->o, y->o_bias);
    return 0;
}

const struct sublayer_ops mixer_value_conv = {.name = "value_conv",
                                              .width = width,
                                              .load = load,
                                              .free = release,
                                              .stateless = layer_stateless,
                                              .forward = forward,
                                              .kv = attention_keeps};
