/* residual_mixed.c - several residual streams that factors of the token mix (hyper-connections,
 * arXiv 2409.19606; with doubly stochastic matrices 2512.24880): a sublayer reads the norm of their
 * weighted sum, and its result is added to each. The factors come from one matrix of all streams of
 * the token side by side. Every rank computes all of it: it is narrow. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader.h"
#include "model-server/model/residual.h"
#include <stdlib.h>

/* For the mixer, the feed-forward or the head, the order of the roles. */
enum place { PLACE_MIXER, PLACE_FFN, PLACE_LAST };

struct mixed_part {
    struct weight *factors; /* [mix_factors(), n * hidden] */
    float *base, *scale;    /* [mix_factors()], and one of each kind */
};
struct mixed_layer {
    struct mixed_part part[2];
};
struct mixed_last {
    struct mixed_part part;
};

/* ---------------------------------------------------------------- loading */

static uint32_t count_of(const struct decoder_spec *s, enum place place)
{
    const struct mix p = {.n = s->mix.n, .rounds = s->mix.rounds, .last = place == PLACE_LAST};
    return mix_factors(&p);
}

/* All of a token passes through them, and they are small: they keep their numbers. */
static struct mixed_part load_part(struct loader *l, int layer, enum place place)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t count = count_of(s, place);
    const uint32_t kinds = place == PLACE_LAST ? 1 : s->mix.rounds ? 3 : 2;
    struct mixed_part y = {0};
    struct mat_part all =
        loader_plain_matrix(l, W_STREAM_MIX + place, layer, count, (int64_t)s->mix.n * s->hidden);
    y.factors = loader_pack(l, &all, 1, DT_F32, QUANT_NONE);
    y.base = loader_plain_vector(l, W_STREAM_BASE + place, layer, count, (struct slice){0, count});
    y.scale =
        loader_plain_vector(l, W_STREAM_SCALE + place, layer, kinds, (struct slice){0, kinds});
    return y;
}

static void free_part(struct decoder *d, struct mixed_part *y)
{
    layer_free_weight(d, y->factors);
    d->ops->free(d->dev, y->base);
    d->ops->free(d->dev, y->scale);
}

struct mixed_layer *decoder_mixed_load_layer(struct loader *l, uint32_t layer)
{
    struct mixed_layer *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->part[0] = load_part(l, (int)layer, PLACE_MIXER);
    y->part[1] = load_part(l, (int)layer, PLACE_FFN);
    return y;
}

void decoder_mixed_free_layer(struct decoder *d, struct mixed_layer *y)
{
    if (!y)
        return;
    free_part(d, &y->part[0]);
    free_part(d, &y->part[1]);
    free(y);
}

void decoder_mixed_load_last(struct loader *l)
{
    if (l->d->spec.mix.mean_last)
        return;
    if (!(l->d->mixed_last = calloc(1, sizeof(struct mixed_last)))) {
        loader_nomem(l);
        return;
    }
    l->d->mixed_last->part = load_part(l, NO_LAYER, PLACE_LAST);
}

void decoder_mixed_free_last(struct decoder *d)
{
    if (!d->mixed_last)
        return;
    free_part(d, &d->mixed_last->part);
    free(d->mixed_last);
}

/* ---------------------------------------------------------------- in a step */

/* Of the rows `p`. */
static struct mix mix_of(const struct decoder *d, const struct decoder_part *p, enum mix_kind kind)
{
    const struct mix_spec *m = &d->spec.mix;
    const size_t each = (size_t)m->n * d->spec.hidden;
    struct mix k = {.kind = kind,
                    .n = m->n,
                    .rounds = m->rounds,
                    .streams = d->scratch.streams + p->first * each,
                    .eps = d->spec.norm.eps,
                    .floor = m->floor,
                    .magnitude = m->magnitude,
                    .result_floor = m->result_floor};
    k.factors = d->scratch.coefs + (size_t)p->first * mix_factors(&k);
    return k;
}

static void run(struct decoder *d, float *x, const struct decoder_part *p, const struct mix *k)
{
    d->ops->mix(d->dev, decoder_rows(d, x, p), p->n, d->spec.hidden, k);
}

static int begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    const struct mix k = mix_of(d, p, MIX_SPREAD);
    if (decoder_embed(d, p, e))
        return -1;
    run(d, d->scratch.x, p, &k);
    return 0;
}

/* x = the weighted sum of the streams. */
static void sum(struct decoder *d, const struct mixed_part *y, const struct decoder_part *p,
                struct mix *k)
{
    k->base = y->base;
    k->scale = y->scale;
    d->ops->linear(d->dev, k->factors, k->streams, p->n, y->factors, NULL);
    run(d, d->scratch.x, p, k);
}

static const float *in(const struct decoder *d, uint32_t i, enum sub sub)
{
    (void)i, (void)sub;
    return d->scratch.n;
}

static void read(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct layer *y = &d->layers[i];
    struct scratch *s = &d->scratch;
    struct mix k = mix_of(d, p, MIX_READ);
    sum(d, &y->mixed->part[sub == SUB_FFN], p, &k);
    d->ops->norm(d->dev, decoder_rows(d, s->n, p), decoder_rows(d, s->x, p), p->n, d->spec.hidden,
                 sub == SUB_FFN ? &y->ffn_norm : &y->mixer_norm);
}

static const struct norm *post(const struct decoder *d, uint32_t i, enum sub sub)
{
    (void)d, (void)i, (void)sub;
    return NULL;
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct mix k = mix_of(d, p, MIX_WRITE);
    (void)i, (void)sub;
    run(d, d->scratch.r, p, &k);
}

static void end(struct decoder *d, uint32_t t)
{
    const struct decoder_part all = {0, t, t};
    struct mix k = mix_of(d, &all, d->mixed_last ? MIX_READ : MIX_MEAN);
    k.last = true;
    if (d->mixed_last)
        sum(d, &d->mixed_last->part, &all, &k);
    else
        run(d, d->scratch.x, &all, &k);
}

const struct residual_ops residual_mixed = {.name = "mixed",
                                            .begin = begin,
                                            .in = in,
                                            .read = read,
                                            .post = post,
                                            .write = write,
                                            .end = end};
