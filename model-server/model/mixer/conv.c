/* conv.c - a short convolution between two gates (LFM2, arXiv 2511.23404): with three products of
 * the input, C * conv(B * u), then the output projection. */
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct conv_mixer {
    struct weight *in; /* [B, C, u of the channels; hidden] */
    float *in_bias;
    struct short_conv conv;
    struct out_projection out;
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return (void)layer, 4 * d->split.channels.n;
}

static struct rows in_rows(struct loader *l, int layer, bool bias)
{
    const uint32_t n = l->d->spec.hidden;
    const struct slice c = l->d->split.channels;
    const struct mat_part in = loader_part(l, W_MIX_IN, layer, NO_EXPERT, bias, 3 * (int64_t)n, n);
    struct rows rows = {0};
    for (uint32_t i = 0; i < 3; i++)
        rows_add(l, &rows, 0, in, scaled(c, 1, i * n));
    return rows;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const int layer = (int)at;
    struct conv_mixer *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    struct rows in = in_rows(l, layer, false);
    y->in = rows_pack(l, &in, l->d->dtype, l->d->quant);
    if (s->recur.proj_bias) {
        in = in_rows(l, layer, true);
        y->in_bias = rows_vector(l, &in);
    }
    short_conv_load(l, &y->conv, layer, s->hidden, &l->d->split.channels, 1);
    out_projection_load(l, &y->out, layer, s->hidden, l->d->split.channels);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct conv_mixer *y = self;
    layer_free_weight(d, y->in);
    d->ops->free(d->dev, y->in_bias);
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
    free(y);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct conv_mixer *y = self;
    const uint32_t n = d->split.channels.n, t = s->tokens;
    float *in = work_take(&s->work, t, 3 * (size_t)n), *x = work_take(&s->work, t, n);
    struct gate_norm by = {.kind = GATE_PRODUCT, .gate = in, .stride = 3 * n};
    (void)e;
    float *third = in + (size_t)2 * n;
    const struct projection before = {y->in, y->in_bias, LORA_MIX_IN, 3 * n};
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    d->ops->gate_norm(d->dev, third, 3 * n, t, n, &by);
    short_conv_run(d, &y->conv, x, third, 3 * n);
    by.gate = in + n;
    d->ops->gate_norm(d->dev, x, n, t, n, &by);
    out_projection_run(d, &y->out, s, x, n);
    return 0;
}

const struct sublayer_ops mixer_conv = {"conv", width, load, release, forward};
