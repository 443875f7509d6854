/* dense.c - the feed-forward of one MLP: down(act(up(x))), or down(act(gate(x)) * up(x)) (arXiv
 * 2002.05202). */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include <math.h>
#include <stdlib.h>

struct dense {
    struct weight *up;   /* [2 * ffn, hidden] gate over up, or [ffn, hidden] */
    struct weight *down; /* [hidden, ffn] */
    float *up_bias, *down_bias;
    float *norm;    /* before `down`: this rank's weights, or NULL */
    float *factors; /* of all that `up` makes, or NULL */
    struct clip up_clip, down_clip;
    float above, below; /* of xIELU */
};

static bool gated(const struct decoder *d) { return d->spec.mlp != MLP_PLAIN; }

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t ffn = split_ffn(&d->split, &d->spec, layer).n;
    return (gated(d) ? 3 : 1) * ffn + (d->spec.clips ? d->spec.hidden + ffn : 0) +
           (d->spec.layers[layer].sparse || d->spec.sub_norms ? SQUARES : 0) +
           (d->spec.shared.rank ? d->spec.shared.rank + (gated(d) ? 2 : 1) * ffn : 0);
}

/* Gate over up, or up alone: this rank's rows of `ffn`. */
static int up_parts(struct loader *l, int layer, bool bias, struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = spec_ffn(s, (uint32_t)layer);
    const struct slice f = split_ffn(&l->d->split, s, (uint32_t)layer);
    const bool apart = loader_has(l, W_GATE, layer, NO_EXPERT); /* in GGUF files */
    if (s->mlp == MLP_UP_PACKED || (s->mlp == MLP_GATED_PACKED && !apart)) {
        const uint32_t gate = s->mlp == MLP_UP_PACKED ? ffn : 0;
        parts[1] = loader_part(l, W_GATE_UP, layer, NO_EXPERT, bias, 2 * (int64_t)ffn, s->hidden);
        parts[0] = loader_rows(parts[1], gate + f.first, f.n);
        parts[1] = loader_rows(parts[1], ffn - gate + f.first, f.n);
        return 2;
    }
    int n = 0;
    if (l->c && l->a->names[W_GATE_UP_TURNS] && loader_has(l, W_GATE_UP_TURNS, layer, NO_EXPERT)) {
        parts[0] =
            loader_part(l, W_GATE_UP_TURNS, layer, NO_EXPERT, bias, 2 * (int64_t)ffn, s->hidden);
        loader_turns(l, parts[0], f.first, f.n, parts);
        return 2;
    }
    if (s->mlp != MLP_PLAIN)
        parts[n++] = loader_rows(loader_part(l, W_GATE, layer, NO_EXPERT, bias, ffn, s->hidden),
                                 f.first, f.n);
    parts[n++] =
        loader_rows(loader_part(l, W_UP, layer, NO_EXPERT, bias, ffn, s->hidden), f.first, f.n);
    return n;
}

/* Of the gates, which come first. */
static void load_factors(struct loader *l, struct dense *y, uint32_t ffn)
{
    float *host = malloc(2 * (size_t)ffn * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < 2 * ffn; i++)
        host[i] = i < ffn ? l->d->spec.gate_scale : 1;
    y->factors = loader_host_vector(l, host, 2 * ffn);
    free(host);
}

/* Of gates and ups, which the checkpoint has. */
static void load_sphere(struct loader *l, struct dense *y, int layer, struct slice f)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t ffn = spec_ffn(s, (uint32_t)layer);
    static const enum role roles[] = {W_SPHERE_MLP_GATE, W_SPHERE_MLP_UP};
    float *host = malloc(2 * (size_t)f.n * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    for (uint32_t half = 0; half < 2; half++) {
        const struct mat_part p = loader_table(l, roles[half], layer, "", ffn, 1);
        for (uint32_t i = 0; i < f.n; i++)
            host[half * f.n + i] =
                p.data ? s->sphere.mlp * number_at(p.data, p.dtype, f.first + i) : 1;
        loader_drop(l);
    }
    y->factors = loader_host_vector(l, host, 2 * f.n);
    y->norm = loader_constants(l, f.n, 1 / sqrtf((float)ffn));
    free(host);
}

static void load_clips(struct loader *l, struct dense *y, int layer, uint32_t ffn)
{
    static const enum role gated_up[] = {W_CLIP_GATE, W_CLIP_UP}, down[] = {W_CLIP_DOWN};
    const struct decoder_spec *s = &l->d->spec;
    const int first = gated(l->d) ? 0 : 1;
    y->up_clip =
        loader_clip(l, gated_up + first, (const uint32_t[]){ffn, ffn}, 2 - first, layer, s->hidden);
    y->down_clip = loader_clip(l, down, &s->hidden, 1, layer, ffn);
}

static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

static void load_xielu(struct loader *l, struct dense *y, int layer)
{
    y->above = softplus(loader_number(l, W_XIELU_ABOVE, layer));
    y->below = 0.5f + softplus(loader_number(l, W_XIELU_BELOW, layer));
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
    y->down = s->sub_scale ? loader_pack_scaled(l, parts[0], W_MLP_SCALE, layer, l->d->quant)
                           : loader_pack(l, parts, 1, l->d->dtype, l->d->quant);
    if (s->xielu)
        load_xielu(l, y, layer);
    if (s->sphere.rate != 0)
        load_sphere(l, y, layer, f);
    else if (s->sub_norms)
        y->norm = loader_weight_slice(l, W_MLP_SUB_NORM, layer, spec_ffn(s, at), f);
    if (s->clips)
        load_clips(l, y, layer, f.n);
    if (gated(l->d) && s->gate_scale != 0)
        load_factors(l, y, f.n);
    if (s->bias.mlp)
        y->up_bias = loader_vector(l, parts, up_parts(l, layer, true, parts), 0);
    if ((s->bias.mlp || s->bias.down) &&
        l->d->split.rank == 0) /* added once, before the sum over ranks */
        y->down_bias = s->sub_scale ? loader_scaled_bias(l, W_DOWN, W_MLP_SCALE, layer, s->hidden)
                                    : loader_bias(l, W_DOWN, layer, s->hidden);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct dense *y = self;
    d->ops->free(d->dev, y->up_bias);
    d->ops->free(d->dev, y->down_bias);
    d->ops->free(d->dev, y->norm);
    d->ops->free(d->dev, y->factors);
    layer_free_clip(d, &y->up_clip);
    layer_free_clip(d, &y->down_clip);
    layer_free_weight(d, y->up);
    layer_free_weight(d, y->down);
    free(y);
}

/* Cuts off the gates, which are in the first `n` of `stride` columns, by the moments of all ranks'
 * gates. */
static int sparsify(struct decoder *d, struct sub_step *s, float *gates, uint32_t stride,
                    uint32_t n, struct err *e)
{
    float *moments = work_take(&s->work, s->tokens, SQUARES);
    const struct sparsify p = {.moments = moments,
                               .of = spec_ffn(&d->spec, s->layer),
                               .deviations = d->spec.layers[s->layer].deviations};
    d->ops->row_moments(d->dev, moments, gates, stride, s->tokens, n);
    if (layer_sum(d, moments, (size_t)s->tokens * SQUARES, e))
        return -1;
    d->ops->sparsify(d->dev, gates, stride, s->tokens, n, &p);
    return 0;
}

/* The whole feed-forward in one operation, if nothing is between its matrices but the activation
 * and the device prefers it. */
static bool forward_at_once(struct decoder *d, const struct dense *y, struct sub_step *s)
{
    const struct decoder_spec *m = &d->spec;
    const struct mlp p = {.up = y->up,
                          .down = y->down,
                          .up_bias = y->up_bias,
                          .down_bias = y->down_bias,
                          .act = spec_act(m, s->layer),
                          .gated = gated(d)};
    return d->ops->mlp && !d->adapters && !m->clips && !s->update && !y->factors && !y->norm &&
           !m->layers[s->layer].sparse && !m->xielu && m->down_scale == 0 &&
           d->ops->mlp(d->dev, s->out, s->in, s->tokens, &p);
}

static int tile(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct dense *y = self;
    const struct decoder_spec *m = &d->spec;
    const uint32_t ffn = split_ffn(&d->split, m, s->layer).n, up_width = gated(d) ? 2 * ffn : ffn;
    float *up = work_take(&s->work, s->tokens, up_width), *act = up;
    struct projection p = {y->up, y->up_bias, LORA_UP, up_width, &y->up_clip};
    if (m->clips)
        p.clipped = work_take(&s->work, s->tokens, m->hidden);
    layer_project(d, s->layer, &p, up, s->in, m->hidden, s->tokens);
    if (s->update)
        layer_update(d, s->update, &s->work, up, up_width, s->in, s->tokens);
    if (y->factors)
        layer_times(d, up, s->tokens, up_width, y->factors);
    if (m->layers[s->layer].sparse && sparsify(d, s, up, up_width, ffn, e))
        return -1;
    if (gated(d)) {
        act = work_take(&s->work, s->tokens, ffn);
        d->ops->act_mul(d->dev, act, up, s->tokens, ffn, spec_act(m, s->layer));
    } else if (m->xielu) {
        d->ops->xielu(d->dev, up, s->tokens, ffn, y->above, y->below);
    } else {
        d->ops->act(d->dev, up, s->tokens, ffn, spec_act(m, s->layer));
    }
    if (y->norm && layer_sub_norm(d, act, s->tokens, ffn, spec_ffn(m, s->layer), y->norm,
                                  work_take(&s->work, s->tokens, SQUARES), e))
        return -1;
    p = (struct projection){y->down, y->down_bias, LORA_DOWN, m->hidden, &y->down_clip};
    if (m->clips)
        p.clipped = work_take(&s->work, s->tokens, ffn);
    layer_project(d, s->layer, &p, s->out, act, ffn, s->tokens);
    if (m->down_scale != 0)
        d->ops->logit_scale(d->dev, s->out, s->tokens, m->hidden, m->down_scale, 0);
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    if (forward_at_once(d, self, s))
        return 0;
    const uint32_t n_tiles = decoder_tiles(d, s->tokens);
    for (uint32_t i = 0; i < n_tiles; i++) {
        const struct slice rows = decoder_tile(s->tokens, i, n_tiles);
        struct sub_step t = *s;
        t.tokens = rows.n;
        t.in += (size_t)rows.first * d->spec.hidden;
        t.out += (size_t)rows.first * d->spec.hidden;
        if (tile(d, self, &t, e))
            return -1;
    }
    return 0;
}

const struct sublayer_ops ffn_dense = {.name = "dense",
                                       .width = width,
                                       .load = load,
                                       .free = release,
                                       .forward = forward,
                                       .in_tiles = true};
