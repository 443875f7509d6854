/* residual.c - one residual stream, in scratch.x. scratch.n is its norm for the next sublayer: each
 * addition and the norm that follows are one operation. */
#include "model-server/model/residual.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <stdlib.h>

const struct residual_ops *residual_of(const struct decoder_spec *s)
{
    if (s->altup.n)
        return &residual_altup;
    if (s->mix.n)
        return s->mix.rank ? &residual_gated : &residual_mixed;
    if (s->blend_per)
        return &residual_blended;
    if (s->balance != 0)
        return &residual_balanced;
    if (s->affine)
        return &residual_affine;
    if (s->sphere.rate != 0)
        return &residual_sphere;
    return s->norms == NORM_STREAM ? &residual_norms
           : s->norms == NORM_SUM  ? &residual_sums
                                   : &residual_plain;
}

/* Parts `first` and the following sublayers', or NULL: none. */
static void *load_parts(struct loader *l, int layer, enum sub first, enum sub end)
{
    const struct residual_ops *x = residual_of(&l->d->spec);
    if (!x->part)
        return NULL;
    char *parts = calloc(end - first, x->part);
    if (!parts) {
        loader_nomem(l);
        return NULL;
    }
    for (enum sub i = first; i < end; i++)
        x->load(l, parts + (i - first) * x->part, layer, i);
    return parts;
}

static void free_parts(struct decoder *d, void *parts, uint32_t n)
{
    const struct residual_ops *x = residual_of(&d->spec);
    for (uint32_t i = 0; parts && x->free && i < n; i++)
        x->free(d, (char *)parts + i * x->part);
    free(parts);
}

void residual_load_layer(struct loader *l, uint32_t layer)
{
    l->d->layers[layer].residual = load_parts(l, (int)layer, SUB_MIXER, SUB_TAIL);
}

void residual_free_layer(struct decoder *d, uint32_t layer)
{
    free_parts(d, d->layers[layer].residual, SUB_TAIL - SUB_MIXER);
}

void residual_load_last(struct loader *l)
{
    if (residual_of(&l->d->spec)->last && !l->d->spec.mix.mean_last)
        l->d->residual_last = load_parts(l, NO_LAYER, SUBS, SUBS + 1);
}

void residual_free_last(struct decoder *d) { free_parts(d, d->residual_last, 1); }

float *residual_rows(const struct decoder *d, uint32_t *width)
{
    const uint32_t n = d->spec.mix.n + residual_blended_slots(&d->spec);
    *width = d->spec.hidden * (n ? n : 1);
    return n ? d->scratch.streams : d->scratch.x;
}

const struct norm *residual_first_norm(const struct decoder *d, uint32_t i)
{
    while (i < d->stage.first + d->stage.n && decoder_is_cross(d, i))
        i++;
    if (i >= d->stage.first + d->stage.n || !norm_place_before(spec_norms(&d->spec, i)))
        return NULL;
    return d->layers[i].mixer.ops ? &d->layers[i].mixer_norm : &d->layers[i].ffn_norm;
}

void residual_enter(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const struct norm *norm = residual_first_norm(d, i);
    if (norm && !(d->spec.no_first_norm && i == 0))
        d->ops->norm(d->dev, decoder_rows(d, d->scratch.n, p), decoder_rows(d, d->scratch.x, p),
                     p->n, d->spec.hidden, norm);
}

/* Adds the result to `x` and writes its norm to `y`. */
static void add(struct decoder *d, const struct decoder_part *p, float *y, float *x, float by,
                const struct norm *norm)
{
    d->ops->add_norm(d->dev, decoder_rows(d, y, p), decoder_rows(d, x, p),
                     decoder_rows(d, d->scratch.r, p), by, p->n, d->spec.hidden, norm);
}

/* ---------------------------------------------------------------- norms before, around, after */

/* Given rows, followed by those for layers 0, 1 ..., for all such tokens. */
static const float *given_at(const struct decoder *d, uint32_t i)
{
    return d->scratch.given + (size_t)i * d->scratch.n_given * d->spec.hidden;
}

static bool has_added(const struct decoder *d, uint32_t layer)
{
    return d->scratch.n_given && layer < d->spec.n_added;
}

/* The operations of some families after a layer, then the norm for the next one. */
static void layer_end(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    const float scale = d->layers[i].scale;
    const struct norm *next = residual_first_norm(d, i + 1);
    float *x = decoder_rows(d, d->scratch.x, p), *n = decoder_rows(d, d->scratch.n, p);
    if (scale != 0)
        d->ops->logit_scale(d->dev, x, p->n, hidden, scale, 0);
    if (has_added(d, i))
        d->ops->give_rows(d->dev, x, given_at(d, 1 + i), hidden, true);
    if (d->spec.layers[i].turn_ends && d->spec.two_stacks)
        decoder_stacks_turn(d, i, p);
    else if (d->spec.layers[i].turn_ends)
        d->ops->norm(d->dev, x, x, p->n, hidden, &d->final_norm);
    if (next)
        d->ops->norm(d->dev, n, x, p->n, hidden, next);
}

static const float *plain_in(const struct decoder *d, uint32_t i, enum sub sub)
{
    const bool before = norm_place_before(spec_norms(&d->spec, i));
    if (sub == SUB_TAIL || (sub == SUB_MIXER && d->spec.no_first_norm && i == 0))
        return d->scratch.x;
    return before ? d->scratch.n : d->scratch.x;
}

static const struct norm *plain_post(const struct decoder *d, uint32_t i, enum sub sub)
{
    const struct layer *y = &d->layers[i];
    const enum norm_place place = spec_norms(&d->spec, i);
    const bool post = place == NORM_AROUND || place == NORM_AFTER;
    if (sub == SUB_TAIL)
        return &y->post_tail_norm;
    if (sub == SUB_MIXER)
        return post ? &y->post_mixer_norm : NULL;
    return post || d->spec.layers[i].ffn_norm_after ? &y->post_ffn_norm : NULL;
}

static void write_mixer(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const struct decoder_spec *m = &d->spec;
    const struct layer *y = &d->layers[i];
    struct scratch *s = &d->scratch;
    const struct norm *then = &y->ffn_norm;
    if (!y->ffn.ops)
        then = residual_first_norm(d, i + 1);
    else if (m->parallel || !norm_place_before(spec_norms(m, i)))
        then = NULL;
    if (m->parallel && !m->shared_norm)
        d->ops->norm(d->dev, decoder_rows(d, s->n, p), decoder_rows(d, s->x, p), p->n, m->hidden,
                     &y->ffn_norm);
    add(d, p, s->n, s->x, y->mixer_by, then);
}

static void plain_write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct layer *y = &d->layers[i];
    const bool turn_ends = d->spec.layers[i].turn_ends;
    const bool more = y->tail.ops || y->scale != 0 || has_added(d, i) || turn_ends;
    struct scratch *s = &d->scratch;
    if (sub == SUB_MIXER)
        write_mixer(d, i, p);
    else if (sub == SUB_FFN)
        add(d, p, s->n, s->x, y->ffn_by, more ? NULL : residual_first_norm(d, i + 1));
    else
        add(d, p, s->n, s->x, 1, NULL);
    if (more && sub == (y->tail.ops ? SUB_TAIL : SUB_FFN))
        layer_end(d, i, p);
}

static int plain_begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    if (decoder_embed(d, p, e))
        return -1;
    if (d->spec.two_stacks)
        decoder_stacks_begin(d, p);
    return 0;
}

const struct residual_ops residual_plain = {.name = "plain",
                                            .begin = plain_begin,
                                            .enter = residual_enter,
                                            .in = plain_in,
                                            .post = plain_post,
                                            .write = plain_write};

/* ---------------------------------------------------------------- norms as the stream */

/* Of NORM_STREAM. n is the stream after the mixer, and x its norm; after the feed-forward x is the
 * stream again. */
static const float *norms_in(const struct decoder *d, uint32_t i, enum sub sub)
{
    (void)i;
    return sub == SUB_MIXER ? d->scratch.n : d->scratch.x;
}

static void norms_write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct layer *y = &d->layers[i];
    const float keep = d->spec.layers[i].keep[sub == SUB_FFN];
    struct scratch *s = &d->scratch;
    float *stream = sub == SUB_MIXER ? s->n : s->x, *other = sub == SUB_MIXER ? s->x : s->n;
    if (keep != 1)
        d->ops->logit_scale(d->dev, decoder_rows(d, stream, p), p->n, d->spec.hidden, keep, 0);
    add(d, p, other, stream, sub == SUB_MIXER ? y->mixer_by : y->ffn_by,
        sub == SUB_MIXER ? &y->ffn_norm : residual_first_norm(d, i + 1));
}

const struct residual_ops residual_norms = {.name = "norms",
                                            .begin = decoder_embed,
                                            .enter = residual_enter,
                                            .in = norms_in,
                                            .write = norms_write};

/* ---------------------------------------------------------------- norms of sums */

/* Of NORM_SUM. n is the norm of the first sum, to which the feed-forward's result is added; x is
 * the norm of the last sum, and in layers of one sublayer that of their only one. */
static const float *sums_in(const struct decoder *d, uint32_t i, enum sub sub)
{
    return sub == SUB_MIXER || !d->layers[i].mixer.ops ? d->scratch.x : d->scratch.n;
}

static void sums_write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const struct layer *y = &d->layers[i];
    struct scratch *s = &d->scratch;
    float *x = decoder_rows(d, s->x, p);
    const bool both = y->mixer.ops && y->ffn.ops, ffn = sub == SUB_FFN;
    const struct norm *norm = ffn ? &y->post_ffn_norm : &y->post_mixer_norm;
    if (both && ffn) {
        add(d, p, s->x, s->n, y->ffn_by, norm);
        return;
    }
    add(d, p, s->n, s->x, ffn ? y->ffn_by : y->mixer_by, both ? norm : NULL);
    if (!both)
        d->ops->norm(d->dev, x, x, p->n, d->spec.hidden, norm);
}

const struct residual_ops residual_sums = {.name = "sums",
                                           .begin = decoder_embed,
                                           .enter = residual_enter,
                                           .in = sums_in,
                                           .write = sums_write};
