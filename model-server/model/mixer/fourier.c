/* fourier.c - the real part of the discrete Fourier transform of a text, over the numbers of each
 * token and over its tokens (FNet, arXiv 2105.03824). There are no weights: a matrix of cosines and
 * sines makes the first half of each token's transform, and the backend transforms these over the
 * tokens. A text is not filled up, so others in a batch have no influence. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

/* Numbers of half a token's transform: the others are their conjugates. */
static uint32_t half_of(const struct decoder *d) { return d->spec.hidden / 2 + 1; }

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    (void)layer;
    return 2 * half_of(d);
}

/* Row k of the first half are the cosines of 2 pi j k / n, of the second one their sines, negative.
 * Angles are reduced exactly. */
static void fill(float *of, uint32_t n)
{
    const uint32_t half = n / 2 + 1;
    const double unit = 2 * 3.14159265358979323846 / n;
    for (uint64_t k = 0; k < half; k++)
        for (uint64_t j = 0; j < n; j++) {
            const double angle = unit * (double)(j * k % n);
            of[k * n + j] = (float)cos(angle);
            of[(half + k) * n + j] = (float)-sin(angle);
        }
}

/* Layers share the matrix. */
static void *load(struct loader *l, uint32_t layer)
{
    const uint32_t n = l->d->spec.hidden, rows = 2 * half_of(l->d);
    (void)layer;
    if (l->d->spectrum || l->failed)
        return NULL;
    float *of = malloc((size_t)rows * n * sizeof(*of));
    if (!of) {
        loader_nomem(l);
        return NULL;
    }
    fill(of, n);
    l->d->spectrum = loader_host_matrix(l, of, rows, n);
    free(of);
    return NULL;
}

static void release(struct decoder *d, void *self) { (void)d, (void)self; }

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    float *half = work_take(&t->work, t->tokens, width(d, t->layer));
    (void)self, (void)e;
    d->ops->linear(d->dev, half, t->in, t->tokens, d->spectrum, NULL);
    d->ops->fourier(d->dev, t->out, half, d->spec.hidden);
    return 0;
}

const struct sublayer_ops mixer_fourier = {.name = "fourier",
                                           .width = width,
                                           .load = load,
                                           .free = release,
                                           .stateless = layer_stateless,
                                           .forward = forward,
                                           .whole = true};
