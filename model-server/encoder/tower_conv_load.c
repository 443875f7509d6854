/* tower_conv_load.c - loads the weights of a tower of convolutions. What follows a convolution and
 * is linear is folded into it: a batch norm, and a scale of each channel. */
#include "model-server/backend/numbers.h"
#include "model-server/encoder/tower_conv.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of rows * cols numbers in host memory; `name`: a number of conv_spec.names. NULL after
 * an error. */
static float *numbers(struct loader *l, const struct conv_step *c, uint8_t name, const char *suffix,
                      size_t rows, size_t cols)
{
    const struct mat_part p = loader_table_of(l, (enum role)name, c->at[0], c->at[1], suffix,
                                              (int64_t)rows, (int64_t)cols);
    const size_t n = rows * cols;
    float *v = l->failed ? NULL : calloc(n, sizeof(*v));
    if (!v && !l->failed)
        loader_nomem(l);
    for (size_t i = 0; v && i < n; i++)
        v[i] = p.data ? number_at(p.data, p.dtype, (int64_t)i) : 0;
    loader_drop(l);
    return v;
}

/* The step's own rows of its tensors: see conv_step.stored and conv_step.stacked. */
static float *own_numbers(struct loader *l, const struct conv_step *c, const char *suffix,
                          size_t rows, size_t cols)
{
    const size_t n = c->stacked ? c->stacked : 1;
    if (n == 1 && (!c->stored || c->stored == rows))
        return numbers(l, c, c->weight, suffix, rows, cols);
    float *v = l->failed ? NULL : calloc(rows * cols, sizeof(*v));
    if (!v && !l->failed)
        loader_nomem(l);
    for (size_t i = 0, at = 0; v && i < n; i++) {
        const size_t heads = i ? c->kv_heads : c->heads;
        const size_t each = c->heads ? heads * c->head_dim : rows / n;
        const size_t stored = c->stored ? c->stored : each;
        float *one = numbers(l, c, (uint8_t)(c->weight + i), suffix, stored, cols);
        if (one)
            memcpy(v + at * cols, one + c->first * cols, each * cols * sizeof(*v));
        free(one);
        at += each;
    }
    return v;
}

/* What follows a convolution: result = by * x + plus, for each channel. */
struct folded {
    float *by, *plus; /* plus may be NULL: 0 */
};

static void fold_batch(struct loader *l, const struct conv_spec *s, const struct conv_step *c,
                       struct folded *f)
{
    float *mean = numbers(l, c, c->batch, ".running_mean", c->out, 1);
    float *var = numbers(l, c, c->batch, ".running_var", c->out, 1);
    f->by = numbers(l, c, c->batch, ".weight", c->out, 1);
    f->plus = numbers(l, c, c->batch, ".bias", c->out, 1);
    for (uint32_t i = 0; mean && var && f->by && f->plus && i < c->out; i++) {
        f->by[i] /= sqrtf(var[i] + s->batch_eps);
        f->plus[i] -= mean[i] * f->by[i];
    }
    free(mean), free(var);
}

/* Reads them for a convolution. After an error there may be none. */
static struct folded fold(struct loader *l, const struct conv_spec *s, const struct conv_step *c)
{
    struct folded f = {0};
    if (c->batch)
        fold_batch(l, s, c, &f);
    if (!c->scale || c->norm)
        return f;
    float *by = numbers(l, c, c->scale, "", c->out, 1);
    for (uint32_t i = 0; by && f.by && f.plus && i < c->out; i++) {
        f.by[i] *= by[i];
        f.plus[i] *= by[i];
    }
    if (f.by)
        free(by);
    else
        f.by = by;
    return f;
}

/* The bias with what is folded into it; NULL: there is none, or an error. */
static float *folded_bias(struct loader *l, const struct conv_step *c, const struct folded *f)
{
    float *bias = c->bias ? own_numbers(l, c, ".bias", c->out, 1) : NULL;
    if (!bias && f->plus && !l->failed && !(bias = calloc(c->out, sizeof(*bias))))
        loader_nomem(l);
    for (uint32_t i = 0; bias && f->by && i < c->out; i++)
        bias[i] = bias[i] * f->by[i] + (f->plus ? f->plus[i] : 0);
    return bias;
}

/* A matrix [out][places * in] of rows that are stored [in][places], or as they are. */
static void load_dense(struct loader *l, const struct conv_step *c, const struct folded *f,
                       uint32_t in, struct tower_conv_part *t)
{
    const size_t places = (size_t)c->size * c->size, cols = places * in;
    float *stored = own_numbers(l, c, ".weight", c->out, cols);
    float *rows = l->failed ? NULL : malloc(c->out * cols * sizeof(*rows));
    if (!rows && !l->failed)
        loader_nomem(l);
    for (size_t r = 0; stored && rows && r < c->out; r++)
        for (size_t i = 0; i < in; i++)
            for (size_t p = 0; p < places; p++)
                rows[r * cols + p * in + i] =
                    stored[r * cols + (c->places_first ? p * in + i : i * places + p)] *
                    (f->by ? f->by[r] : 1);
    free(stored);
    struct mat_part part = {.data = rows,
                            .dtype = DT_F32,
                            .rows = c->out,
                            .cols = (int64_t)cols,
                            .row_stride = (int64_t)cols,
                            .col_stride = 1};
    t->w = l->failed ? NULL : loader_pack(l, &part, 1, f->by ? DT_F32 : l->d->dtype, QUANT_NONE);
    free(rows);
    float *bias = folded_bias(l, c, f);
    t->bias = bias ? loader_host_vector(l, bias, c->out) : NULL;
    free(bias);
}

/* conv_depth()'s kernel and bias. */
static void load_depth(struct loader *l, const struct conv_step *c, const struct folded *f,
                       uint32_t in, struct tower_conv_part *t)
{
    const size_t places = (size_t)c->size * c->size, each = c->out / in;
    float *stored = numbers(l, c, c->weight, ".weight", c->out, places);
    float *bias = folded_bias(l, c, f);
    float *kernel = malloc(c->out * places * sizeof(*kernel));
    float *plus = calloc(c->out, sizeof(*plus));
    if (!kernel || !plus)
        loader_nomem(l);
    for (size_t o = 0; stored && kernel && plus && o < c->out; o++) {
        const size_t part = o % each, i = o / each;
        for (size_t p = 0; p < places; p++)
            kernel[(part * places + p) * in + i] = stored[o * places + p] * (f->by ? f->by[o] : 1);
        kernel[(part * places + places / 2) * in + i] += c->plus_self ? 1 : 0;
        plus[part * in + i] = bias ? bias[o] : 0;
    }
    t->host[0] = kernel;
    t->host[1] = plus;
    loader_count(l->d, c->out * (places + 1), c->out * (places + 1) * sizeof(float));
    free(stored), free(bias);
}

static void load_gate(struct loader *l, const struct conv_step *c, uint32_t n,
                      struct tower_conv_part *t)
{
    t->host[0] = numbers(l, c, c->weight, ".weight", c->out, n);
    t->host[1] = numbers(l, c, c->weight, ".bias", c->out, 1);
    t->host[2] = numbers(l, c, c->norm, ".weight", n, c->out);
    t->host[3] = numbers(l, c, c->norm, ".bias", n, 1);
}

static void load_relation(struct loader *l, const struct conv_step *c, struct tower_conv_part *t)
{
    t->host[0] = numbers(l, c, c->weight, "", 2 * (size_t)c->size - 1, c->kv_heads);
    t->host[1] = numbers(l, c, c->norm, "", 2 * (size_t)c->size - 1, c->kv_heads);
}

/* A table [rows][n]: the sines of a row's number times frequencies, then the cosines. */
static float *sines(struct loader *l, uint32_t rows, uint32_t n)
{
    const uint32_t half = n / 2;
    float *table = calloc((size_t)rows * n, sizeof(*table));
    if (!table)
        loader_nomem(l);
    for (size_t r = 0; table && r < rows; r++)
        for (uint32_t i = 0; i < half; i++) {
            const float by = (float)(1 / pow(10000, (double)i / half));
            table[r * n + i] = (float)sin((double)((float)r * by));
            table[r * n + half + i] = (float)cos((double)((float)r * by));
        }
    return table;
}

static void load_axes(struct loader *l, const struct conv_step *c, uint32_t n,
                      struct tower_conv_part *t)
{
    if (!c->weight) {
        t->host[0] = sines(l, c->rows, n - n / 2);
        t->host[1] = sines(l, c->rows, n / 2);
        if (!(t->host[2] = calloc(n, sizeof(float))))
            loader_nomem(l);
        return;
    }
    t->host[0] = numbers(l, c, c->weight, "", c->rows, n - n / 2);
    t->host[1] = numbers(l, c, (uint8_t)(c->weight + 1), "", c->rows, n / 2);
    t->host[2] = numbers(l, c, (uint8_t)(c->weight + 2), "", c->stored, n);
}

/* A norm, whose weights the scale multiplies. */
static void load_norm(struct loader *l, const struct conv_spec *s, const struct conv_step *c,
                      uint32_t n, struct norm *out)
{
    float *w = numbers(l, c, c->norm, ".weight", n, 1);
    float *by = c->scale ? numbers(l, c, c->scale, "", n, 1) : NULL;
    for (uint32_t i = 0; by && w && i < n; i++)
        w[i] *= by[i];
    *out = (struct norm){.kind = c->layer_norm ? NORM_LAYER : s->norm.kind,
                         .eps = c->eps != 0 ? c->eps : s->norm.eps};
    out->w = w && !l->failed ? loader_host_vector(l, w, n) : NULL;
    free(w), free(by);
    if (out->kind != NORM_LAYER || l->failed)
        return;
    float *b = numbers(l, c, c->norm, ".bias", n, 1);
    out->b = b ? loader_host_vector(l, b, n) : NULL;
    free(b);
}

/* Norms of heads of queries and of keys. */
static void load_head_norms(struct loader *l, const struct conv_step *c, struct tower_conv_part *t)
{
    for (int i = 0; i < 2; i++) {
        float *w = numbers(l, c, (uint8_t)(c->weight + i), ".weight", c->head_dim, 1);
        t->head_norm[i] = w ? loader_host_vector(l, w, c->head_dim) : NULL;
        free(w);
    }
}

static void load_step(struct loader *l, const struct conv_spec *s, const struct conv_step *c,
                      uint32_t in, uint32_t out, struct tower_conv_part *t)
{
    struct folded f = {0};
    if (c->kind == CONV_DENSE || c->kind == CONV_DEPTH)
        f = fold(l, s, c);
    if (c->kind == CONV_DENSE)
        load_dense(l, c, &f, in, t);
    else if (c->kind == CONV_DEPTH)
        load_depth(l, c, &f, in, t);
    else if (c->kind == CONV_GATE)
        load_gate(l, c, in, t);
    else if (c->kind == CONV_PLACES)
        t->host[0] = numbers(l, c, c->weight, "", (size_t)c->size * c->size, in);
    else if (c->kind == CONV_AXES)
        load_axes(l, c, in, t);
    else if (c->kind == CONV_ROWS)
        t->host[0] = own_numbers(l, c, "", c->rows, c->out);
    else if (c->kind == CONV_RELATE)
        load_relation(l, c, t);
    else if (c->turns)
        load_head_norms(l, c, t);
    if (c->norm && c->kind != CONV_GATE && c->kind != CONV_RELATE)
        load_norm(l, s, c, out, &t->norm);
    free(f.by), free(f.plus);
}

void tower_conv_load(struct loader *l, struct tower *t)
{
    const struct conv_spec *s = &t->spec.conv;
    const struct arch *const first = l->a;
    struct arch own = *first; /* its names are the family's own */
    const struct conv_shape in = conv_reserved(s);
    struct conv_shape shape[CONV_GRIDS];
    struct conv_window w;
    if (!(t->conv.part = calloc(s->n, sizeof(*t->conv.part)))) {
        loader_nomem(l);
        return;
    }
    for (int i = 1; i < W_ROLES && s->names[i]; i++)
        own.names[i] = s->names[i];
    l->a = &own;
    rope_init(&t->conv.rope, &t->spec.blocks.rope[0], 0);
    conv_shapes(s, 0, in.height, in.width, shape);
    for (uint32_t i = 0; i < s->n && !l->failed; i++) {
        const struct conv_step *c = &s->step[i];
        const struct conv_shape out = conv_result(c, shape, &w);
        load_step(l, s, c, shape[c->from].channels, out.channels, &t->conv.part[i]);
        shape[c->to] = out;
    }
    l->a = first;
}

void tower_conv_free_weights(struct tower *t)
{
    const struct decoder *d = &t->d;
    for (uint32_t i = 0; t->conv.part && i < t->spec.conv.n; i++) {
        struct tower_conv_part *p = &t->conv.part[i];
        layer_free_weight(&t->d, p->w);
        d->ops->free(d->dev, p->bias);
        layer_free_norm(&t->d, &p->norm);
        d->ops->free(d->dev, p->head_norm[0]), d->ops->free(d->dev, p->head_norm[1]);
        for (int k = 0; k < TOWER_CONV_HOST; k++)
            free(p->host[k]);
    }
    if (t->conv.part)
        rope_free(&t->conv.rope);
    free(t->conv.part);
    t->conv.part = NULL;
}
