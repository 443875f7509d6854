/* pair.c - attention and Mamba-2 in parallel, on the same input; the sum of their results, each
 * with its own factor (Falcon-H1, arXiv 2507.22448). */
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/mixer/attention.h"
#include <stdlib.h>

struct pair {
    struct sublayer attention, mamba;
};

/* One after the other: the second reuses the memory of the first. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t a = mixer_attention.width(d, layer), b = mixer_mamba2.width(d, layer);
    return d->spec.hidden + (a > b ? a : b);
}

static void *load(struct loader *l, uint32_t layer)
{
    struct pair *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->attention =
        (struct sublayer){.ops = &mixer_attention, .self = mixer_attention.load(l, layer)};
    y->mamba = (struct sublayer){.ops = &mixer_mamba2, .self = mixer_mamba2.load(l, layer)};
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct pair *y = self;
    struct sublayer *subs[] = {&y->attention, &y->mamba};
    for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++)
        if (subs[i]->self)
            subs[i]->ops->free(d, subs[i]->self);
    free(y);
}

/* Mamba-2's result: the first area of the work, before those of either mixer. */
static float *take_out(const struct decoder *d, struct sub_step *s)
{
    const uint32_t hidden = d->spec.hidden;
    return work_take(&s->work, s->total, hidden) + (size_t)s->first * hidden;
}

static int store(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct pair *y = self;
    (void)take_out(d, s);
    return y->attention.ops->store(d, y->attention.self, s, e);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct pair *y = self;
    const struct recur_spec *r = &d->spec.recur;
    const uint32_t hidden = d->spec.hidden, t = s->tokens;
    float *out = take_out(d, s);
    struct sub_step attention = *s, mamba = *s;
    mamba.out = out;
    if (y->attention.ops->forward(d, y->attention.self, &attention, e) ||
        y->mamba.ops->forward(d, y->mamba.self, &mamba, e))
        return -1;
    if (r->attn_out_scale != 1)
        d->ops->logit_scale(d->dev, s->out, t, hidden, r->attn_out_scale, 0);
    d->ops->add_norm(d->dev, NULL, s->out, out, r->out_scale, t, hidden, NULL);
    return 0;
}

const struct sublayer_ops mixer_pair = {.name = "attention beside mamba2",
                                        .width = width,
                                        .load = load,
                                        .free = release,
                                        .store = store,
                                        .forward = forward,
                                        .kv = attention_keeps};
