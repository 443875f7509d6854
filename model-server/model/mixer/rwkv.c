/* rwkv.c - RWKV-7's time mixing (arXiv 2503.14456): six mixes of the input and that of the token
 * before, of which receptance, keys and values are products, and decays, rates, the gate and what
 * values take of the first layer's are made by pairs of matrices of low rank; a recurrence. */
#include "model-server/model/mixer/recurrent.h"
#include "model-server/model/mixer/shift.h"
#include <stdlib.h>

/* What is made of a mix each, in this order. */
enum { MIX_R, MIX_K, MIX_V, MIX_DECAY, MIX_RATE, MIX_GATE, MIXES };

/* y = up(f(down(x))); the bias is added later. */
struct low {
    struct weight *down, *up; /* [rank, hidden], [channels, rank] */
    float *bias;              /* [channels] or NULL */
    uint32_t rank;
};

struct rwkv_mixer {
    struct token_shift shift;
    struct weight *r, *k, *v, *o;
    struct low decay, rate, blend, gate; /* blend: not in the first layer */
    struct rwkv vectors;
    uint64_t state; /* in a cell */
};

static struct slice channels_of(const struct decoder *d)
{
    return scaled(d->split.mix_heads, d->spec.recur.value_dim, 0);
}

static uint32_t most_rank(const struct rwkv_spec *s)
{
    uint32_t most = s->decay > s->rate ? s->decay : s->rate;
    most = most > s->blend ? most : s->blend;
    return most > s->gate ? most : s->gate;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    /* r, k, v, the four low-rank products, the recurrence's work, its result */
    return (void)layer, MIXES * d->spec.hidden + 11 * channels_of(d).n + most_rank(&d->spec.rwkv);
}

/* ---------------------------------------------------------------- load */

static struct weight *load_rows(struct loader *l, enum role role, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice c = channels_of(l->d);
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false,
                                    (int64_t)r->heads * r->value_dim, l->d->spec.hidden);
    p = loader_rows(p, c.first, c.n);
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

/* Small matrices that determine the whole state: not quantised. */
static struct low load_low(struct loader *l, enum role down, int layer, uint32_t rank, bool bias)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const int64_t all = (int64_t)r->heads * r->value_dim;
    const struct slice c = channels_of(l->d);
    struct low y = {.rank = rank};
    struct mat_part p = loader_part(l, down, layer, NO_EXPERT, false, rank, l->d->spec.hidden);
    y.down = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_rows(loader_part(l, down + 1, layer, NO_EXPERT, false, all, rank), c.first, c.n);
    y.up = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    if (bias) {
        p = loader_rows(loader_part(l, down + 1, layer, NO_EXPERT, true, all, 1), c.first, c.n);
        y.bias = loader_vector(l, &p, 1, 0);
    }
    return y;
}

static float *load_channels(struct loader *l, enum role role, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice c = channels_of(l->d);
    struct mat_part p = loader_table(l, role, layer, "", (int64_t)r->heads * r->value_dim, 1);
    p = loader_rows(p, c.first, c.n);
    return loader_vector(l, &p, 1, 0);
}

static void load_vectors(struct loader *l, struct rwkv_mixer *y, int layer)
{
    y->vectors.erase = load_channels(l, W_MIX_ERASE, layer);
    y->vectors.replace = load_channels(l, W_MIX_REPLACE, layer);
    y->vectors.bonus = load_channels(l, W_MIX_BONUS, layer);
    y->vectors.norm = load_channels(l, W_MIX_NORM, layer);
    y->vectors.norm_bias = load_channels(l, W_MIX_NORM_BIAS, layer);
    y->vectors.eps = l->d->spec.rwkv.eps;
}

static struct weight *load_out(struct loader *l, int layer)
{
    const struct recur_spec *r = &l->d->spec.recur;
    const struct slice c = channels_of(l->d);
    const uint32_t hidden = l->d->spec.hidden;
    struct mat_part p =
        loader_part(l, W_O, layer, NO_EXPERT, false, hidden, (int64_t)r->heads * r->value_dim);
    p = loader_cut(p, 0, hidden, c.first, c.n);
    return loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
}

static void *load(struct loader *l, uint32_t at)
{
    /* fla's earlier files have the six in one tensor: r, decay, k, v, rate, gate */
    static const struct mix_name shifts[MIXES] = {{W_SHIFT_Q, 0},    {W_SHIFT_K, 2},
                                                  {W_SHIFT_V, 3},    {W_SHIFT_DECAY, 1},
                                                  {W_SHIFT_RATE, 4}, {W_SHIFT_GATE, 5}};
    const struct recur_spec *r = &l->d->spec.recur;
    const struct rwkv_spec *s = &l->d->spec.rwkv;
    const int layer = (int)at;
    struct rwkv_mixer *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    token_shift_load(l, &y->shift, layer, shifts, MIXES);
    y->r = load_rows(l, W_Q, layer);
    y->k = load_rows(l, W_K, layer);
    y->v = load_rows(l, W_V, layer);
    y->decay = load_low(l, W_MIX_DECAY_DOWN, layer, s->decay, true);
    y->rate = load_low(l, W_MIX_RATE_DOWN, layer, s->rate, true);
    if (layer > 0)
        y->blend = load_low(l, W_MIX_BLEND_DOWN, layer, s->blend, true);
    y->gate = load_low(l, W_MIX_Z_DOWN, layer, s->gate, false);
    load_vectors(l, y, layer);
    y->o = load_out(l, layer);
    const struct recur size = {.kind = RECUR_RWKV,
                               .heads = l->d->split.mix_heads.n,
                               .key_dim = r->key_dim,
                               .value_dim = r->value_dim};
    y->state = layer_take_state(l->d, l->d->ops->recur_floats(&size));
    return y;
}

static void free_low(struct decoder *d, struct low *y)
{
    layer_free_weight(d, y->down);
    layer_free_weight(d, y->up);
    d->ops->free(d->dev, y->bias);
}

static void release(struct decoder *d, void *self)
{
    struct rwkv_mixer *y = self;
    const float *const vectors[] = {y->vectors.erase, y->vectors.replace, y->vectors.bonus,
                                    y->vectors.norm, y->vectors.norm_bias};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, (void *)(uintptr_t)vectors[i]);
    token_shift_free(d, &y->shift);
    layer_free_weight(d, y->r);
    layer_free_weight(d, y->k);
    layer_free_weight(d, y->v);
    layer_free_weight(d, y->o);
    free_low(d, &y->decay);
    free_low(d, &y->rate);
    free_low(d, &y->blend);
    free_low(d, &y->gate);
    free(y);
}

/* ---------------------------------------------------------------- forward */

enum middle { MIDDLE_PLAIN, MIDDLE_TANH, MIDDLE_SIGMOID };

/* `z`: memory of the rank. */
static void low_run(struct decoder *d, const struct low *w, float *y, const float *x, float *z,
                    uint32_t rows, enum middle f)
{
    d->ops->linear(d->dev, z, x, rows, w->down, NULL);
    if (f == MIDDLE_TANH) /* a cap of 1 */
        d->ops->logit_scale(d->dev, z, rows, w->rank, 1, 1);
    if (f == MIDDLE_SIGMOID)
        d->ops->act(d->dev, z, rows, w->rank, ACT_SIGMOID);
    d->ops->linear(d->dev, y, z, rows, w->up, NULL);
}

static void project(struct decoder *d, const struct sub_step *s, const struct weight *w,
                    enum lora_site site, float *y, const float *x)
{
    const struct projection p = {w, NULL, site, channels_of(d).n};
    layer_project(d, s->layer, &p, y, x, d->spec.hidden, s->tokens);
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct rwkv_mixer *y = self;
    const uint32_t n = channels_of(d).n, t = s->tokens;
    const size_t hidden = (size_t)t * d->spec.hidden, all = (size_t)t * n;
    float *mixes = work_take(&s->work, t, MIXES * (size_t)d->spec.hidden);
    float *rkv = work_take(&s->work, t, 3 * (size_t)n), *decay = work_take(&s->work, t, n);
    float *rate = work_take(&s->work, t, n), *blend = work_take(&s->work, t, n);
    float *gate = work_take(&s->work, t, n), *work = work_take(&s->work, t, 3 * (size_t)n);
    float *o = work_take(&s->work, t, n), *z = work_take(&s->work, t, most_rank(&d->spec.rwkv));
    float *first = d->scratch.carried;
    const struct state_ref state = layer_state(d, y->state);
    (void)e;
    token_shift_run(d, &y->shift, mixes, s->in);
    project(d, s, y->r, LORA_MIX_IN, rkv, mixes + MIX_R * hidden);
    project(d, s, y->k, LORA_MIX_KEYS, rkv + all, mixes + MIX_K * hidden);
    project(d, s, y->v, LORA_MIX_VALUES, rkv + 2 * all, mixes + MIX_V * hidden);
    low_run(d, &y->decay, decay, mixes + MIX_DECAY * hidden, z, t, MIDDLE_TANH);
    low_run(d, &y->rate, rate, mixes + MIX_RATE * hidden, z, t, MIDDLE_PLAIN);
    low_run(d, &y->gate, gate, mixes + MIX_GATE * hidden, z, t, MIDDLE_SIGMOID);
    if (y->blend.up)
        low_run(d, &y->blend, blend, mixes + MIX_V * hidden, z, t, MIDDLE_PLAIN);
    else
        d->ops->beside(d->dev, first, rkv + 2 * all, NULL, t, n);
    struct rwkv vectors = y->vectors;
    vectors.gate = gate;
    if (y->blend.up)
        vectors.first = first, vectors.blend = blend, vectors.blend_bias = y->blend.bias;
    d->ops->recur(d->dev, o, &state,
                  &(struct recur){.kind = RECUR_RWKV,
                                  .heads = d->split.mix_heads.n,
                                  .key_heads = d->split.mix_heads.n,
                                  .key_dim = d->spec.recur.key_dim,
                                  .value_dim = d->spec.recur.value_dim,
                                  .x = rkv,
                                  .x_stride = n,
                                  .k = (uint32_t)all,
                                  .v = 2 * (uint32_t)all,
                                  .step = decay,
                                  .step_stride = n,
                                  .dt_bias = y->decay.bias,
                                  .beta = rate,
                                  .beta_stride = n,
                                  .beta_bias = y->rate.bias,
                                  .rwkv = &vectors,
                                  .work = work});
    const struct projection last = {y->o, NULL, LORA_MIX_OUT, d->spec.hidden};
    layer_project(d, s->layer, &last, s->out, o, n, t);
    return 0;
}

const struct sublayer_ops mixer_rwkv = {"rwkv", width, load, release, forward};
