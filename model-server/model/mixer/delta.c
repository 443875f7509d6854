/* delta.c - linear attention by the gated delta rule (arXiv 2412.06464): queries, keys and values
 * through a short convolution, a state that each token corrects, a norm gated by another product of
 * the input. With recur_spec.by_key the state decays by key element (Kimi Delta Attention, arXiv
 * 2510.26692). */
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct delta {
    struct weight *in;      /* [q of the key heads, k, v of the heads, z of the heads; hidden] */
    struct weight *gates;   /* [beta of the heads, decays; hidden] */
    struct short_conv conv; /* of q, k and v */
    float *rate, *dt;       /* see struct recur */
    float *norm;            /* [heads * value_dim] */
    /* with gate_rank, instead of the rows of the decay in `gates` and, without whole_z, of z in
     * `in`: [rank; hidden], then [heads * key_dim; rank] and [heads * value_dim; rank] */
    struct weight *decay[2], *z[2];
    struct out_projection out;
    uint64_t state; /* in a cell */
};

static uint32_t channels(const struct decoder *d) { return 2 * recur_keys(d) + recur_values(d); }
static bool by_key(const struct decoder *d) { return d->spec.recur.by_key; }
static bool decay_pair(const struct decoder *d) { return d->spec.recur.gate_rank != 0; }
static bool z_pair(const struct decoder *d) { return recur_z_pair(&d->spec.recur); }
/* Decays of a token. */
static uint32_t decays(const struct decoder *d)
{
    return d->split.mix_heads.n * (by_key(d) ? d->spec.recur.key_dim : 1);
}
/* Rows of `in`, and of `gates`. */
static uint32_t in_width(const struct decoder *d)
{
    return channels(d) + (z_pair(d) ? 0 : recur_values(d));
}
static uint32_t gates_width(const struct decoder *d)
{
    return d->split.mix_heads.n + (decay_pair(d) ? 0 : decays(d));
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t heads = d->split.mix_heads.n;
    /* `in`, the result of the convolution on most of it, the result, gates and their functions */
    const uint32_t n =
        in_width(d) + channels(d) + recur_values(d) + gates_width(d) + decays(d) + heads;
    const uint32_t pairs = d->spec.recur.gate_rank + decays(d) + (z_pair(d) ? recur_values(d) : 0);
    return (void)layer, n + (decay_pair(d) ? pairs : 0);
}

/* ---------------------------------------------------------------- load */

static void add_heads(struct loader *l, struct rows *rows, enum delta_part p, struct mat_part whole)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = p <= DELTA_K ? l->d->split.mix_keys : l->d->split.mix_heads;
    for (uint32_t h = heads.first; h < heads.first + heads.n; h++)
        if (!rows_add(l, rows, r->apart ? p : p == DELTA_Z || p == DELTA_DECAY, whole,
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
    const uint32_t k = r->key_heads * r->key_dim, v = r->heads * r->value_dim;
    struct rows rows = {0};
    if (r->apart) {
        add_heads(l, &rows, DELTA_Q, matrix(l, W_Q, layer, k));
        add_heads(l, &rows, DELTA_K, matrix(l, W_K, layer, k));
        add_heads(l, &rows, DELTA_V, matrix(l, W_V, layer, v));
        if (!recur_z_pair(r))
            add_heads(l, &rows, DELTA_Z, matrix(l, W_MIX_Z, layer, v));
    } else {
        const bool with_z = r->grouped || r->joined;
        const uint32_t n = 2 * k + (with_z ? 2 : 1) * v + (r->joined ? 2 * r->heads : 0);
        const struct mat_part in = matrix(l, W_MIX_IN, layer, n);
        const struct mat_part z = with_z ? in : matrix(l, W_MIX_Z, layer, v);
        add_heads(l, &rows, DELTA_Q, in);
        add_heads(l, &rows, DELTA_K, in);
        add_heads(l, &rows, DELTA_V, in);
        add_heads(l, &rows, DELTA_Z, z);
    }
    y->in = rows_pack(l, &rows, l->d->dtype, l->d->quant);
}

/* Few rows, on which the whole state depends: not quantised. */
static void load_gates(struct loader *l, struct delta *y, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    struct rows rows = {0};
    if (r->grouped || r->joined) {
        const uint32_t k = r->key_heads * r->key_dim, v = r->heads * r->value_dim;
        const struct mat_part both = r->joined
                                         ? matrix(l, W_MIX_IN, layer, 2 * k + 2 * v + 2 * r->heads)
                                         : matrix(l, W_MIX_BETA_DECAY, layer, 2 * r->heads);
        add_heads(l, &rows, DELTA_BETA, both);
        add_heads(l, &rows, DELTA_DECAY, both);
    } else {
        const struct mat_part beta = matrix(l, W_MIX_BETA, layer, r->heads);
        add_heads(l, &rows, DELTA_BETA, beta);
        if (!r->gate_rank)
            add_heads(l, &rows, DELTA_DECAY,
                      matrix(l, W_MIX_DECAY, layer, r->heads * spec_delta_rows(r, DELTA_DECAY)));
    }
    y->gates = rows_pack(l, &rows, l->d->dtype, QUANT_NONE);
}

/* A matrix of gate_rank rows, which every rank has, and one from those to `each` rows a head. */
static void load_pair(struct loader *l, struct weight *to[2], enum role down, enum role up,
                      int layer, uint32_t each)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads;
    struct mat_part p = matrix(l, down, layer, r->gate_rank);
    to[0] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_part(l, up, layer, NO_EXPERT, false, (int64_t)r->heads * each, r->gate_rank);
    p = loader_rows(p, heads.first * each, heads.n * each);
    to[1] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

static void load_conv(struct loader *l, struct delta *y, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads, shared = l->d->split.mix_keys;
    const uint32_t k = r->key_heads * r->key_dim, v = r->heads * r->value_dim;
    const struct slice q = scaled(shared, r->key_dim, 0);
    if (r->apart && !loader_has(l, W_MIX_CONV, layer, NO_EXPERT)) {
        const struct conv_part parts[] = {{W_MIX_CONV_Q, k, q},
                                          {W_MIX_CONV_K, k, q},
                                          {W_MIX_CONV_V, v, scaled(heads, r->value_dim, 0)}};
        short_conv_load_parts(l, &y->conv, layer, parts, 3);
    } else {
        const struct slice of[] = {q, scaled(shared, r->key_dim, k),
                                   scaled(heads, r->value_dim, 2 * k)};
        short_conv_load(l, &y->conv, layer, 2 * k + v, of, 3);
    }
    y->conv.conv.silu = true;
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

/* Kimi K3 stores as many numbers as a head has; those after the heads' mean nothing. */
static float *load_rates(struct loader *l, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct tensor *t = r->gate_rank ? loader_tensor(l, W_MIX_RATE, layer) : NULL;
    const bool more = t && t->n_dims == 1 && t->dims[0] == r->key_dim && r->key_dim > r->heads;
    return loader_plain_vector(l, W_MIX_RATE, layer, more ? r->key_dim : r->heads,
                               l->d->split.mix_heads);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice heads = l->d->split.mix_heads;
    const uint32_t v = r->heads * r->value_dim, steps = spec_delta_rows(r, DELTA_DECAY);
    const int layer = (int)at;
    struct delta *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    load_in(l, y, layer);
    load_gates(l, y, layer);
    if (r->gate_rank) {
        load_pair(l, y->decay, W_MIX_DECAY_DOWN, W_MIX_DECAY_UP, layer, r->key_dim);
        if (recur_z_pair(r))
            load_pair(l, y->z, W_MIX_Z_DOWN, W_MIX_Z_UP, layer, r->value_dim);
    }
    load_conv(l, y, layer);
    y->rate = load_rates(l, layer);
    y->dt = loader_plain_vector(l, W_MIX_DT, layer, r->heads * steps, scaled(heads, steps, 0));
    load_norm(l, y, layer);
    out_projection_load(l, &y->out, layer, v, scaled(heads, r->value_dim, 0));
    y->state = recur_take_state(l->d);
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
    for (int i = 0; i < 2; i++) {
        layer_free_weight(d, y->decay[i]);
        layer_free_weight(d, y->z[i]);
    }
    short_conv_free(d, &y->conv);
    out_projection_free(d, &y->out);
    free(y);
}

/* ---------------------------------------------------------------- forward */

/* What the recurrence and the gate need beside q, k and v. */
struct gates {
    const float *beta, *step, *z;
    uint32_t beta_stride, step_stride, z_stride;
};

/* y = up(down(in)) */
static float *through(struct decoder *d, struct sub_step *s, struct weight *const w[2], float *low,
                      uint32_t width)
{
    float *y = work_take(&s->work, s->tokens, width);
    d->ops->linear(d->dev, low, s->in, s->tokens, w[0], NULL);
    d->ops->linear(d->dev, y, low, s->tokens, w[1], NULL);
    return y;
}

/* `in`: see struct delta; its last rows are z, unless a pair of matrices makes z. */
static struct gates make_gates(struct decoder *d, const struct delta *y, struct sub_step *s,
                               const float *in)
{
    const uint32_t heads = d->split.mix_heads.n, n = gates_width(d);
    float *gates = work_take(&s->work, s->tokens, n);
    const struct projection by = {y->gates, NULL, LORA_MIX_GATES, n};
    layer_project(d, s->layer, &by, gates, s->in, d->spec.hidden, s->tokens);
    struct gates g = {gates, gates + heads, in + channels(d), n, n, in_width(d)};
    if (!decay_pair(d))
        return g;
    float *low = work_take(&s->work, s->tokens, d->spec.recur.gate_rank);
    g.step = through(d, s, y->decay, low, decays(d));
    g.step_stride = decays(d);
    if (z_pair(d)) {
        g.z = through(d, s, y->z, low, recur_values(d));
        g.z_stride = recur_values(d);
    }
    return g;
}

static void recur(struct decoder *d, const struct delta *y, float *o, float *x,
                  const struct gates *g, float *work)
{
    const struct recur_spec *r = &d->spec.recur;
    const struct state_ref state = layer_state(d, y->state);
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_DELTA,
                                  .heads = d->split.mix_heads.n,
                                  .key_heads = d->split.mix_keys.n,
                                  .key_dim = r->key_dim,
                                  .value_dim = r->value_dim,
                                  .x = x,
                                  .x_stride = channels(d),
                                  .k = recur_keys(d),
                                  .v = 2 * recur_keys(d),
                                  .beta = g->beta,
                                  .step = g->step,
                                  .step_stride = g->step_stride,
                                  .beta_stride = g->beta_stride,
                                  .beta_scale = r->beta_scale,
                                  .by_key = by_key(d),
                                  .floor = r->decay_floor,
                                  .a_log = y->rate,
                                  .dt_bias = y->dt,
                                  .work = work});
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct delta *y = self;
    const bool sigmoid = by_key(d) || d->spec.recur.gate_sigmoid;
    const uint32_t t = s->tokens;
    float *in = work_take(&s->work, t, in_width(d)), *x = work_take(&s->work, t, channels(d));
    float *o = work_take(&s->work, t, recur_values(d));
    float *work = work_take(&s->work, t, (size_t)decays(d) + d->split.mix_heads.n);
    (void)e;
    const struct projection before = {y->in, NULL, LORA_MIX_IN, in_width(d)};
    layer_project(d, s->layer, &before, in, s->in, d->spec.hidden, t);
    const struct gates g = make_gates(d, y, s, in);
    short_conv_run(d, &y->conv, x, in, in_width(d));
    recur(d, y, o, x, &g, work);
    d->ops->gate_norm(d->dev, o, recur_values(d), t, recur_values(d),
                      &(struct gate_norm){.kind = sigmoid ? GATE_SIGMOID : GATE_SILU,
                                          .gate = g.z,
                                          .stride = g.z_stride,
                                          .w = y->norm,
                                          .group = d->spec.recur.value_dim,
                                          .eps = d->spec.recur.gate_eps,
                                          .norm_first = true});
    out_projection_run(d, &y->out, s, o, recur_values(d));
    return 0;
}

const struct sublayer_ops mixer_delta = {"delta", width, load, release, forward};
