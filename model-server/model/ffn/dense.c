/* dense.c - the feed-forward of one MLP: down(act(up(x))), or down(act(gate(x)) * up(x)) (arXiv
 * 2002.05202). */
#include "model-server/model/decoder.h"
#include "model-server/model/loader.h"
#include <stdlib.h>

struct dense {
    struct weight *up;   /* [2 * ffn, hidden] gate over up, or [ffn, hidden] */
    struct weight *down; /* [hidden, ffn] */
    float *up_bias, *down_bias;
};

static bool gated(const struct decoder *d) { return d->spec.mlp != MLP_PLAIN; }

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return (gated(d) ? 3 : 1) * split_ffn(&d->split, &d->spec, layer).n;
}

/* Gate over up, or up alone: this rank's rows of `ffn`. */
static int up_parts(struct loader *l, int layer, bool bias, struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = spec_ffn(s, (uint32_t)layer);
    const struct slice f = split_ffn(&l->d->split, s, (uint32_t)layer);
    if (s->mlp == MLP_GATED_PACKED) {
        parts[1] = loader_part(l, W_GATE_UP, layer, NO_EXPERT, bias, 2 * (int64_t)ffn, s->hidden);
        parts[0] = loader_rows(parts[1], f.first, f.n);
        parts[1] = loader_rows(parts[1], ffn + f.first, f.n);
        return 2;
    }
    int n = 0;
    if (s->mlp == MLP_GATED)
        parts[n++] = loader_rows(loader_part(l, W_GATE, layer, NO_EXPERT, bias, ffn, s->hidden),
                                 f.first, f.n);
    parts[n++] =
        loader_rows(loader_part(l, W_UP, layer, NO_EXPERT, bias, ffn, s->hidden), f.first, f.n);
    return n;
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = split_ffn(&l->d->split, s, at);
    const int layer = (int)at;
    struct mat_part parts[2];
    struct dense *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->up = loader_pack(l, parts, up_parts(l, layer, false, parts), l->d->dtype, l->d->quant);
    parts[0] = loader_part(l, W_DOWN, layer, NO_EXPERT, false, s->hidden, spec_ffn(s, at));
    parts[0] = loader_cut(parts[0], 0, s->hidden, f.first, f.n);
    y->down = loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
    if (!s->bias.mlp)
        return y;
    y->up_bias = loader_vector(l, parts, up_parts(l, layer, true, parts), 0);
    if (l->d->split.rank == 0) /* added once, before the sum over ranks */
        y->down_bias = loader_bias(l, W_DOWN, layer, s->hidden);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct dense *y = self;
    d->ops->free(d->dev, y->up_bias);
    d->ops->free(d->dev, y->down_bias);
    layer_free_weight(d, y->up);
    layer_free_weight(d, y->down);
    free(y);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct dense *y = self;
    const struct decoder_spec *m = &d->spec;
    const uint32_t ffn = split_ffn(&d->split, m, s->layer).n, up_width = gated(d) ? 2 * ffn : ffn;
    float *up = work_take(&s->work, s->tokens, up_width), *act = up;
    (void)e;
    layer_project(d, s->layer, &(struct projection){y->up, y->up_bias, LORA_UP, up_width}, up,
                  s->in, m->hidden, s->tokens);
    if (gated(d)) {
        act = work_take(&s->work, s->tokens, ffn);
        d->ops->act_mul(d->dev, act, up, s->tokens, ffn, m->act);
    } else {
        d->ops->act(d->dev, up, s->tokens, ffn, m->act);
    }
    layer_project(d, s->layer, &(struct projection){y->down, y->down_bias, LORA_DOWN, m->hidden},
                  s->out, act, ffn, s->tokens);
    return 0;
}

const struct sublayer_ops ffn_dense = {"dense", width, load, release, forward};
