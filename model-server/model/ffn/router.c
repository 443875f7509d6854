#include "model-server/model/ffn/router.h"
#include <stdlib.h>

/* Small, and its ties matter: fp32. */
struct router {
    struct weight *in, *first, *second; /* [width, hidden], [width, width] */
    float *in_bias, *first_bias, *second_bias;
    float *carry; /* [width], or NULL: nothing is added in the first layer */
    struct norm norm;
};

static struct weight *pack(struct loader *l, enum role role, int layer, uint32_t cols)
{
    struct mat_part p =
        loader_part(l, role, layer, NO_EXPERT, false, l->d->spec.moe.router_width, cols);
    return loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
}

struct router *router_load(struct loader *l, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->moe.router_width;
    struct router *r = calloc(1, sizeof(*r));
    if (!r) {
        loader_nomem(l);
        return NULL;
    }
    r->in = pack(l, W_ROUTER_IN, layer, s->hidden);
    r->in_bias = loader_bias(l, W_ROUTER_IN, layer, n);
    if (layer > 0)
        r->carry = loader_plain_vector(l, W_ROUTER_CARRY, layer, n, (struct slice){0, n});
    r->norm = (struct norm){.kind = NORM_RMS, .eps = s->norm.eps};
    r->norm.w = loader_weight_vector(l, W_ROUTER_NORM, layer, n);
    r->first = pack(l, W_ROUTER_FIRST, layer, n);
    r->first_bias = loader_bias(l, W_ROUTER_FIRST, layer, n);
    r->second = pack(l, W_ROUTER_SECOND, layer, n);
    r->second_bias = loader_bias(l, W_ROUTER_SECOND, layer, n);
    return r;
}

void router_free(struct decoder *d, struct router *r)
{
    if (!r)
        return;
    layer_free_weight(d, r->in);
    layer_free_weight(d, r->first);
    layer_free_weight(d, r->second);
    d->ops->free(d->dev, r->in_bias);
    d->ops->free(d->dev, r->first_bias);
    d->ops->free(d->dev, r->second_bias);
    d->ops->free(d->dev, r->carry);
    layer_free_norm(d, &r->norm);
    free(r);
}

uint32_t router_work(const struct decoder *d) { return 3 * d->spec.moe.router_width; }

const float *router_run(struct decoder *d, const struct router *r, struct sub_step *s)
{
    const uint32_t n = d->spec.moe.router_width, t = s->tokens;
    float *x = work_take(&s->work, t, n), *y = work_take(&s->work, t, n);
    float *z = work_take(&s->work, t, n), *carried = d->scratch.carried + (size_t)s->first * n;
    d->ops->linear(d->dev, x, s->in, t, r->in, r->in_bias);
    if (r->carry) {
        layer_times(d, carried, t, n, r->carry);
        d->ops->add_norm(d->dev, NULL, carried, x, 1, t, n, NULL);
    } else {
        d->ops->beside(d->dev, carried, x, NULL, t, n);
    }
    d->ops->norm(d->dev, y, carried, t, n, &r->norm);
    d->ops->linear(d->dev, z, y, t, r->first, r->first_bias);
    d->ops->act(d->dev, z, t, n, ACT_GELU);
    d->ops->linear(d->dev, y, z, t, r->second, r->second_bias);
    d->ops->act(d->dev, y, t, n, ACT_GELU);
    return y;
}
