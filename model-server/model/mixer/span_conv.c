/* span_conv.c - attention, and beside it a convolution whose kernels depend on the text (ConvBERT,
 * arXiv 2008.02496). A convolution of the layer's input times the query makes, for each head, a
 * softmax over `taps` neighbours: the kernel by which that head's values of them are summed. One
 * matrix makes the result of attention's heads and of those of the convolution.
 *
 * The first convolution has a number of each channel and neighbour before its matrix. For the
 * second one, values are moved by each number of tokens, and a matrix of ones repeats a neighbour's
 * weight over its head. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/taps.h"
#include <assert.h>
#include <stdlib.h>

static const float NEVER = -1e30F; /* a logit without weight */

struct span_conv {
    struct weight *qkv, *kernel, *value, *o;
    float *qkv_bias, *kernel_bias, *value_bias, *o_bias; /* kernel and o: of rank 0 alone */
    struct weight *repeat[TAPS_MOST];                    /* [taps] of [heads * dim, all kernels] */
    float *depth[TAPS_MOST];                             /* [taps] of [hidden] */
    struct weight *point;                                /* [heads * dim, hidden] */
    float *point_bias;
    struct neighbours *rows; /* grow while it runs */
};

/* Weights of a kernel, the last of which may be 0: sums over ranks are of multiples of 4. */
static uint32_t kernel_width(const struct decoder *d)
{
    return (d->spec.span_conv.taps + 3) / 4 * 4;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    return s.qkv + 7 * s.sums + d->spec.n_heads * kernel_width(d) + 2 * d->spec.hidden;
}

/* ---------------------------------------------------------------- loading */

/* This rank's heads of q, k and v. */
static void load_qkv(struct loader *l, struct span_conv *y, int layer, struct slice rows)
{
    static const enum role roles[] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const int64_t all = (int64_t)s->n_heads * s->head_dim;
    struct mat_part parts[3];
    for (int bias = 0; bias < 2; bias++) {
        for (int i = 0; i < 3; i++)
            parts[i] = loader_rows(
                loader_part(l, roles[i], layer, NO_EXPERT, bias, all, bias ? 1 : s->hidden),
                rows.first, rows.n);
        if (bias)
            y->qkv_bias = loader_vector(l, parts, 3, 0);
        else
            y->qkv = loader_pack(l, parts, 3, l->d->dtype, l->d->quant);
    }
}

/* A number of each channel and neighbour, then this rank's rows of a matrix. */
static void load_keys(struct loader *l, struct span_conv *y, int layer, struct slice rows)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t hidden = s->hidden, n = s->span_conv.taps, all = s->n_heads * s->head_dim;
    float *depth = loader_floats(l, W_SPAN_DEPTH, layer, NO_EXPERT, ".weight", hidden, n);
    float *bias = loader_floats(l, W_SPAN_BIAS, layer, NO_EXPERT, "", all, 1);
    float *of = malloc(hidden * sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (uint32_t j = 0; of && !l->failed && j < n; j++) {
        for (size_t c = 0; c < hidden; c++)
            of[c] = depth[c * n + j];
        y->depth[j] = loader_host_vector(l, of, hidden);
    }
    if (!l->failed)
        y->point_bias = loader_host_vector(l, bias + rows.first, rows.n);
    free(depth), free(bias), free(of);
    struct mat_part p = loader_rows(loader_table(l, W_SPAN_POINT, layer, ".weight", all, hidden),
                                    rows.first, rows.n);
    y->point = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* The columns of this rank's heads make a part of the logits of all kernels. */
static void load_kernel(struct loader *l, struct span_conv *y, int layer, struct slice cols)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->span_conv.taps, all = s->n_heads * s->head_dim, each = kernel_width(l->d);
    const int64_t kernels = (int64_t)s->n_heads * n;
    float *w = loader_floats(l, W_SPAN_KERNEL, layer, NO_EXPERT, ".weight", kernels, all);
    float *b = loader_floats(l, W_SPAN_KERNEL, layer, NO_EXPERT, ".bias", kernels, 1);
    float *of = calloc((size_t)s->n_heads * each * cols.n, sizeof(*of));
    float *bias = calloc((size_t)s->n_heads * each, sizeof(*bias));
    if (!of || !bias)
        loader_nomem(l);
    for (size_t r = 0; of && bias && !l->failed && r < (size_t)s->n_heads * each; r++) {
        const size_t tap = r % each, from = r / each * n + tap;
        bias[r] = tap < n ? b[from] : NEVER;
        for (size_t c = 0; tap < n && c < cols.n; c++)
            of[r * cols.n + c] = w[from * all + cols.first + c];
    }
    if (!l->failed)
        y->kernel = loader_host_matrix(l, of, (int64_t)s->n_heads * each, cols.n);
    if (!l->failed && l->d->split.rank == 0)
        y->kernel_bias = loader_host_vector(l, bias, s->n_heads * each);
    free(w), free(b), free(of), free(bias);
}

static void load_repeat(struct loader *l, struct span_conv *y, struct slice heads)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t dim = s->head_dim, each = kernel_width(l->d);
    const size_t rows = (size_t)heads.n * dim, cols = (size_t)s->n_heads * each;
    for (uint32_t j = 0; j < s->span_conv.taps && !l->failed; j++) {
        float *of = calloc(rows * cols, sizeof(*of));
        if (!of) {
            loader_nomem(l);
            return;
        }
        for (size_t r = 0; r < rows; r++)
            of[r * cols + (heads.first + r / dim) * each + j] = 1;
        y->repeat[j] = loader_host_matrix(l, of, (int64_t)rows, (int64_t)cols);
        free(of);
    }
}

/* Columns of attention's heads, then those of the convolution's. */
static void load_out(struct loader *l, struct span_conv *y, int layer, struct slice cols)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t all = s->n_heads * s->head_dim, hidden = s->hidden;
    float *w = loader_floats(l, W_O, layer, NO_EXPERT, ".weight", hidden, 2 * (int64_t)all);
    float *of = malloc((size_t)hidden * 2 * cols.n * sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (size_t i = 0; of && !l->failed && i < 2 * (size_t)hidden; i++) /* a row, then its half */
        for (size_t c = 0; c < cols.n; c++)
            of[i * cols.n + c] = w[i * all + cols.first + c];
    if (!l->failed)
        y->o = loader_host_matrix(l, of, hidden, 2 * (int64_t)cols.n);
    if (!l->failed && l->d->split.rank == 0)
        y->o_bias = loader_bias(l, W_O, layer, hidden);
    free(w), free(of);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const int layer = (int)at;
    const struct slice h = split_heads(&l->d->split, s, at);
    const struct slice rows = {h.first * s->head_dim, h.n * s->head_dim};
    const int64_t all = (int64_t)s->n_heads * s->head_dim;
    struct span_conv *y = calloc(1, sizeof(*y));
    if (!y || !(y->rows = calloc(1, sizeof(*y->rows)))) {
        loader_nomem(l);
        return y;
    }
    load_qkv(l, y, layer, rows);
    load_keys(l, y, layer, rows);
    load_kernel(l, y, layer, rows);
    load_repeat(l, y, h);
    struct mat_part p = loader_rows(
        loader_part(l, W_SPAN_VALUE, layer, NO_EXPERT, false, all, s->hidden), rows.first, rows.n);
    y->value = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    p = loader_rows(loader_part(l, W_SPAN_VALUE, layer, NO_EXPERT, true, all, 1), rows.first,
                    rows.n);
    y->value_bias = loader_vector(l, &p, 1, 0);
    load_out(l, y, layer, rows);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct span_conv *y = self;
    struct weight *const of[] = {y->qkv, y->kernel, y->value, y->o, y->point};
    float *const biases[] = {y->qkv_bias, y->kernel_bias, y->value_bias, y->o_bias, y->point_bias};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        layer_free_weight(d, of[i]);
        d->ops->free(d->dev, biases[i]);
    }
    for (uint32_t j = 0; j < d->spec.span_conv.taps; j++) {
        layer_free_weight(d, y->repeat[j]);
        d->ops->free(d->dev, y->depth[j]);
    }
    if (y->rows)
        neighbours_free(y->rows);
    free(y->rows);
    free(y);
}

/* ---------------------------------------------------------------- running */

static void times(struct decoder *d, float *x, uint32_t rows, uint32_t n, const float *by,
                  uint32_t stride)
{
    d->ops->gate_norm(d->dev, x, n, rows, n,
                      &(struct gate_norm){.kind = GATE_PRODUCT, .gate = by, .stride = stride});
}

/* The weights of all kernels [tokens][heads][kernel_width()], of keys [tokens][heads * dim]. */
static int weigh(struct decoder *d, const struct span_conv *y, float *weights, const float *keys,
                 uint32_t tokens, struct err *e)
{
    const uint32_t heads = d->spec.n_heads, each = kernel_width(d);
    d->ops->linear(d->dev, weights, keys, tokens, y->kernel, y->kernel_bias);
    if (layer_sum(d, weights, (size_t)tokens * heads * each, e))
        return -1;
    d->ops->softmax(d->dev, weights, tokens * heads, each);
    return 0;
}

struct span_areas {
    float *values, *by, *moved, *part; /* [tokens][heads * dim] */
};

/* sum = sum over taps of their weights times the values of those neighbours. */
static int convolve(struct decoder *d, const struct span_conv *y, float *sum, const float *weights,
                    const struct span_areas *a, uint32_t n, struct err *e)
{
    const struct ragged *b = d->step;
    const uint32_t t = b->n_tokens, taps = d->spec.span_conv.taps, half = taps / 2;
    d->ops->beside(d->dev, sum, a->values, NULL, t, n);
    d->ops->linear(d->dev, a->by, weights, t, y->repeat[half], NULL);
    times(d, sum, t, n, a->by, n);
    d->ops->beside(d->dev, a->moved, a->values, NULL, t, n); /* numbers that 0 makes 0 */
    for (uint32_t j = 0; j < taps; j++) {
        uint32_t some = 0;
        if (j != half && neighbours_begin(d, y->rows, b, (int64_t)j - half, &some, e))
            return -1;
        if (!some)
            continue;
        /* rows without such a neighbour add 0 */
        d->ops->logit_scale(d->dev, a->moved, t, n, 0, 0);
        d->ops->gather_out(d->dev, a->part, a->values, n);
        d->ops->give_rows(d->dev, a->moved, a->part, n, false);
        if (neighbours_end(d, b, e))
            return -1;
        d->ops->linear(d->dev, a->by, weights, t, y->repeat[j], NULL);
        times(d, a->moved, t, n, a->by, n);
        d->ops->add_norm(d->dev, NULL, sum, a->moved, 1, t, n, NULL);
    }
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct span_conv *y = self;
    const struct attention_shape s = attention_shape(d, t->layer);
    const uint32_t n = t->tokens, hidden = d->spec.hidden, each = kernel_width(d);
    float *qkv = work_take(&t->work, n, s.qkv), *some = work_take(&t->work, n, hidden);
    float *wide = work_take(&t->work, n, hidden);
    float *both = work_take(&t->work, n, (size_t)2 * s.sums);
    float *weights = work_take(&t->work, n, (size_t)d->spec.n_heads * each);
    float *att = work_take(&t->work, n, s.sums);
    struct span_areas a;
    a.values = work_take(&t->work, n, s.sums), a.by = work_take(&t->work, n, s.sums);
    a.moved = work_take(&t->work, n, s.sums), a.part = work_take(&t->work, n, s.sums);
    float *sum = both; /* until both are side by side */
    assert(n == d->step->n_tokens);
    d->ops->linear(d->dev, qkv, t->in, n, y->qkv, y->qkv_bias);
    attention_plain(d, t, att, qkv);
    if (neighbours_sum(d, y->rows, d->step, wide, t->in, hidden, y->depth, d->spec.span_conv.taps,
                       some, e))
        return -1;
    d->ops->linear(d->dev, a.values, wide, n, y->point, y->point_bias);
    times(d, a.values, n, s.sums, qkv, s.qkv);
    if (weigh(d, y, weights, a.values, n, e))
        return -1;
    d->ops->linear(d->dev, a.values, t->in, n, y->value, y->value_bias);
    if (convolve(d, y, sum, weights, &a, s.sums, e))
        return -1;
    d->ops->beside(d->dev, a.values, sum, NULL, n, s.sums);
    d->ops->beside(d->dev, both, att, a.values, n, s.sums);
    d->ops->linear(d->dev, t->out, both, n, y->o, y->o_bias);
    return 0;
}

const struct sublayer_ops mixer_span_conv = {.name = "span_conv",
                                             .width = width,
                                             .load = load,
                                             .free = release,
                                             .stateless = layer_stateless,
                                             .forward = forward,
                                             .kv = attention_keeps};
