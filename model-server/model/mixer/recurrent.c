#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

uint64_t recur_take_state(struct decoder *d)
{
    const struct recur_spec *r = &d->spec.recur;
    const struct recur size = {
        .heads = d->split.mix_heads.n, .key_dim = r->key_dim, .value_dim = r->value_dim};
    return layer_take_state(d, d->ops->recur_floats(&size));
}

bool rows_add(struct loader *l, struct rows *r, uint32_t source, struct mat_part whole,
              struct slice s)
{
    if (r->n && r->source == source && r->end == s.first) {
        r->v[r->n - 1].rows += s.n;
        r->end += s.n;
        return true;
    }
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 8;
        struct mat_part *v = realloc(r->v, (size_t)cap * sizeof(*v));
        if (!v) {
            loader_nomem(l);
            return false;
        }
        r->v = v;
        r->cap = cap;
    }
    r->v[r->n++] = loader_rows(whole, s.first, s.n);
    r->source = source;
    r->end = s.first + s.n;
    return true;
}

static void rows_free(struct rows *r)
{
    free(r->v);
    *r = (struct rows){0};
}

struct weight *rows_pack(struct loader *l, struct rows *r, enum dtype dtype, enum quant quant)
{
    struct weight *w = l->failed ? NULL : loader_pack(l, r->v, r->n, dtype, quant);
    rows_free(r);
    return w;
}

float *rows_vector(struct loader *l, struct rows *r)
{
    float *v = l->failed ? NULL : loader_vector(l, r->v, r->n, 0);
    rows_free(r);
    return v;
}

/* ---------------------------------------------------------------- convolution */

void short_conv_load(struct loader *l, struct short_conv *c, int layer, uint32_t channels,
                     const struct slice *of, int n)
{
    const struct recur_spec *s = &l->d->spec.recur;
    const struct mat_part w = loader_table(l, W_MIX_CONV, layer, ".weight", channels, s->conv);
    struct rows taps = {0}, bias = {0};
    c->conv.width = s->conv;
    for (uint32_t tap = 0; tap < s->conv; tap++) /* the last dimension becomes the first */
        for (int i = 0; i < n; i++)
            rows_add(l, &taps, tap, loader_cut(w, 0, channels, tap, 1), of[i]);
    c->conv.w = rows_vector(l, &taps);
    for (int i = 0; i < n; i++)
        c->conv.channels += of[i].n;
    if (s->conv_bias) {
        const struct mat_part b = loader_part(l, W_MIX_CONV, layer, NO_EXPERT, true, channels, 1);
        for (int i = 0; i < n; i++)
            rows_add(l, &bias, 0, b, of[i]);
        c->conv.bias = rows_vector(l, &bias);
    }
    c->at = layer_take_state(l->d, l->d->ops->conv_floats(&c->conv));
}

void short_conv_load_parts(struct loader *l, struct short_conv *c, int layer,
                           const struct conv_part *parts, int n)
{
    const uint32_t width = l->d->spec.recur.conv;
    struct mat_part w[3] = {{0}};
    struct rows taps = {0};
    c->conv.width = width;
    for (int i = 0; i < n; i++) {
        w[i] = loader_table(l, parts[i].role, layer, ".weight", parts[i].channels, width);
        c->conv.channels += parts[i].of.n;
    }
    for (uint32_t tap = 0; tap < width; tap++)
        for (int i = 0; i < n; i++)
            rows_add(l, &taps, tap * (uint32_t)n + (uint32_t)i,
                     loader_cut(w[i], 0, parts[i].channels, tap, 1), parts[i].of);
    c->conv.w = rows_vector(l, &taps);
    c->at = layer_take_state(l->d, l->d->ops->conv_floats(&c->conv));
}

/* ---------------------------------------------------------------- the way out */

void out_projection_load(struct loader *l, struct out_projection *o, int layer, uint32_t cols,
                         struct slice s)
{
    const uint32_t hidden = l->d->spec.hidden;
    const enum role role = l->d->spec.recur.apart ? W_O : W_MIX_OUT;
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, hidden, cols);
    p = loader_cut(p, 0, hidden, s.first, s.n);
    o->w = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    if (l->d->spec.recur.proj_bias && l->d->split.rank == 0) /* added once, before the sum */
        o->bias = loader_bias(l, W_MIX_OUT, layer, hidden);
}

void out_projection_run(struct decoder *d, const struct out_projection *o, const struct sub_step *s,
                        const float *x, uint32_t width)
{
    const struct projection p = {o->w, o->bias, LORA_MIX_OUT, d->spec.hidden};
    layer_project(d, s->layer, &p, s->out, x, width, s->tokens);
}

void out_projection_free(struct decoder *d, struct out_projection *o)
{
    layer_free_weight(d, o->w);
    d->ops->free(d->dev, o->bias);
}
