/* shortcut.c - a dense MLP, in every other layer with experts of the same input, whose result is
 * added to that of the next layer (LongCat-Flash, arXiv 2509.01322: the experts run beside the next
 * layer's attention). Both results are this rank's shares, so one sum over ranks covers them. */
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include <stdlib.h>

struct shortcut {
    struct sublayer dense, experts; /* experts.ops NULL: none */
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t dense = ffn_dense.width(d, layer);
    const uint32_t experts = d->spec.layers[layer].moe ? ffn_moe.width(d, layer) : 0;
    return dense > experts ? dense : experts;
}

static void *load(struct loader *l, uint32_t layer)
{
    struct shortcut *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->dense = (struct sublayer){.ops = &ffn_dense, .self = ffn_dense.load(l, layer)};
    if (l->d->spec.layers[layer].moe)
        y->experts = (struct sublayer){.ops = &ffn_moe, .self = ffn_moe.load(l, layer)};
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct shortcut *y = self;
    struct sublayer *subs[] = {&y->dense, &y->experts};
    for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++)
        if (subs[i]->self)
            subs[i]->ops->free(d, subs[i]->self);
    free(y);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct shortcut *y = self;
    const uint32_t hidden = d->spec.hidden;
    float *carried = d->scratch.carried + (size_t)s->first * hidden;
    struct sub_step experts = *s;
    if (y->dense.ops->forward(d, y->dense.self, s, e))
        return -1;
    if (!y->experts.ops) {
        d->ops->add_norm(d->dev, NULL, s->out, carried, 1, s->tokens, hidden, NULL);
        return 0;
    }
    experts.out = carried;
    return y->experts.ops->forward(d, y->experts.self, &experts, e);
}

const struct sublayer_ops ffn_shortcut = {.name = "dense with a shortcut of experts",
                                          .width = width,
                                          .load = load,
                                          .free = release,
                                          .forward = forward};
