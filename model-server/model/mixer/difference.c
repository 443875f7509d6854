/* difference.c - differential attention (arXiv 2410.05258): heads are in pairs, and the result of a
 * pair is that of its first head minus a learned number times that of its second. Both attend to
 * values of two key-value heads side by side, so a head of values is twice as wide as one of keys.
 * The result is normalised.
 *
 * Key-value heads i and i + n / 2 are a pair, of which both keep the same values. Pairs are side by
 * side here, first head before second, and are split over ranks. Where a backend takes no values
 * that are wider than keys, each of these heads is two, with the same keys and queries and one half
 * of the values each. */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/mixer/recurrent.h"
#include <math.h>
#include <stdlib.h>

struct difference {
    struct weight *qkv, *o;
    float *qkv_bias, *o_bias;
    struct weight *minus; /* [group * both, 2 * group * both]: the first heads minus the second */
    struct norm norm;     /* [both] of each pair */
};

/* Sizes on this rank; `group` heads of q share a key-value head. `both`: width of a pair's values,
 * which are in `parts` heads. */
struct pairs {
    struct slice of;
    uint32_t group, dim, both, parts, v_dim, heads, kv_heads, qkv, sums;
};

static struct pairs pairs_of(const struct decoder *d)
{
    const struct decoder_spec *s = &d->spec;
    struct pairs p = {
        .of = slice_of(s->n_kv_heads / 2, (uint32_t)d->split.rank, (uint32_t)d->split.world),
        .group = s->n_heads / s->n_kv_heads,
        .dim = s->head_dim,
        .both = 2 * s->head_dim,
        .parts = d->ops->wide_values ? 1 : 2};
    p.v_dim = p.both / p.parts;
    p.kv_heads = 2 * p.of.n * p.parts;
    p.heads = p.kv_heads * p.group;
    p.qkv = (p.heads + p.kv_heads) * p.dim + p.kv_heads * p.v_dim;
    p.sums = p.heads * p.v_dim;
    return p;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct pairs p = pairs_of(d);
    return (void)layer, p.qkv + p.sums + p.sums / 2;
}

static bool keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    const struct pairs p = pairs_of(d);
    *out = (struct kv_layer){.n_heads = p.kv_heads, .k_dim = p.dim, .v_dim = p.v_dim};
    return (void)layer, true;
}

/* ---------------------------------------------------------------- load */

enum { PART_Q, PART_K, PART_V, PARTS };

/* This rank's rows of q, k and v, or of their biases: heads by pairs, and of values those of both
 * heads of the pair for each of them. */
static void add_rows(struct loader *l, struct rows *r, int layer, bool bias)
{
    static const enum role roles[PARTS] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const struct pairs p = pairs_of(l->d);
    const uint32_t half = s->n_kv_heads / 2;
    for (uint32_t part = PART_Q; part < PARTS; part++) {
        const uint32_t all = part == PART_Q ? s->n_heads : s->n_kv_heads;
        const uint32_t each = (part == PART_Q ? p.group : 1) * p.dim;
        const struct mat_part whole = loader_part(l, roles[part], layer, NO_EXPERT, bias,
                                                  (int64_t)all * p.dim, bias ? 1 : s->hidden);
        for (uint32_t i = p.of.first; i < p.of.first + p.of.n; i++)
            for (uint32_t second = 0; second < 2; second++)
                for (uint32_t v = 0; v < (part == PART_V ? 2U : p.parts); v++) {
                    const uint32_t head = i + ((part == PART_V ? v : second) ? half : 0);
                    rows_add(l, r, part, whole, (struct slice){head * each, each});
                }
    }
}

/* exp(sum of a[i] * b[i]) of vectors with whole names. */
static double lambda_part(struct loader *l, enum role role, int layer)
{
    const uint32_t n = l->d->spec.head_dim;
    const struct mat_part a = loader_table(l, role, layer, "", n, 1);
    const struct mat_part b = loader_table(l, role + 1, layer, "", n, 1);
    double sum = 0;
    for (uint32_t i = 0; a.data && b.data && i < n; i++)
        sum += (double)number_at(a.data, a.dtype, i) * (double)number_at(b.data, b.dtype, i);
    loader_drop(l);
    return exp(sum);
}

static struct weight *load_minus(struct loader *l, float lambda)
{
    const struct pairs p = pairs_of(l->d);
    const uint32_t rows = p.group * p.both, cols = 2 * rows;
    float *of = calloc((size_t)rows * cols, sizeof(*of));
    if (!of) {
        loader_nomem(l);
        return NULL;
    }
    for (size_t i = 0; i < rows; i++) {
        const size_t head = i / p.both, part = i % p.both / p.v_dim;
        const size_t from = (part * p.group + head) * p.v_dim + i % p.v_dim;
        of[i * cols + from] = 1;
        of[i * cols + rows + from] = -lambda;
    }
    struct weight *w = loader_host_matrix(l, of, rows, cols);
    free(of);
    return w;
}

/* Of results that are scaled by 1 - start. */
static struct norm load_norm(struct loader *l, float start)
{
    const uint32_t n = pairs_of(l->d).both;
    struct norm y = {.kind = NORM_RMS, .eps = l->d->spec.norm.eps};
    float *by = malloc(n * sizeof(*by));
    if (!by) {
        loader_nomem(l);
        return y;
    }
    for (uint32_t i = 0; i < n; i++)
        by[i] = 1 - start;
    y.w = loader_host_vector(l, by, n);
    free(by);
    return y;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct pairs p = pairs_of(l->d);
    const double start = 0.8 - 0.6 * exp(-0.3 * at); /* the paper's, by the layer's number */
    const int layer = (int)at;
    struct rows rows = {0}, bias = {0};
    struct difference *a = calloc(1, sizeof(*a));
    if (!a) {
        loader_nomem(l);
        return NULL;
    }
    add_rows(l, &rows, layer, false);
    a->qkv = rows_pack(l, &rows, l->d->dtype, l->d->quant);
    if (s->bias.qkv) {
        add_rows(l, &bias, layer, true);
        a->qkv_bias = rows_vector(l, &bias);
    }
    const double first = lambda_part(l, W_LAMBDA_Q, layer);
    a->minus = load_minus(l, (float)(first - lambda_part(l, W_LAMBDA_Q_MINUS, layer) + start));
    a->norm = load_norm(l, (float)start);
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * p.dim);
    o = loader_cut(o, 0, s->hidden, (int64_t)p.of.first * p.group * p.both, p.sums / 2);
    a->o = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (s->bias.o && l->d->split.rank == 0) /* added once, before the sum over ranks */
        a->o_bias = loader_bias(l, W_O, layer, s->hidden);
    return a;
}

static void release(struct decoder *d, void *self)
{
    struct difference *a = self;
    layer_free_weight(d, a->qkv);
    layer_free_weight(d, a->o);
    layer_free_weight(d, a->minus);
    d->ops->free(d->dev, a->qkv_bias);
    d->ops->free(d->dev, a->o_bias);
    layer_free_norm(d, &a->norm);
    free(a);
}

/* ---------------------------------------------------------------- forward */

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct difference *a = self;
    const struct pairs p = pairs_of(d);
    const struct layer_spec *ls = &d->spec.layers[t->layer];
    const struct rope_spec *rope = &d->spec.rope[ls->rope];
    const uint32_t n = t->tokens;
    float *qkv = work_take(&t->work, n, p.qkv), *sums = work_take(&t->work, n, p.sums);
    float *result = work_take(&t->work, n, p.sums / 2);
    const float *turns = d->scratch.rope[ls->rope] + (size_t)t->first * rope->dim;
    (void)e;
    d->ops->linear(d->dev, qkv, t->in, n, a->qkv, a->qkv_bias);
    d->ops->rope_kv(d->dev, qkv, t->cache, t->kv,
                    &(struct rope_kv){.n_heads = p.heads,
                                      .n_kv_heads = p.kv_heads,
                                      .head_dim = p.dim,
                                      .rot_dim = rope->kind ? rope->dim : 0,
                                      .rope = rope->kind ? turns : NULL});
    d->ops->attention(d->dev, sums, qkv, p.qkv, t->cache, t->kv,
                      &(struct attn){.n_heads = p.heads,
                                     .n_kv_heads = p.kv_heads,
                                     .head_dim = p.dim,
                                     .scale = ls->attn_scale});
    d->ops->linear(d->dev, result, sums, n * p.of.n, a->minus, NULL);
    d->ops->norm(d->dev, result, result, n * p.of.n * p.group, p.both, &a->norm);
    const struct projection out = {a->o, a->o_bias, LORA_O, d->spec.hidden};
    layer_project(d, t->layer, &out, t->out, result, p.sums / 2, n);
    return 0;
}

const struct sublayer_ops mixer_difference = {.name = "differential attention",
                                              .width = width,
                                              .load = load,
                                              .free = release,
                                              .stateless = layer_stateless,
                                              .forward = forward,
                                              .kv = keeps};
