/* shifted.c - RWKV's channel mixing (arXiv 2503.14456): the MLP of a mix of its input and that of
 * the token before. */
#include "model-server/model/mixer/shift.h"
#include <stdlib.h>

struct shifted {
    struct token_shift shift;
    struct sublayer mlp;
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return d->spec.hidden + ffn_dense.width(d, layer);
}

static void *load(struct loader *l, uint32_t at)
{
    static const struct mix_name shift = {W_SHIFT_FFN, 0};
    struct shifted *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    token_shift_load(l, &y->shift, (int)at, &shift, 1);
    y->mlp = (struct sublayer){.ops = &ffn_dense, .self = ffn_dense.load(l, at)};
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct shifted *y = self;
    token_shift_free(d, &y->shift);
    if (y->mlp.self)
        ffn_dense.free(d, y->mlp.self);
    free(y);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct shifted *y = self;
    float *mix = work_take(&s->work, s->tokens, d->spec.hidden);
    struct sub_step of = *s;
    token_shift_run(d, &y->shift, mix, s->in);
    of.in = mix;
    of.work = s->work;
    return ffn_dense.forward(d, y->mlp.self, &of, e);
}

const struct sublayer_ops ffn_shifted = {"shifted", width, load, release, forward};
