/* balanced.c - one residual stream x that becomes a x + b n(r) after a sublayer with
 * result r (Muse Spark). A stored number g of each element, divided by the temperature, gives b =
 * sigmoid(g) and a = sqrt(max(sigmoid(-g) (1 + b), 1e-3)), so that a^2 + b^2 is 1 but for that
 * bound. The norm n has no weights; the feed-forward's result is multiplied by stored factors
 * before it. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <math.h>
#include <stdlib.h>

struct balanced_part {
    float *keep, *add;     /* [hidden] a and b */
    float *factors, *ones; /* [hidden]; factors NULL: the mixer has none */
};
static const float LEAST = 1e-3f;

/* ---------------------------------------------------------------- loading */

static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    struct balanced_part *y = part;
    const uint32_t n = l->d->spec.hidden;
    const enum role role = sub == SUB_FFN ? W_BALANCE_FFN : W_BALANCE;
    float *g = loader_floats(l, role, layer, NO_EXPERT, "", n, 1), *keep = calloc(n, sizeof(*keep));
    if (!keep)
        loader_nomem(l);
    for (uint32_t i = 0; g && keep && i < n; i++) {
        const float x = g[i] / l->d->spec.balance, b = 1 / (1 + expf(-x)), rest = 1 / (1 + expf(x));
        keep[i] = sqrtf(fmaxf(rest * (1 + b), LEAST));
        g[i] = b;
    }
    if (!l->failed) {
        y->keep = loader_host_vector(l, keep, n);
        y->add = loader_host_vector(l, g, n);
        y->ones = loader_ones(l, n);
    }
    if (sub == SUB_FFN)
        y->factors = loader_weight_vector(l, W_BALANCE_FFN_NORM, layer, n);
    free(g), free(keep);
}

static void release(struct decoder *d, void *part)
{
    struct balanced_part *y = part;
    d->ops->free(d->dev, y->keep);
    d->ops->free(d->dev, y->add);
    d->ops->free(d->dev, y->factors);
    d->ops->free(d->dev, y->ones);
}

/* ---------------------------------------------------------------- in a step */

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    const struct balanced_part *y = (const struct balanced_part *)d->layers[i].residual + sub;
    float *x = decoder_rows(d, d->scratch.x, p), *r = decoder_rows(d, d->scratch.r, p);
    const struct norm *next =
        sub == SUB_MIXER ? &d->layers[i].ffn_norm : residual_first_norm(d, i + 1);
    const struct gate_norm norm = {.kind = y->factors ? GATE_PRODUCT : GATE_NONE,
                                   .gate = y->factors,
                                   .w = y->ones,
                                   .group = hidden,
                                   .eps = d->spec.norm.post_eps};
    d->ops->gate_norm(d->dev, r, hidden, p->n, hidden, &norm);
    layer_times(d, r, p->n, hidden, y->add);
    layer_times(d, x, p->n, hidden, y->keep);
    d->ops->add_norm(d->dev, decoder_rows(d, d->scratch.n, p), x, r, 1, p->n, hidden, next);
}

const struct residual_ops residual_balanced = {.name = "balanced",
                                               .part = sizeof(struct balanced_part),
                                               .load = load,
                                               .free = release,
                                               .begin = decoder_embed,
                                               .enter = residual_enter,
                                               .write = write};
