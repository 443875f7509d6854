/* beside.c - a dense MLP and experts in one layer, each with a norm of its own; the router reads
 * the residual stream through a third norm (Gemma 4). Norms need complete sums, so both are
 * summed over ranks here. */
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

struct beside {
    struct sublayer dense, experts;
    /* after the dense MLP; before and after the experts; before the router; [hidden] each */
    struct norm post_dense, pre_experts, post_experts, router;
};

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return ffn_dense.width(d, layer) + ffn_moe.width(d, layer) + 3 * d->spec.hidden;
}

static struct norm rms(const struct loader *l, float *w)
{
    return (struct norm){.kind = NORM_RMS, .w = w, .eps = l->d->spec.norm.eps};
}

static void *load(struct loader *l, uint32_t layer)
{
    const uint32_t hidden = l->d->spec.hidden;
    const int at = (int)layer;
    struct beside *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    y->dense = (struct sublayer){.ops = &ffn_dense, .self = ffn_dense.load(l, layer)};
    y->experts = (struct sublayer){.ops = &ffn_moe, .self = ffn_moe.load(l, layer)};
    y->post_dense = rms(l, loader_weight_vector(l, W_POST_DENSE_NORM, at, hidden));
    y->pre_experts = rms(l, loader_weight_vector(l, W_MOE_NORM, at, hidden));
    y->post_experts = rms(l, loader_weight_vector(l, W_POST_MOE_NORM, at, hidden));
    y->router =
        rms(l, loader_plain_vector(l, W_ROUTER_SCALE, at, hidden, (struct slice){0, hidden}));
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct beside *y = self;
    struct sublayer *subs[] = {&y->dense, &y->experts};
    struct norm *norms[] = {&y->post_dense, &y->pre_experts, &y->post_experts, &y->router};
    for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++)
        if (subs[i]->self)
            subs[i]->ops->free(d, subs[i]->self);
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        layer_free_norm(d, norms[i]);
    free(y);
}

/* `step.out` = the norm of a sublayer, summed over ranks. */
static int run(struct decoder *d, const struct sublayer *y, struct sub_step *step,
               const struct norm *post, struct err *e)
{
    const uint32_t hidden = d->spec.hidden;
    if (y->ops->forward(d, y->self, step, e) ||
        layer_sum(d, step->out, (size_t)step->tokens * hidden, e))
        return -1;
    d->ops->norm(d->dev, step->out, step->out, step->tokens, hidden, post);
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct beside *y = self;
    const uint32_t hidden = d->spec.hidden, t = s->tokens;
    float *in = work_take(&s->work, t, hidden), *router = work_take(&s->work, t, hidden);
    struct sub_step dense = *s, experts = *s;
    experts.out = work_take(&s->work, t, hidden);
    dense.work = s->work;
    if (run(d, &y->dense, &dense, &y->post_dense, e))
        return -1;
    d->ops->norm(d->dev, in, s->stream, t, hidden, &y->pre_experts);
    d->ops->norm(d->dev, router, s->stream, t, hidden, &y->router);
    d->ops->logit_scale(d->dev, router, t, hidden, 1 / sqrtf((float)hidden), 0);
    experts.in = in;
    experts.router_in = router;
    experts.work = dense.work;
    if (run(d, &y->experts, &experts, &y->post_experts, e))
        return -1;
    d->ops->add_norm(d->dev, NULL, s->out, experts.out, 1, t, hidden, NULL);
    return 0;
}

const struct sublayer_ops ffn_beside = {.name = "dense beside experts",
                                        .width = width,
                                        .load = load,
                                        .free = release,
                                        .forward = forward,
                                        .whole = true};
