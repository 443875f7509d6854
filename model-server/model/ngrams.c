/* Every rank computes the streams' part of it; products of its own tables' rows are summed. */
#include "model-server/model/ngrams.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct ngrams_layer {
    struct slice own;           /* tables of this rank */
    struct ngram_table *tables; /* [own.n] on the device */
    struct weight *rows;        /* of these tables */
    struct weight *key, *value; /* [streams * hidden], [hidden] of those rows side by side */
    float *key_norm, *stream_norm, *conv_norm; /* [streams * hidden] */
    struct conv conv;
    struct ngrams p;
    uint64_t ids, inputs; /* in a cell */
};

static uint32_t tables_of(const struct ngram_spec *s) { return (s->most - 1) * s->each; }
static uint32_t streams_width(const struct decoder_spec *s) { return s->mix.n * s->hidden; }

/* ---------------------------------------------------------------- tables */

/* splitmix64, the generator of https://prng.di.unimi.it/splitmix64.c at state x. */
static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Odd, and so small that its product with an id is below 2^63. */
uint64_t ngram_factor(const struct decoder_spec *s, uint32_t nth, uint32_t back)
{
    static const uint64_t each_layer = 10007, step = 0x9e3779b97f4a7c15;
    const uint64_t half = (uint64_t)INT64_MAX / s->vocab / 2;
    const uint64_t state = s->ngrams.seed + each_layer * nth + step * (back + 1);
    return 2 * (scramble(state) % (half ? half : 1)) + 1;
}

static bool is_prime(uint32_t n)
{
    for (uint64_t by = 3; by * by <= n; by += 2)
        if (n % by == 0)
            return false;
    return n == 2 || (n > 2 && n % 2);
}

uint32_t ngram_size(const struct ngram_spec *s, uint32_t k)
{
    uint32_t n = s->least;
    for (uint32_t i = 0;; n++)
        if (is_prime(n) && i++ == k)
            return n;
}

/* The tables of a layer, [tables_of()]; the rows of all of them. */
static uint32_t list_tables(const struct decoder_spec *s, uint32_t nth, struct ngram_table *out)
{
    const struct ngram_spec *g = &s->ngrams;
    const uint32_t n = tables_of(g);
    uint32_t first = 0, size = ngram_size(g, nth * n);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (struct ngram_table){.length = 2 + i / g->each, .size = size, .first = first};
        first += size;
        while (!is_prime(++size))
            ;
    }
    return first;
}

/* ---------------------------------------------------------------- loading */

static void load_tables(struct loader *l, struct ngrams_layer *y, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct ngram_spec *g = &s->ngrams;
    const uint32_t n = tables_of(g), own = y->own.n, nth = s->layers[layer].ngrams - 1;
    struct decoder *d = l->d;
    struct ngram_table *all = calloc(n, sizeof(*all));
    if (!all) {
        loader_nomem(l);
        return;
    }
    const uint32_t rows = list_tables(s, nth, all);
    struct ngram_table *mine = all + y->own.first;
    const uint32_t first = mine->first, end = mine[own - 1].first + mine[own - 1].size;
    const int64_t stored = ((int64_t)rows + g->multiple - 1) / g->multiple * g->multiple;
    for (uint32_t i = 0; i < own; i++)
        mine[i].first -= first;
    y->tables = d->ops->alloc(d->dev, own * sizeof(*mine), l->e);
    l->failed = l->failed || !y->tables ||
                d->ops->upload(d->dev, y->tables, mine, own * sizeof(*mine), l->e);
    free(all);
    y->rows = loader_pack_shards(l, W_NGRAM_ROWS, (int)layer, stored, g->dim / n,
                                 (struct slice){first, end - first});
    y->p = (struct ngrams){.most = g->most, .n = own, .tables = y->tables, .end = g->end};
    for (uint32_t i = 0; i < g->most; i++)
        y->p.by[i] = ngram_factor(s, nth, i);
    y->ids = layer_take_state(d, ngram_floats(&y->p));
}

/* The columns of this rank's tables. */
static struct weight *load_matrix(struct loader *l, const struct ngrams_layer *y, enum role role,
                                  int layer, uint32_t rows)
{
    const struct ngram_spec *g = &l->d->spec.ngrams;
    const uint32_t each = g->dim / tables_of(g);
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, rows, g->dim);
    p = loader_cut(p, 0, rows, (int64_t)y->own.first * each, (int64_t)y->own.n * each);
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* The stored tensor [channels][1][taps] with the last dimension first. */
static void load_conv(struct loader *l, struct ngrams_layer *y, int layer)
{
    enum { MOST = CONV_MOST };
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = streams_width(s), taps = s->ngrams.taps;
    struct mat_part all = loader_table(l, W_NGRAM_CONV, layer, ".weight", n, taps), by_tap[MOST];
    assert(taps >= 2 && taps <= MOST);
    for (uint32_t i = 0; i < taps; i++)
        by_tap[i] = loader_cut(all, 0, n, i, 1);
    y->conv = (struct conv){.channels = n, .width = taps, .dilation = s->ngrams.most, .silu = true};
    y->conv.w = loader_vector(l, by_tap, (int)taps, 0);
    y->inputs = layer_take_state(l->d, l->d->ops->conv_floats(&y->conv));
}

static uint32_t width(const struct decoder_spec *s, const struct ngrams_layer *y)
{
    const uint32_t rows = y->own.n * (s->ngrams.dim / tables_of(&s->ngrams) + 1);
    return rows + 3 * streams_width(s) + s->hidden + s->mix.n;
}

struct ngrams_layer *decoder_ngrams_load(struct loader *l, uint32_t layer)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const uint32_t n = streams_width(s), tables = tables_of(&s->ngrams);
    const int at = (int)layer;
    struct ngrams_layer *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->own = slice_of(tables, (uint32_t)d->split.rank, (uint32_t)d->split.world);
    if (tables < (uint32_t)d->split.world) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION, "%u tables of n-grams cannot be split over %d ranks", tables,
                d->split.world);
        return y;
    }
    load_tables(l, y, layer);
    y->key = load_matrix(l, y, W_NGRAM_KEY, at, n);
    y->value = load_matrix(l, y, W_NGRAM_VALUE, at, s->hidden);
    y->key_norm = loader_weight_vector(l, W_NGRAM_KEY_NORM, at, n);
    y->stream_norm = loader_weight_vector(l, W_NGRAM_STREAM_NORM, at, n);
    y->conv_norm = loader_weight_vector(l, W_NGRAM_CONV_NORM, at, n);
    load_conv(l, y, at);
    d->mixer_width = width(s, y) > d->mixer_width ? width(s, y) : d->mixer_width;
    return y;
}

void decoder_ngrams_free(struct decoder *d, struct ngrams_layer *y)
{
    if (!y)
        return;
    d->ops->free(d->dev, y->tables);
    layer_free_weight(d, y->rows);
    layer_free_weight(d, y->key);
    layer_free_weight(d, y->value);
    d->ops->free(d->dev, y->key_norm);
    d->ops->free(d->dev, y->stream_norm);
    d->ops->free(d->dev, y->conv_norm);
    d->ops->free(d->dev, (void *)(uintptr_t)y->conv.w);
    free(y);
}

/* ---------------------------------------------------------------- in a step */

/* The streams' parts of `t` rows x are normalised apart. */
static void norm_parts(struct decoder *d, float *x, uint32_t t, const float *w)
{
    const uint32_t n = streams_width(&d->spec);
    d->ops->gate_norm(
        d->dev, x, n, t, n,
        &(struct gate_norm){
            .kind = GATE_NONE, .w = w, .group = d->spec.hidden, .eps = d->spec.norm.eps});
}

/* Sums rows over ranks, in pieces no larger than those of a sublayer: see layer_sum(). */
static int sum_rows(struct decoder *d, float *x, uint32_t t, uint32_t streams, struct err *e)
{
    const size_t each = (size_t)t * d->spec.hidden;
    for (uint32_t i = 0; i < streams; i++)
        if (layer_sum(d, x + i * each, each, e))
            return -1;
    return 0;
}

int decoder_ngrams_add(struct decoder *d, const struct ngrams_layer *y,
                       const struct decoder_part *p, struct err *e)
{
    const uint32_t t = p->n, k = d->spec.mix.n, hidden = d->spec.hidden, n = k * hidden;
    const struct state_ref ids = layer_state(d, y->ids), inputs = layer_state(d, y->inputs);
    struct work w = {d->scratch.mixer}; /* of the mixer, which does not run yet */
    struct ngrams of = y->p;
    float *streams = d->scratch.streams;
    assert(p->n == p->total);
    of.rows = (uint32_t *)(void *)work_take(&w, t, of.n);
    float *rows =
        work_take(&w, t, (size_t)of.n * (d->spec.ngrams.dim / tables_of(&d->spec.ngrams)));
    float *key = work_take(&w, t, n), *value = work_take(&w, t, hidden);
    float *like = work_take(&w, t, n), *gate = work_take(&w, t, k), *add = work_take(&w, t, n);
    d->ops->embed_ngrams(d->dev, rows, y->rows, &ids, &of);
    d->ops->linear(d->dev, key, rows, t, y->key, NULL);
    d->ops->linear(d->dev, value, rows, t, y->value, NULL);
    if (sum_rows(d, key, t, k, e) || sum_rows(d, value, t, 1, e))
        return -1;
    d->ops->beside(d->dev, like, streams, NULL, t, n);
    norm_parts(d, key, t, y->key_norm);
    norm_parts(d, like, t, y->stream_norm);
    d->ops->root_dots(d->dev, gate, key, like, t * k, hidden, 1 / sqrtf((float)hidden));
    d->ops->mix(d->dev, value, t, hidden,
                &(struct mix){.kind = MIX_SPREAD, .n = k, .streams = add});
    d->ops->gate_rows(d->dev, add, t * k, hidden, gate, false);
    d->ops->add_norm(d->dev, NULL, streams, add, 1, t, n, NULL);
    norm_parts(d, add, t, y->conv_norm);
    d->ops->conv(d->dev, like, add, n, &inputs, &y->conv);
    d->ops->add_norm(d->dev, NULL, streams, like, 1, t, n, NULL);
    return 0;
}
