/* mamba2.c - Mamba-2 (arXiv 2405.21060): inputs and the states' B and C through a short
 * convolution, a state that decays by a learned step of each token, a gate and a norm of groups. */
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct mamba2 {
    struct weight *in; /* [z of the heads, x of the heads, B of the groups, C, steps; hidden] */
    float *in_bias;
    struct short_conv conv;  /* of x, B and C */
    float *rate, *dt, *skip; /* [heads] see struct recur */
    float *norm;             /* [heads * value_dim], or NULL */
    float *factors;          /* of all that `in` makes, or NULL */
    struct out_projection out;
    uint64_t state; /* in a cell */
};

static uint32_t channels(const struct decoder *d) { return recur_values(d) + 2 * recur_keys(d); }
static uint32_t in_width(const struct decoder *d)
{
    return recur_values(d) + channels(d) + d->split.mix_heads.n;
}

/* True if ranks share a group, so that its norm is a sum over ranks. */
static bool group_is_shared(const struct decoder *d)
{
    return d->spec.recur.key_heads < (uint32_t)d->split.world;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    return (void)layer,
           in_width(d) + channels(d) + recur_values(d) + 2 * d->split.mix_heads.n + SQUARES;
}

/* ---------------------------------------------------------------- load */

static struct rows in_rows(struct loader *l, int layer, bool bias)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct recur_spec *r = &s->recur;
    const struct slice heads = l->d->split.mix_heads, groups = l->d->split.mix_keys;
    const uint32_t v = r->heads * r->value_dim, k = r->key_heads * r->key_dim;
    const struct mat_part in = loader_part(l, W_MIX_IN, layer, NO_EXPERT, bias,
                                           (int64_t)2 * v + (int64_t)2 * k + r->heads, s->hidden);
    const struct slice of[] = {scaled(heads, r->value_dim, 0), scaled(heads, r->value_dim, v),
                               scaled(groups, r->key_dim, 2 * v),
                               scaled(groups, r->key_dim, 2 * v + k),
                               scaled(heads, 1, 2 * v + 2 * k)};
    struct rows rows = {0};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        rows_add(l, &rows, 0, in, of[i]);
    return rows;
}

static void load_factors(struct loader *l, struct mamba2 *y)
{
    const struct decoder *d = l->d;
    const uint32_t n[RECUR_PRODUCTS] = {recur_values(d), recur_values(d), recur_keys(d),
                                        recur_keys(d), d->split.mix_heads.n};
    float *host = malloc(in_width(d) * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    for (uint32_t p = 0, at = 0; p < RECUR_PRODUCTS; p++)
        for (uint32_t i = 0; i < n[p]; i++)
            host[at++] = d->spec.recur.factors[p];
    y->factors = loader_host_vector(l, host, in_width(d));
    free(host);
}

static void load_vectors(struct loader *l, struct mamba2 *y, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads;
    y->rate = loader_plain_vector(l, W_MIX_RATE, layer, r->heads, heads);
    y->dt = loader_plain_vector(l, W_MIX_DT, layer, r->heads, heads);
    y->skip = loader_plain_vector(l, W_MIX_SKIP, layer, r->heads, heads);
    if (r->norm != RECUR_NORM_NONE)
        y->norm = loader_plain_vector(l, W_MIX_NORM, layer, r->heads * r->value_dim,
                                      scaled(heads, r->value_dim, 0));
    if (r->has_factors)
        load_factors(l, y);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads, groups = l->d->split.mix_keys;
    const uint32_t v = r->heads * r->value_dim, k = r->key_heads * r->key_dim;
    const int layer = (int)at;
    struct mamba2 *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    struct rows in = in_rows(l, layer, false);
    y->in = rows_pack(l, &in, l->d->dtype, l->d->quant);
    if (r->proj_bias) {
        in = in_rows(l, layer, true);
        y->in_bias = rows_vector(l, &in);
    }
    const struct slice of[] = {scaled(heads, r->value_dim, 0), scaled(groups, r->key_dim, v),
                               scaled(groups, r->key_dim, v + k)};
    short_conv_load(l, &y->conv, layer, v + 2 * k, of, 3);
    y->conv.conv.silu = true;
    load_vectors(l, y, layer);
    out_projection_load(l, &y->out, layer, v, scaled(heads, r->value_dim, 0));
    y->state = recur_take_state(l->d);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct mamba2 *y = self;
    float *vectors[] = {y->in_bias, y->rate, y->dt, y->skip, y->norm, y->factors};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    layer_free_weight(d, y->in);
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static void recur(struct decoder *d, const struct mamba2 *y, float *o, float *x, const float *step,
                  float *work)
{
    const struct recur_spec *r = &d->spec.recur;
    const struct state_ref state = layer_state(d, y->state);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_SSM,
                                  .heads = d->split.mix_heads.n,
                                  .key_heads = d->split.mix_keys.n,
                                  .key_dim = r->key_dim,
                                  .value_dim = r->value_dim,
                                  .x = x,
                                  .x_stride = channels(d),
                                  .k = recur_values(d),
                                  .q = recur_values(d) + recur_keys(d),
                                  .step = step,
                                  .step_stride = in_width(d),
                                  .a_log = y->rate,
                                  .dt_bias = y->dt,
                                  .skip = y->skip,
                                  .dt_min = r->dt_min,
                                  .dt_max = r->dt_max,
                                  .work = work});
}

/* o = norm(o silu(z)), o silu(z) or norm(o) silu(z). If several ranks share a group, each sums
 * its part of the squares; rows of sums have space for two groups (guaranteed by
 * split_make()). */
static int gated_norm(struct decoder *d, const struct mamba2 *y, float *o, const float *z,
                      struct sub_step *s, struct err *e)
{
    const struct recur_spec *r = &d->spec.recur;
    const uint32_t n = recur_values(d), t = s->tokens, all = r->heads / r->key_heads * r->value_dim;
    struct gate_norm p = {.kind = GATE_SILU,
                          .gate = z,
                          .stride = in_width(d),
                          .w = y->norm,
                          .group = all,
                          .eps = d->spec.norm.eps,
                          .norm_first = r->norm == RECUR_NORM_FIRST};
    if (y->norm && group_is_shared(d)) {
        const bool second = d->split.mix_keys.first == 1;
        float *squares = work_take(&s->work, t, SQUARES);
        p.w = NULL;
        if (!p.norm_first)
            d->ops->gate_norm(d->dev, o, n, t, n, &p);
        d->ops->row_squares(d->dev, squares, o, n, t, second ? 0 : n, second ? n : 0);
        if (layer_sum(d, squares, (size_t)t * SQUARES, e))
            return -1;
        p.w = y->norm, p.squares = squares, p.all = all, p.column = second;
        if (!p.norm_first)
            p.kind = GATE_NONE;
    }
    d->ops->gate_norm(d->dev, o, n, t, n, &p);
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct mamba2 *y = self;
    const uint32_t t = s->tokens;
    float *in = work_take(&s->work, t, in_width(d)), *x = work_take(&s->work, t, channels(d));
    float *o = work_take(&s->work, t, recur_values(d));
    float *work = work_take(&s->work, t, 2 * (size_t)d->split.mix_heads.n);
    const struct projection before = {y->in, y->in_bias, LORA_MIX_IN, in_width(d)};
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    if (y->factors)
        layer_times(d, in, t, in_width(d), y->factors);
    short_conv_run(d, &y->conv, x, in + recur_values(d), in_width(d));
    recur(d, y, o, x, in + recur_values(d) + channels(d), work);
    if (gated_norm(d, y, o, in, s, e))
        return -1;
    out_projection_run(d, &y->out, s, o, recur_values(d));
    return 0;
}

const struct sublayer_ops mixer_mamba2 = {"mamba2", width, load, release, forward};
