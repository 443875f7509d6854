/* sphere.c - one residual stream of length 1 (nGPT, arXiv 2410.01131). With n the stream
 * divided by its length and r a sublayer's result divided by its own, the stream becomes
 * n + a (r - n) with a rate a of each number: two norms, whose weights are 1 - a and a.
 *
 * Some layers may run in turns, whose input is the last one's result plus that of the layers
 * before the first turn, both of length 1; scratch.carried keeps the latter. */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <math.h>
#include <stdlib.h>

struct move {
    struct norm keep, add; /* of the stream and of the result */
};
/* ---------------------------------------------------------------- loading */

static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->hidden;
    const float each = 1 / sqrtf((float)n); /* norms divide by the root of the mean square */
    struct move *y = part;
    float *host = malloc(2 * (size_t)n * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    const struct mat_part p =
        loader_table(l, sub == SUB_FFN ? W_SPHERE_RATE_FFN : W_SPHERE_RATE, layer, "", n, 1);
    for (uint32_t i = 0; i < n; i++) {
        const float rate = p.data ? fabsf(s->sphere.rate * number_at(p.data, p.dtype, i)) : 0;
        host[i] = (1 - rate) * each;
        host[n + i] = rate * each;
    }
    loader_drop(l);
    y->keep = y->add = (struct norm){.kind = NORM_RMS, .eps = spec_norm_eps(s, n)};
    y->keep.w = loader_host_vector(l, host, n);
    y->add.w = loader_host_vector(l, host + n, n);
    free(host);
}

static void release(struct decoder *d, void *part)
{
    struct move *y = part;
    layer_free_norm(d, &y->keep);
    layer_free_norm(d, &y->add);
}

/* ---------------------------------------------------------------- in a step */

static const struct norm *post(const struct decoder *d, uint32_t i, enum sub sub)
{
    const struct move *moves = d->layers[i].residual;
    return &moves[sub].add;
}

/* After layer i, with which a turn ends, or the layers before the first one. */
static void turn(struct decoder *d, uint32_t i, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    float *x = decoder_rows(d, d->scratch.x, p), *first = decoder_rows(d, d->scratch.carried, p);
    if (i + 1 == d->spec.sphere.before_turns)
        d->ops->norm(d->dev, first, x, p->n, hidden, &d->final_norm);
    d->ops->norm(d->dev, x, x, p->n, hidden, &d->final_norm);
    d->ops->add_norm(d->dev, NULL, x, first, 1, p->n, hidden, NULL);
    residual_enter(d, i + 1, p);
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    const struct move *moves = d->layers[i].residual;
    float *x = decoder_rows(d, d->scratch.x, p);
    const bool turns = sub == SUB_FFN && d->spec.layers[i].turn_ends;
    const struct norm *next = sub == SUB_MIXER ? &d->layers[i].ffn_norm
                              : turns          ? NULL
                                               : residual_first_norm(d, i + 1);
    d->ops->norm(d->dev, x, x, p->n, hidden, &moves[sub].keep);
    d->ops->add_norm(d->dev, decoder_rows(d, d->scratch.n, p), x, decoder_rows(d, d->scratch.r, p),
                     1, p->n, hidden, next);
    if (turns)
        turn(d, i, p);
}

const struct residual_ops residual_sphere = {.name = "sphere",
                                             .part = sizeof(struct move),
                                             .load = load,
                                             .free = release,
                                             .begin = decoder_embed,
                                             .enter = residual_enter,
                                             .post = post,
                                             .write = write};
