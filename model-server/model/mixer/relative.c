/* relative.c - attention by content and by distance (Transformer-XL, arXiv 1901.02860; XLNet, arXiv
 * 1906.08237): a query has three summands of its own, for keys, for vectors of distances and for
 * the vectors of equal and of other token types. Sines and cosines of a distance, times a matrix of
 * the layer, are its vector.
 *
 * Queries get the first summand with their bias. What the others differ from it by, times the
 * vectors, is one number for each head and vector. That of equal types is the same for all keys but
 * those of other types, so only the difference of both counts. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include <math.h>
#include <stdlib.h>

struct relative {
    struct weight *q, *kv, *o;
    float *q_bias;
    struct weight **vectors; /* [heads] of [buckets, head_dim] */
    uint32_t heads;
    float *bias;  /* [heads][buckets] */
    uint32_t *at; /* [2 * reach + 1] */
};

/* One of each distance, and the difference of types. */
static uint32_t buckets(const struct decoder *d) { return 2 * d->spec.relative.reach + 2; }

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    return s.qkv + s.sums + s.heads * buckets(d);
}

/* ---------------------------------------------------------------- loading */

/* This rank's rows of a matrix that is stored [hidden, heads, head_dim]. */
static struct mat_part heads_of(struct loader *l, enum role role, int layer, struct slice h)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim;
    const struct mat_part p =
        loader_table(l, role, layer, "", s->hidden, (int64_t)s->n_heads * dim);
    return loader_rows(loader_turned(p), h.first * dim, h.n * dim);
}

/* Sines (side 0) or cosines (side 1) of a distance, times their rows of the matrix [hidden][n]. */
static void project(const float *matrix, uint32_t hidden, uint32_t n, uint32_t far, uint32_t side,
                    float *out)
{
    const uint32_t half = hidden / 2;
    for (uint32_t i = 0; i < n; i++)
        out[i] = 0;
    for (uint32_t k = 0; k < half; k++) {
        const float rate = 1 / powf(10000, (float)(2 * k) / (float)hidden);
        const float angle = (float)far * rate, x = side ? cosf(angle) : sinf(angle);
        const float *row = matrix + (size_t)(side * half + k) * n;
        for (uint32_t i = 0; i < n; i++)
            out[i] += x * row[i];
    }
}

/* Vectors of all distances of all heads, [buckets][heads * head_dim]: those of both signs have the
 * same cosines and opposite sines. The last one is that of other types minus that of equal ones. */
static void fill_vectors(const struct decoder *d, const float *matrix, const float *types,
                         float *out)
{
    const uint32_t n = d->spec.n_heads * d->spec.head_dim, reach = d->spec.relative.reach;
    float *sines = out + (size_t)(buckets(d) - 1) * n;
    for (uint32_t far = 0; far <= reach; far++) {
        float *plus = out + (size_t)(reach + far) * n, *minus = out + (size_t)(reach - far) * n;
        project(matrix, d->spec.hidden, n, far, 0, sines);
        project(matrix, d->spec.hidden, n, far, 1, plus);
        for (uint32_t i = 0; i < n; i++) {
            const float even = plus[i];
            minus[i] = even - sines[i];
            plus[i] = even + sines[i];
        }
    }
    for (uint32_t i = 0; i < n; i++)
        sines[i] = types[n + i] - types[i];
}

/* What summands of q other than that of keys add, for this rank's heads. */
static void load_bias(struct loader *l, struct relative *y, int layer, const float *vectors,
                      struct slice h)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim, n = s->n_heads * dim, all = buckets(l->d);
    float *key = loader_floats(l, W_RELATIVE_KEY_BIAS, layer, NO_EXPERT, "", n, 1);
    float *far = loader_floats(l, W_RELATIVE_BIAS, layer, NO_EXPERT, "", n, 1);
    float *type = loader_floats(l, W_RELATIVE_TYPE_BIAS, layer, NO_EXPERT, "", n, 1);
    float *of = calloc((size_t)h.n * all, sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (uint32_t i = 0; of && !l->failed && i < h.n; i++)
        for (uint32_t b = 0; b < all; b++) {
            double sum = 0;
            for (uint32_t k = (h.first + i) * dim; k < (h.first + i + 1) * dim; k++)
                sum += ((double)(b + 1 < all ? far : type)[k] - (double)key[k]) *
                       (double)vectors[(size_t)b * n + k];
            of[(size_t)i * all + b] = (float)sum;
        }
    if (!l->failed) {
        y->q_bias = loader_host_vector(l, key + (size_t)h.first * dim, h.n * dim);
        y->bias = loader_host_vector(l, of, h.n * all);
    }
    free(key), free(far), free(type), free(of);
}

static void load_vectors(struct loader *l, struct relative *y, int layer, struct slice h)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim, n = s->n_heads * dim, all = buckets(l->d);
    float *matrix = loader_floats(l, W_RELATIVE, layer, NO_EXPERT, "", s->hidden, n);
    float *types = loader_floats(l, W_RELATIVE_TYPES, layer, NO_EXPERT, "", 2, n);
    float *of = calloc((size_t)all * n, sizeof(*of));
    if (!of || !y->vectors)
        loader_nomem(l);
    if (of && !l->failed) {
        fill_vectors(l->d, matrix, types, of);
        load_bias(l, y, layer, of, h);
    }
    for (uint32_t i = 0; of && !l->failed && i < h.n; i++) {
        struct mat_part p = {.data = of + (size_t)(h.first + i) * dim,
                             .dtype = DT_F32,
                             .rows = all,
                             .cols = dim,
                             .row_stride = n,
                             .col_stride = 1};
        y->vectors[i] = loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
    }
    free(matrix), free(types), free(of);
}

static void load_at(struct loader *l, struct relative *y)
{
    const size_t n = 2 * (size_t)l->d->spec.relative.reach + 1;
    uint32_t *at = malloc(n * sizeof(*at));
    if (!at) {
        loader_nomem(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        at[i] = (uint32_t)i;
    y->at = loader_host_numbers(l, at, n);
    free(at);
}

static void *load(struct loader *l, uint32_t at)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const int layer = (int)at;
    const uint32_t dim = s->head_dim;
    const struct slice h = split_heads(&d->split, s, at);
    struct relative *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->heads = h.n;
    y->vectors = calloc(h.n, sizeof(struct weight *));
    struct mat_part parts[2] = {heads_of(l, W_Q, layer, h)};
    y->q = loader_pack(l, parts, 1, d->dtype, d->quant);
    parts[0] = heads_of(l, W_K, layer, h);
    parts[1] = heads_of(l, W_V, layer, h);
    y->kv = loader_pack(l, parts, 2, d->dtype, d->quant);
    parts[0] = loader_table(l, W_O, layer, "", s->hidden, (int64_t)s->n_heads * dim);
    parts[0] = loader_cut(parts[0], 0, s->hidden, (int64_t)h.first * dim, (int64_t)h.n * dim);
    y->o = loader_pack(l, parts, 1, d->dtype, d->quant);
    load_vectors(l, y, layer, h);
    load_at(l, y);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct relative *y = self;
    layer_free_weight(d, y->q), layer_free_weight(d, y->kv), layer_free_weight(d, y->o);
    for (uint32_t i = 0; y->vectors && i < y->heads; i++)
        layer_free_weight(d, y->vectors[i]);
    d->ops->free(d->dev, y->q_bias);
    d->ops->free(d->dev, y->bias);
    d->ops->free(d->dev, y->at);
    free(y->vectors);
    free(y);
}

/* ---------------------------------------------------------------- running */

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct relative *y = self;
    const struct decoder_spec *m = &d->spec;
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens;
    float *q = work_take(&t->work, n, s.q), *kv = work_take(&t->work, n, s.k + s.v);
    float *att = work_take(&t->work, n, s.sums);
    float *tables = work_take(&t->work, n, (size_t)s.heads * buckets(d));
    (void)e;
    d->ops->linear(d->dev, q, t->in, n, y->q, y->q_bias);
    d->ops->linear(d->dev, kv, t->in, n, y->kv, NULL);
    d->ops->rope_kv(d->dev, kv, t->cache, t->kv,
                    &(struct rope_kv){.n_kv_heads = s.kv_heads, .head_dim = s.dim});
    d->ops->linear_heads(d->dev, tables, q, n, y->vectors, s.heads);
    d->ops->attention(d->dev, att, q, s.q, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = m->layers[t->layer].attn_scale,
                                     .reach = m->relative.reach,
                                     .apart = tables,
                                     .at = y->at,
                                     .buckets = buckets(d),
                                     .apart_bias = y->bias,
                                     .kinds = d->scratch.kinds + t->first,
                                     .both = m->both_ways});
    d->ops->linear(d->dev, t->out, att, n, y->o, NULL);
    return 0;
}

const struct sublayer_ops mixer_relative = {.name = "relative",
                                            .width = width,
                                            .load = load,
                                            .free = release,
                                            .stateless = layer_stateless,
                                            .forward = forward,
                                            .kv = attention_keeps};
