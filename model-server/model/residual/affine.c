/* affine.c - one residual stream x to which a sublayer's result r is added as
 * (x + a) * b + (r + c) * d, with vectors of each sublayer (ZAYA): the products first, then the
 * sums, of which the constant a * b + c * d is a norm's bias. */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include <stdlib.h>

struct affine {
    float *keep, *add;     /* [hidden] b and d; of the embedding `add` is NULL */
    struct norm constants; /* of any row: a * b + c * d */
};
/* ---------------------------------------------------------------- loading */

/* The numbers of a role with a whole name. */
static void numbers(struct loader *l, enum role role, int layer, float *out)
{
    const uint32_t n = l->d->spec.hidden;
    const struct mat_part p = loader_table(l, role, layer, "", n, 1);
    for (uint32_t i = 0; i < n; i++)
        out[i] = p.data ? number_at(p.data, p.dtype, i) : 0;
    loader_drop(l);
}

/* A vector and the bias that it multiplies, of consecutive roles; sum += their product. */
static float *load_pair(struct loader *l, enum role role, int layer, float *work, float *sum)
{
    const uint32_t n = l->d->spec.hidden;
    numbers(l, role, layer, work);
    numbers(l, role + 1, layer, work + n);
    float *by = loader_host_vector(l, work, n);
    for (uint32_t i = 0; i < n; i++)
        sum[i] += work[i] * work[n + i];
    return by;
}

/* `role`: the first of four, or with `first` of two. */
static struct affine load_affine(struct loader *l, enum role role, int layer, bool first)
{
    const uint32_t n = l->d->spec.hidden;
    struct affine y = {0};
    float *host = calloc(4 * (size_t)n, sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return y;
    }
    const float *zero = host + n;
    float *work = host + n + n;
    y.keep = load_pair(l, role, layer, work, host);
    if (!first)
        y.add = load_pair(l, role + 2, layer, work, host);
    y.constants = (struct norm){.kind = NORM_LAYER, .eps = 1, .w = loader_host_vector(l, zero, n)};
    y.constants.b = loader_host_vector(l, host, n);
    free(host);
    return y;
}

static void load(struct loader *l, void *part, int layer, enum sub sub)
{
    struct affine *y = part;
    *y = load_affine(l, sub == SUB_FFN ? W_STREAM_KEEP_FFN : W_STREAM_KEEP, layer, false);
}

static void release(struct decoder *d, void *part)
{
    struct affine *y = part;
    d->ops->free(d->dev, y->keep);
    d->ops->free(d->dev, y->add);
    layer_free_norm(d, &y->constants);
}

void decoder_affine_load_first(struct loader *l)
{
    struct affine *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return;
    }
    l->d->affine_first = y;
    *y = load_affine(l, W_STREAM_KEEP_FIRST, NO_LAYER, true);
}

void decoder_affine_free_first(struct decoder *d)
{
    if (!d->affine_first)
        return;
    release(d, d->affine_first);
    free(d->affine_first);
}

/* ---------------------------------------------------------------- in a step */

/* x = x * b + the constants, for which n is scratch memory. */
static void keep(struct decoder *d, const struct affine *y, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    float *x = decoder_rows(d, d->scratch.x, p), *n = decoder_rows(d, d->scratch.n, p);
    d->ops->norm(d->dev, n, x, p->n, hidden, &y->constants);
    layer_times(d, x, p->n, hidden, y->keep);
    d->ops->add_norm(d->dev, NULL, x, n, 1, p->n, hidden, NULL);
}

static int begin(struct decoder *d, const struct decoder_part *p, struct err *e)
{
    if (decoder_embed(d, p, e))
        return -1;
    keep(d, d->affine_first, p);
    return 0;
}

static void write(struct decoder *d, uint32_t i, enum sub sub, const struct decoder_part *p)
{
    const uint32_t hidden = d->spec.hidden;
    const struct affine *y = (const struct affine *)d->layers[i].residual + sub;
    float *x = decoder_rows(d, d->scratch.x, p), *r = decoder_rows(d, d->scratch.r, p);
    const struct norm *next =
        sub == SUB_MIXER ? &d->layers[i].ffn_norm : residual_first_norm(d, i + 1);
    layer_times(d, r, p->n, hidden, y->add);
    keep(d, y, p);
    d->ops->add_norm(d->dev, decoder_rows(d, d->scratch.n, p), x, r, 1, p->n, hidden, next);
}

const struct residual_ops residual_affine = {.name = "affine",
                                             .part = sizeof(struct affine),
                                             .load = load,
                                             .free = release,
                                             .begin = begin,
                                             .enter = residual_enter,
                                             .write = write};
