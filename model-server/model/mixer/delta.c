/* delta.c - linear attention by the gated delta rule (arXiv 2412.06464): queries, keys and values
 * through a short convolution, a state that each token corrects, a norm gated by another product of
 * the input. */
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct delta {
    struct weight *in;      /* [q of the key heads, k, v of the heads, z of the heads; hidden] */
    struct weight *gates;   /* [beta of the heads, decay of the heads; hidden] */
    struct short_conv conv; /* of q, k and v */
    float *rate, *dt;       /* [heads] see struct recur */
    float *norm;            /* [heads * value_dim] */
    struct out_projection out;
    uint64_t state; /* in a cell */
};

static uint32_t keys(const struct decoder *d)
{
    return d->split.mix_keys.n * d->spec.recur.key_dim;
}
static uint32_t values(const struct decoder *d)
{
    return d->split.mix_heads.n * d->spec.recur.value_dim;
}
static uint32_t channels(const struct decoder *d) { return 2 * keys(d) + values(d); }

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    /* `in`, the result of the convolution on most of it, the result, gates and their functions */
    return (void)layer, 2 * channels(d) + 2 * values(d) + 4 * d->split.mix_heads.n;
}

/* ---------------------------------------------------------------- load */

static void add_heads(struct loader *l, struct rows *rows, enum delta_part p, struct mat_part whole)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = p <= DELTA_K ? l->d->split.mix_keys : l->d->split.mix_heads;
    for (uint32_t h = heads.first; h < heads.first + heads.n; h++)
        if (!rows_add(l, rows, p == DELTA_Z || p == DELTA_DECAY, whole,
                      (struct slice){spec_delta_row(r, p, h), spec_delta_rows(r, p)}))
            return;
}

static struct mat_part matrix(struct loader *l, enum role role, int layer, uint32_t rows)
{
    return loader_part(l, role, layer, NO_EXPERT, false, rows, l->d->spec.hidden);
}

static void load_in(struct loader *l, struct delta *y, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const uint32_t qk = 2 * r->key_heads * r->key_dim, v = r->heads * r->value_dim;
    struct rows rows = {0};
    const struct mat_part in = matrix(l, W_MIX_IN, layer, qk + (r->grouped ? 2 : 1) * v);
    const struct mat_part z = r->grouped ? in : matrix(l, W_MIX_Z, layer, v);
    add_heads(l, &rows, DELTA_Q, in);
    add_heads(l, &rows, DELTA_K, in);
    add_heads(l, &rows, DELTA_V, in);
    add_heads(l, &rows, DELTA_Z, z);
    y->in = rows_pack(l, &rows, l->d->dtype, l->d->quant);
}

/* Few rows, on which the whole state depends: not quantised. */
static void load_gates(struct loader *l, struct delta *y, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    struct rows rows = {0};
    if (r->grouped) {
        const struct mat_part both = matrix(l, W_MIX_BETA_DECAY, layer, 2 * r->heads);
        add_heads(l, &rows, DELTA_BETA, both);
        add_heads(l, &rows, DELTA_DECAY, both);
    } else {
        const struct mat_part beta = matrix(l, W_MIX_BETA, layer, r->heads);
        add_heads(l, &rows, DELTA_BETA, beta);
        add_heads(l, &rows, DELTA_DECAY, matrix(l, W_MIX_DECAY, layer, r->heads));
    }
    y->gates = rows_pack(l, &rows, l->d->dtype, QUANT_NONE);
}

/* One norm for all heads. */
static void load_norm(struct loader *l, struct delta *y, int layer)
{
    struct rows rows = {0};
    const uint32_t n = l->d->spec.recur.value_dim;
    const struct mat_part w = loader_table(l, W_MIX_NORM, layer, "", n, 1);
    for (uint32_t h = 0; h < l->d->split.mix_heads.n; h++)
        if (!rows_add(l, &rows, h, w, (struct slice){0, n}))
            return;
    y->norm = rows_vector(l, &rows);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads, shared = l->d->split.mix_keys;
    const uint32_t k = r->key_heads * r->key_dim, v = r->heads * r->value_dim;
    const int layer = (int)at;
    struct delta *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    load_in(l, y, layer);
    load_gates(l, y, layer);
    const struct slice of[] = {scaled(shared, r->key_dim, 0), scaled(shared, r->key_dim, k),
                               scaled(heads, r->value_dim, 2 * k)};
    short_conv_load(l, &y->conv, layer, 2 * k + v, of, 3);
    y->conv.conv.silu = true;
    y->rate = loader_plain_vector(l, W_MIX_RATE, layer, r->heads, heads);
    y->dt = loader_plain_vector(l, W_MIX_DT, layer, r->heads, heads);
    load_norm(l, y, layer);
    out_projection_load(l, &y->out, layer, v, scaled(heads, r->value_dim, 0));
    const struct recur size = {.heads = heads.n, .key_dim = r->key_dim, .value_dim = r->value_dim};
    y->state = layer_take_state(l->d, l->d->ops->recur_floats(&size));
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct delta *y = self;
    float *vectors[] = {y->rate, y->dt, y->norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    layer_free_weight(d, y->in);
    layer_free_weight(d, y->gates);
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static void recur(struct decoder *d, const struct delta *y, float *o, float *x, const float *gates,
                  float *work)
{
    const struct recur_spec *r = &d->spec.recur;
    const uint32_t heads = d->split.mix_heads.n;
    const struct state_ref state = layer_state(d, y->state);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_DELTA,
                                  .heads = heads,
                                  .key_heads = d->split.mix_keys.n,
                                  .key_dim = r->key_dim,
                                  .value_dim = r->value_dim,
                                  .x = x,
                                  .x_stride = channels(d),
                                  .k = keys(d),
                                  .v = 2 * keys(d),
                                  .beta = gates,
                                  .step = gates + heads,
                                  .step_stride = 2 * heads,
                                  .beta_stride = 2 * heads,
                                  .beta_scale = 1,
                                  .a_log = y->rate,
                                  .dt_bias = y->dt,
                                  .work = work});
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct delta *y = self;
    const uint32_t heads = d->split.mix_heads.n, in_width = channels(d) + values(d), t = s->tokens;
    float *in = work_take(&s->work, t, in_width), *x = work_take(&s->work, t, channels(d));
    float *o = work_take(&s->work, t, values(d));
    float *gates = work_take(&s->work, t, (size_t)2 * heads);
    float *work = work_take(&s->work, t, (size_t)2 * heads);
    (void)e;
    const struct projection before = {y->in, NULL, LORA_MIX_IN, in_width};
    const struct projection by = {y->gates, NULL, LORA_MIX_GATES, 2 * heads};
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    layer_project(d, s->layer, &by, gates, s->in, d->spec.hidden, t);
    short_conv_run(d, &y->conv, x, in, in_width);
    recur(d, y, o, x, gates, work);
    d->ops->gate_norm(d->dev, o, values(d), t, values(d),
                      &(struct gate_norm){.kind = GATE_SILU,
                                          .gate = in + channels(d),
                                          .stride = in_width,
                                          .w = y->norm,
                                          .group = d->spec.recur.value_dim,
                                          .eps = d->spec.norm.eps,
                                          .norm_first = true});
    out_projection_run(d, &y->out, s, o, values(d));
    return 0;
}

const struct sublayer_ops mixer_delta = {"delta", width, load, release, forward};
