/* mixed.c - several residual streams that factors of the token mix (hyper-connections,
 * arXiv 2409.19606; with doubly stochastic matrices 2512.24880): a sublayer reads the norm of their
 * weighted sum, and its result is added to each. The factors come from one matrix of all streams of
 * the token side by side. Every rank computes all of it: it is narrow. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"

struct mixed_part {
    struct weight *factors; /* [mix_factors(), n * hidden] */
    float *base, *scale;    /* [mix_factors()], and one of each kind */
};
/* ---------------------------------------------------------------- loading */

/* All of a token passes through them, and they are small: they keep their numbers. */
static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct mix p = {.n = s->mix.n, .rounds = s->mix.rounds, .last = sub == SUBS};
    const uint32_t count = mix_factors(&p), kinds = p.last ? 1 : s->mix.rounds ? 3 : 2;
    const enum sub role = p.last ? SUB_TAIL : sub; /* the head's is the third */
    struct mixed_part *y = part;
    struct mat_part all =
        loader_plain_matrix(l, W_STREAM_MIX + role, layer, count, (int64_t)s->mix.n * s->hidden);
    y->factors = loader_pack(l, &all, 1, DT_F32, QUANT_NONE);
    y->base = loader_plain_vector(l, W_STREAM_BASE + role, layer, count, (struct slice){0, count});
    y->scale =
        loader_plain_vector(l, W_STREAM_SCALE + role, layer, kinds, (struct slice){0, kinds});
}

static void release(struct decoder *d, void *part)
{
    struct mixed_part *y = part;
    layer_free_weight(d, y->factors);
    d->ops->free(d->dev, y->base);
    d->ops->free(d->dev, y->scale);
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

static void read(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct layer *y = &d->layers[i];
    const struct mixed_part *parts = y->residual;
    struct scratch *s = &d->scratch;
    struct mix k = mix_of(d, p, MIX_READ);
    sum(d, &parts[sub], p, &k);
    d->ops->norm(d->dev, decoder_rows(d, s->n, p), decoder_rows(d, s->x, p), p->n, d->spec.hidden,
                 sub == SUB_FFN ? &y->ffn_norm : &y->mixer_norm);
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
    struct mix k = mix_of(d, &all, d->residual_last ? MIX_READ : MIX_MEAN);
    k.last = true;
    if (d->residual_last)
        sum(d, d->residual_last, &all, &k);
    else
        run(d, d->scratch.x, &all, &k);
}

const struct residual_ops residual_mixed = {.name = "mixed",
                                            .part = sizeof(struct mixed_part),
                                            .last = true,
                                            .load = load,
                                            .free = release,
                                            .begin = begin,
                                            .read = read,
                                            .write = write,
                                            .end = end};
