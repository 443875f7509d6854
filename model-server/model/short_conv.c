#include "model-server/model/short_conv.h"
#include <math.h>
#include <stdlib.h>

void short_conv_take(struct loader *l, struct short_conv *c, float *taps, uint32_t width,
                     uint32_t channels)
{
    c->conv = (struct conv){.channels = channels, .width = width};
    if (taps)
        c->conv.w = loader_host_vector(l, taps, width * channels);
    free(taps);
    c->at = layer_take_state(l->d, l->d->ops->conv_floats(&c->conv));
}

/* Of the sum of a convolution and its input: see profile_spec.clip. */
static float kept_share(const struct decoder_spec *s)
{
    return s->profiles.clip > 0 ? 1 / sqrtf((float)(s->recur.conv + 1)) : 1;
}

void short_conv_load_kept(struct loader *l, struct short_conv *c, int layer,
                          const struct conv_part *parts, int n)
{
    const uint32_t width = l->d->spec.recur.conv;
    uint32_t channels = 0, first = 0;
    for (int i = 0; i < n; i++)
        channels += parts[i].of.n;
    float *taps = calloc((size_t)width * channels + 1, sizeof(*taps));
    if (!taps)
        loader_nomem(l);
    for (int i = 0; i < n; first += parts[i++].of.n) {
        const struct slice of = parts[i].of;
        float *all =
            loader_floats(l, parts[i].role, layer, NO_EXPERT, ".weight", parts[i].channels, width);
        for (size_t k = 0; taps && all && k < (size_t)of.n * width; k++) {
            const size_t channel = k / width, tap = k % width;
            taps[tap * channels + first + channel] =
                (all[(of.first + channel) * width + tap] + (tap + 1 == width ? 1 : 0)) *
                kept_share(&l->d->spec);
        }
        free(all);
    }
    short_conv_take(l, c, taps, width, channels);
}

void short_conv_free(struct decoder *d, struct short_conv *c)
{
    d->ops->free(d->dev, (void *)(uintptr_t)c->conv.w);
    d->ops->free(d->dev, (void *)(uintptr_t)c->conv.bias);
}

void short_conv_run(struct decoder *d, const struct short_conv *c, float *y, const float *x,
                    uint32_t x_stride)
{
    const struct state_ref state = layer_state(d, c->at);
    d->ops->conv(d->dev, y, x, x_stride, &state, &c->conv);
}
