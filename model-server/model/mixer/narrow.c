/* narrow.c - a whole layer of MobileBERT (arXiv 2004.02984): one matrix makes a narrow stream of
 * the wide one, attention and several feed-forwards add to it, and another matrix makes what the
 * wide stream becomes. Instead of norms each sum has factors and summands: a' = f (a + g(a)) + s.
 *
 * Factors and summands of what a product adds are part of its matrix and bias; only the stream
 * itself is multiplied. q and k read a second narrow product, which no activation follows: both
 * matrices are multiplied when they are loaded, in fp32. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/mixer/attention.h"
#include <assert.h>
#include <stdlib.h>

struct narrow_product {
    struct weight *w;
    float *bias; /* NULL: another rank adds it */
};

struct narrow_ffn {
    struct narrow_product up, down;
    float *keep; /* [width] factors of the stream */
};

struct narrow {
    struct narrow_product in, qkv, o, out;
    float *keep;             /* [width] of attention's sum */
    float *out_keep;         /* [hidden] of the last sum, minus 1: the stream is added to it */
    struct narrow_ffn *ffns; /* [narrow_spec.ffns] */
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape a = attention_shape(d, layer);
    return a.qkv + a.sums + 2 * d->spec.narrow.width + split_ffn(&d->split, &d->spec, layer).n +
           d->spec.hidden;
}

/* ---------------------------------------------------------------- loading */

/* A product on the host. */
struct affine_rows {
    float *w, *b; /* [rows][cols], [rows] */
    uint32_t rows, cols;
};

static void drop(struct affine_rows *p) { free(p->w), free(p->b); }

static struct affine_rows read_rows(struct loader *l, enum role role, int layer, int sub,
                                    uint32_t rows, uint32_t cols)
{
    return (struct affine_rows){loader_floats(l, role, layer, sub, ".weight", rows, cols),
                                loader_floats(l, role, layer, sub, ".bias", rows, 1), rows, cols};
}

/* The product times the factors of the sum behind it, plus the summands. Returns the factors,
 * which the caller frees. */
static float *fold(struct loader *l, struct affine_rows *p, enum role norm, int layer, int sub)
{
    float *factors = loader_floats(l, norm, layer, sub, ".weight", p->rows, 1);
    float *summands = loader_floats(l, norm, layer, sub, ".bias", p->rows, 1);
    for (size_t r = 0; !l->failed && r < p->rows; r++) {
        for (size_t c = 0; c < p->cols; c++)
            p->w[r * p->cols + c] *= factors[r];
        p->b[r] = factors[r] * p->b[r] + summands[r];
    }
    free(summands);
    return factors;
}

/* Rows `s` of a(b(x)), to `w` [s.n][b.cols] and `bias`. */
static void compose(const struct affine_rows *a, const struct affine_rows *b, struct slice s,
                    float *w, float *bias)
{
    for (size_t r = 0; r < s.n; r++) {
        const float *row = a->w + (s.first + r) * a->cols;
        double sum = a->b[s.first + r];
        for (size_t c = 0; c < b->cols; c++)
            w[r * b->cols + c] = 0;
        for (size_t k = 0; k < a->cols; k++) {
            sum += (double)row[k] * b->b[k];
            for (size_t c = 0; c < b->cols; c++)
                w[r * b->cols + c] += row[k] * b->w[k * b->cols + c];
        }
        bias[r] = (float)sum;
    }
}

/* Rows `r` and columns `c` of a product, and its bias if `biased`. */
static struct narrow_product pack(struct loader *l, const struct affine_rows *p, struct slice r,
                                  struct slice c, bool biased)
{
    struct narrow_product y = {0};
    if (l->failed)
        return y;
    struct mat_part part = {.data = p->w + (size_t)r.first * p->cols + c.first,
                            .dtype = DT_F32,
                            .rows = r.n,
                            .cols = c.n,
                            .row_stride = p->cols,
                            .col_stride = 1};
    y.w = loader_pack(l, &part, 1, DT_F32, QUANT_NONE);
    if (biased && !l->failed)
        y.bias = loader_host_vector(l, p->b + r.first, r.n);
    return y;
}

static struct narrow_product pack_whole(struct loader *l, const struct affine_rows *p)
{
    return pack(l, p, (struct slice){0, p->rows}, (struct slice){0, p->cols}, true);
}

/* Rows of this rank's heads: of q and k by way of their own narrow product, of v as they are. */
static void load_qkv(struct loader *l, struct narrow *y, int layer)
{
    static const enum role roles[] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t narrow = s->narrow.width, hidden = s->hidden, dim = s->head_dim;
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer);
    const struct slice rows = {h.first * dim, h.n * dim};
    struct affine_rows via = read_rows(l, W_NARROW_QK, layer, NO_EXPERT, narrow, hidden);
    free(fold(l, &via, W_NARROW_QK_NORM, layer, NO_EXPERT));
    struct affine_rows all = {malloc((size_t)3 * rows.n * hidden * sizeof(float)),
                              malloc((size_t)3 * rows.n * sizeof(float)), 3 * rows.n, hidden};
    if (!all.w || !all.b)
        loader_nomem(l);
    for (uint32_t i = 0; all.w && all.b && i < 3; i++) {
        struct affine_rows p =
            read_rows(l, roles[i], layer, NO_EXPERT, narrow, i < 2 ? narrow : hidden);
        float *w = all.w + (size_t)i * rows.n * hidden, *b = all.b + (size_t)i * rows.n;
        if (!l->failed && i < 2)
            compose(&p, &via, rows, w, b);
        for (size_t r = 0; !l->failed && i == 2 && r < rows.n; r++) {
            const size_t from = rows.first + r;
            for (size_t c = 0; c < hidden; c++)
                w[r * hidden + c] = p.w[from * hidden + c];
            b[r] = p.b[from];
        }
        drop(&p);
    }
    y->qkv = pack_whole(l, &all);
    drop(&all), drop(&via);
}

/* A product of this rank's columns `c` and the sum behind it. */
static struct narrow_product load_sum(struct loader *l, enum role role, enum role norm, int layer,
                                      int sub, uint32_t cols, struct slice c, float **keep)
{
    const uint32_t narrow = l->d->spec.narrow.width;
    struct affine_rows p = read_rows(l, role, layer, sub, narrow, cols);
    float *factors = fold(l, &p, norm, layer, sub);
    const struct narrow_product y =
        pack(l, &p, (struct slice){0, narrow}, c, l->d->split.rank == 0);
    *keep = l->failed ? NULL : loader_host_vector(l, factors, narrow);
    free(factors), drop(&p);
    return y;
}

static void load_ffn(struct loader *l, struct narrow_ffn *y, int layer, int sub)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = spec_ffn(s, (uint32_t)layer), narrow = s->narrow.width;
    const struct slice f = split_ffn(&l->d->split, s, (uint32_t)layer);
    const bool last = sub < 0;
    struct affine_rows up = read_rows(l, last ? W_UP : W_NARROW_UP, layer, sub, ffn, narrow);
    y->up = pack(l, &up, f, (struct slice){0, narrow}, true);
    y->down = load_sum(l, last ? W_DOWN : W_NARROW_DOWN, last ? W_POST_MLP_NORM : W_NARROW_NORM,
                       layer, sub, ffn, f, &y->keep);
    drop(&up);
}

static void load_out(struct loader *l, struct narrow *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct affine_rows p = read_rows(l, W_NARROW_OUT, layer, NO_EXPERT, s->hidden, s->narrow.width);
    float *factors = fold(l, &p, W_NARROW_OUT_NORM, layer, NO_EXPERT);
    y->out = pack_whole(l, &p);
    for (uint32_t i = 0; factors && i < s->hidden; i++)
        factors[i] -= 1;
    if (!l->failed)
        y->out_keep = loader_host_vector(l, factors, s->hidden);
    free(factors), drop(&p);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const int layer = (int)at;
    const uint32_t narrow = s->narrow.width, dim = s->head_dim;
    const struct slice h = split_heads(&l->d->split, s, at);
    struct narrow *y = calloc(1, sizeof(*y));
    if (!y || !(y->ffns = calloc(s->narrow.ffns, sizeof(*y->ffns)))) {
        loader_nomem(l);
        return y;
    }
    struct affine_rows in = read_rows(l, W_NARROW_IN, layer, NO_EXPERT, narrow, s->hidden);
    free(fold(l, &in, W_NARROW_IN_NORM, layer, NO_EXPERT));
    y->in = pack_whole(l, &in);
    drop(&in);
    load_qkv(l, y, layer);
    y->o = load_sum(l, W_O, W_POST_ATTN_NORM, layer, NO_EXPERT, narrow,
                    (struct slice){h.first * dim, h.n * dim}, &y->keep);
    for (uint32_t i = 0; i < s->narrow.ffns; i++)
        load_ffn(l, &y->ffns[i], layer, i + 1 < s->narrow.ffns ? (int)i : NO_EXPERT);
    load_out(l, y, layer);
    return y;
}

static void release_product(struct decoder *d, struct narrow_product *p)
{
    layer_free_weight(d, p->w);
    d->ops->free(d->dev, p->bias);
}

static void release(struct decoder *d, void *self)
{
    struct narrow *y = self;
    struct narrow_product *of[] = {&y->in, &y->qkv, &y->o, &y->out};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        release_product(d, of[i]);
    for (uint32_t i = 0; y->ffns && i < d->spec.narrow.ffns; i++) {
        release_product(d, &y->ffns[i].up);
        release_product(d, &y->ffns[i].down);
        d->ops->free(d->dev, y->ffns[i].keep);
    }
    d->ops->free(d->dev, y->keep);
    d->ops->free(d->dev, y->out_keep);
    free(y->ffns);
    free(y);
}

/* ---------------------------------------------------------------- running */

static void product(struct decoder *d, const struct narrow_product *p, float *y, const float *x,
                    uint32_t rows)
{
    d->ops->linear(d->dev, y, x, rows, p->w, p->bias);
}

/* stream = keep * stream + p(x), over ranks. */
static int add(struct decoder *d, const struct narrow_product *p, const float *keep, float *stream,
               const float *x, float *sum, uint32_t rows, struct err *e)
{
    const uint32_t n = d->spec.narrow.width;
    layer_times(d, stream, rows, n, keep);
    product(d, p, sum, x, rows);
    if (layer_sum(d, sum, (size_t)rows * n, e))
        return -1;
    d->ops->add_norm(d->dev, NULL, stream, sum, 1, rows, n, NULL);
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct narrow *y = self;
    const struct decoder_spec *m = &d->spec;
    const struct attention_shape a = attention_shape(d, s->layer);
    const uint32_t t = s->tokens, narrow = m->narrow.width, hidden = m->hidden;
    const uint32_t ffn = split_ffn(&d->split, m, s->layer).n;
    float *qkv = work_take(&s->work, t, a.qkv), *att = work_take(&s->work, t, a.sums);
    float *stream = work_take(&s->work, t, narrow), *sum = work_take(&s->work, t, narrow);
    float *up = work_take(&s->work, t, ffn), *kept = work_take(&s->work, t, hidden);
    product(d, &y->qkv, qkv, s->in, t);
    attention_plain(d, s, att, qkv);
    product(d, &y->in, stream, s->in, t);
    if (add(d, &y->o, y->keep, stream, att, sum, t, e))
        return -1;
    for (uint32_t i = 0; i < m->narrow.ffns; i++) {
        const struct narrow_ffn *f = &y->ffns[i];
        product(d, &f->up, up, stream, t);
        d->ops->act(d->dev, up, t, ffn, spec_act(m, s->layer));
        if (add(d, &f->down, f->keep, stream, up, sum, t, e))
            return -1;
    }
    d->ops->beside(d->dev, kept, s->in, NULL, t, hidden);
    layer_times(d, kept, t, hidden, y->out_keep);
    product(d, &y->out, s->out, stream, t);
    d->ops->add_norm(d->dev, NULL, s->out, kept, 1, t, hidden, NULL);
    return 0;
}

const struct sublayer_ops mixer_narrow = {.name = "narrow",
                                          .width = width,
                                          .load = load,
                                          .free = release,
                                          .stateless = layer_stateless,
                                          .forward = forward,
                                          .kv = attention_keeps,
                                          .whole = true};
