#include "model-server/model/first_conv.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/taps.h"
#include <assert.h>
#include <stdlib.h>

struct first_conv {
    struct taps taps; /* [hidden, hidden] */
    struct norm norm; /* [hidden] */
};

struct first_conv *first_conv_load(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t n = s->first_conv, hidden = s->hidden;
    struct first_conv *c = calloc(1, sizeof(*c));
    assert(n <= TAPS_MOST);
    if (!c) {
        loader_nomem(l);
        return NULL;
    }
    c->taps.n = n, c->taps.in = c->taps.out = hidden;
    l->hold = true;
    const struct mat_part all =
        loader_table(l, W_FIRST_CONV, NO_LAYER, ".weight", hidden, (int64_t)hidden * n);
    for (uint32_t j = 0; j < n && !l->failed; j++) {
        struct mat_part p = loader_cut(all, 0, hidden, j, hidden);
        p.col_stride *= n; /* the token's dimension is the last one */
        c->taps.w[j] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
    c->taps.bias = loader_bias(l, W_FIRST_CONV, NO_LAYER, hidden);
    c->norm = loader_norm(l, W_FIRST_CONV_NORM, NO_LAYER);
    return c;
}

void first_conv_free(struct decoder *d, struct first_conv *c)
{
    if (!c)
        return;
    taps_free(d, &c->taps);
    layer_free_norm(d, &c->norm);
    free(c);
}

int first_conv_run(struct decoder *d, struct first_conv *c, const struct ragged *b, struct err *e)
{
    struct scratch *s = &d->scratch;
    if (taps_run(d, &c->taps, b, s->embedded, s->x, s->n, s->r, e))
        return -1;
    d->ops->act(d->dev, s->embedded, b->n_tokens, d->spec.hidden, d->spec.first_conv_act);
    return 0;
}

void first_conv_add(struct decoder *d, const struct first_conv *c, uint32_t t)
{
    struct scratch *s = &d->scratch;
    const uint32_t hidden = d->spec.hidden;
    d->ops->add_norm(d->dev, NULL, s->x, s->embedded, 1, t, hidden, NULL);
    d->ops->norm(d->dev, s->x, s->x, t, hidden, &c->norm);
}
