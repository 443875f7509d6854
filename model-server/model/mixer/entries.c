/* entries.c - attention to the tokens of a window, and to entries that stand for several earlier
 * tokens each, in one softmax (DeepSeek V4). All heads share one key for each token, which is also
 * the value: so the last numbers of a result, which rotated with the values, rotate back.
 *
 * An entry is a sum over its tokens, weighted for each number by a softmax over them, then
 * normalised and rotated to its first position. With an indexer, an entry also has numbers of the
 * tokens of the entry before, and a token attends to the best entries. Heads are split over ranks,
 * which all make the keys, the entries and the selections. */
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include <assert.h>
#include <stdlib.h>

/* What makes entries, or the keys by which they are selected, of `dim` numbers. */
struct pool {
    struct weight *x, *gates; /* [series * dim, hidden] */
    float *bias;              /* [every, series * dim] */
    struct norm norm;         /* [dim] */
    uint64_t state;           /* of the open ones, in a cell */
};

struct entries {
    struct weight *q_a, *q_b; /* [q_rank, hidden], [heads * dim, q_rank] */
    struct weight *kv;        /* [dim, hidden] */
    struct weight **o_a;      /* [groups] of [o_rank, dim of its heads] */
    struct weight *o_b;       /* [hidden, groups * o_rank] */
    uint32_t groups;
    struct norm q_norm, head_norm, kv_norm; /* head_norm: without weights */
    float *sinks;                           /* [heads] */
    struct pool pool, index;
    struct weight *index_q, *index_weights; /* [heads * dim, q_rank], [heads, hidden] */
};

/* The groups of this rank's heads: a rank may have a part of one. */
struct groups {
    uint32_t first, n;
    struct slice columns; /* of their matrices */
};
static struct groups groups_of(const struct decoder *d)
{
    const struct decoder_spec *s = &d->spec;
    const struct slice h = d->split.heads;
    const uint32_t per = s->n_heads / s->entries.groups, dim = s->head_dim;
    const bool whole = h.n % per == 0;
    return (struct groups){h.first / per, whole ? h.n / per : 1,
                           whole ? (struct slice){0, per * dim}
                                 : (struct slice){h.first % per * dim, h.n * dim}};
}

static uint32_t series_of(const struct decoder *d, uint32_t layer)
{
    return d->spec.layers[layer].chosen ? 2 : 1;
}

/* The results follow entries, and the keys and weights of the indexer. */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct decoder_spec *s = &d->spec;
    const struct entries_spec *m = &s->entries;
    const uint32_t heads = d->split.heads.n * s->head_dim, series = series_of(d, layer);
    const uint32_t entry = (2 * series + 1) * s->head_dim;
    const uint32_t index = (m->index_heads + 2 * series + 1) * m->index_dim + m->index_heads;
    const uint32_t result = heads + groups_of(d).n * m->o_rank;
    const uint32_t most = entry > index ? entry : index;
    return m->q_rank + heads + (result > most ? result : most);
}

static bool keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    const struct layer_spec *s = &d->spec.layers[layer];
    const uint32_t dim = d->spec.head_dim;
    *out = (struct kv_layer){.n_heads = 1,
                             .k_dim = dim,
                             .v_dim = dim,
                             .latent = true,
                             .index_dim = s->chosen ? d->spec.entries.index_dim : 0,
                             .every = s->every};
    return true;
}

/* ---------------------------------------------------------------- load */

static struct weight *matrix(struct loader *l, enum role role, int layer, int64_t rows,
                             int64_t cols, enum quant quant)
{
    struct mat_part p = loader_part(l, role, layer, NO_EXPERT, false, rows, cols);
    return loader_pack(l, &p, 1, l->d->dtype, quant);
}

static struct norm norm_of(struct loader *l, enum role role, int layer, uint32_t n)
{
    return (struct norm){
        .kind = NORM_RMS, .eps = l->d->spec.norm.eps, .w = loader_weight_vector(l, role, layer, n)};
}

/* They decide what all heads read: they keep their numbers. */
static void load_pool(struct loader *l, struct pool *y, enum role x, enum role gate, enum role norm,
                      int layer, uint32_t dim)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t every = s->layers[layer].every, series = series_of(l->d, (uint32_t)layer);
    const uint32_t wide = series * dim;
    y->x = matrix(l, x, layer, wide, s->hidden, QUANT_NONE);
    struct mat_part p = loader_plain_matrix(l, gate, layer, wide, s->hidden);
    y->gates = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_plain_matrix(l, gate + 1, layer, every, wide); /* the bias of that gate */
    p.rows *= p.cols, p.cols = p.row_stride = 1;              /* one vector after the other */
    y->bias = loader_vector(l, &p, 1, 0);
    y->norm = norm_of(l, norm, layer, dim);
    y->state =
        layer_take_state(l->d, pool_floats(&(struct pool_keys){.dim = dim, .series = series}));
}

static void load_indexer(struct loader *l, struct entries *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct entries_spec *m = &s->entries;
    load_pool(l, &y->index, W_INDEX_K, W_INDEX_POOL_GATE, W_INDEX_K_NORM, layer, m->index_dim);
    y->index_q =
        matrix(l, W_INDEX_Q, layer, (int64_t)m->index_heads * m->index_dim, m->q_rank, l->d->quant);
    struct mat_part p =
        loader_part(l, W_INDEX_WEIGHTS, layer, NO_EXPERT, false, m->index_heads, s->hidden);
    y->index_weights = loader_pack(l, &p, 1, DT_F32, QUANT_NONE);
}

/* The matrices of groups are multiplied with each head's result apart: they keep their numbers. */
static void load_result(struct loader *l, struct entries *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct entries_spec *m = &s->entries;
    const struct groups g = groups_of(l->d);
    const uint32_t per = s->n_heads / m->groups, n = l->d->split.heads.n;
    if (n % per && per % n) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION, "%u heads in %u groups cannot be split over %d ranks",
                s->n_heads, m->groups, l->d->split.world);
        return;
    }
    if (g.n > 1 && g.columns.n > LINEAR_HEADS_COLS) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION,
                "%u heads of %u elements in %u groups (`o_groups`) are too wide", s->n_heads,
                s->head_dim, m->groups);
        return;
    }
    const int64_t rows = (int64_t)m->groups * m->o_rank;
    struct mat_part all =
        loader_part(l, W_O_A, layer, NO_EXPERT, false, rows, (int64_t)per * s->head_dim);
    all = loader_rows(all, g.first * m->o_rank, g.n * m->o_rank);
    loader_numbers(l, &all);
    l->hold = true;
    for (uint32_t i = 0; i < g.n && !l->failed; i++) {
        struct mat_part p =
            loader_cut(all, (int64_t)i * m->o_rank, m->o_rank, g.columns.first, g.columns.n);
        y->o_a[i] = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    }
    l->hold = false;
    loader_drop(l);
    struct mat_part o = loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, rows);
    o = loader_cut(o, 0, s->hidden, (int64_t)g.first * m->o_rank, (int64_t)g.n * m->o_rank);
    y->o_b = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
}

static void *load(struct loader *l, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct entries_spec *m = &s->entries;
    const struct slice h = l->d->split.heads;
    const uint32_t dim = s->head_dim;
    const int layer = (int)at;
    struct entries *y = calloc(1, sizeof(*y));
    if (!y || !(y->o_a = calloc(y->groups = groups_of(l->d).n, sizeof(struct weight *)))) {
        loader_nomem(l);
        return y;
    }
    y->q_a = matrix(l, W_Q_A, layer, m->q_rank, s->hidden, l->d->quant);
    y->q_norm = norm_of(l, W_Q_A_NORM, layer, m->q_rank);
    struct mat_part q =
        loader_part(l, W_Q_B, layer, NO_EXPERT, false, (int64_t)s->n_heads * dim, m->q_rank);
    q = loader_rows(q, h.first * dim, h.n * dim);
    y->q_b = loader_pack(l, &q, 1, l->d->dtype, l->d->quant);
    y->head_norm = (struct norm){.kind = NORM_RMS, .eps = s->norm.eps, .w = loader_ones(l, dim)};
    y->kv = matrix(l, W_KV_A, layer, dim, s->hidden, l->d->quant);
    y->kv_norm = norm_of(l, W_KV_A_NORM, layer, dim);
    y->sinks = loader_plain_vector(l, W_SINKS, layer, s->n_heads, h);
    if (s->layers[at].every)
        load_pool(l, &y->pool, W_ENTRY, W_ENTRY_GATE, W_ENTRY_NORM, layer, dim);
    if (s->layers[at].chosen)
        load_indexer(l, y, layer);
    load_result(l, y, layer);
    return y;
}

static void free_pool(struct decoder *d, struct pool *y)
{
    layer_free_weight(d, y->x);
    layer_free_weight(d, y->gates);
    layer_free_norm(d, &y->norm);
    d->ops->free(d->dev, y->bias);
}

static void release(struct decoder *d, void *self)
{
    struct entries *y = self;
    struct weight *all[] = {y->q_a, y->q_b, y->kv, y->o_b, y->index_q, y->index_weights};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        layer_free_weight(d, all[i]);
    for (uint32_t i = 0; y->o_a && i < y->groups; i++)
        layer_free_weight(d, y->o_a[i]);
    free_pool(d, &y->pool);
    free_pool(d, &y->index);
    layer_free_norm(d, &y->q_norm);
    layer_free_norm(d, &y->head_norm);
    layer_free_norm(d, &y->kv_norm);
    d->ops->free(d->dev, y->sinks);
    free(y->o_a);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static struct turn turn_of(const struct decoder *d, uint32_t n_heads, uint32_t dim, uint8_t rope)
{
    const uint32_t n = d->spec.entries.rope;
    return (struct turn){.n_heads = n_heads,
                         .dim = dim,
                         .at = dim - n,
                         .rot_dim = n,
                         .interleaved = d->spec.rope[rope].interleaved,
                         .rope = d->scratch.rope[rope]};
}

static void project(struct decoder *d, const struct sub_step *t, const struct weight *w,
                    enum lora_site site, float *y, uint32_t y_width, const float *x,
                    uint32_t x_width)
{
    layer_project(d, t->layer, &(struct projection){w, NULL, site, y_width}, y, x, x_width,
                  t->tokens);
}

/* The latent of queries. */
static float *latent(struct decoder *d, const struct entries *y, struct sub_step *t)
{
    const uint32_t rank = d->spec.entries.q_rank;
    float *x = work_take(&t->work, t->tokens, rank);
    project(d, t, y->q_a, LORA_Q_A, x, rank, t->in, d->spec.hidden);
    d->ops->norm(d->dev, x, x, t->tokens, rank, &y->q_norm);
    return x;
}

static float *queries(struct decoder *d, const struct entries *y, struct sub_step *t,
                      const float *from)
{
    const uint32_t heads = d->split.heads.n, dim = d->spec.head_dim;
    const struct turn turn = turn_of(d, heads, dim, d->spec.layers[t->layer].rope);
    float *q = work_take(&t->work, t->tokens, (size_t)heads * dim);
    project(d, t, y->q_b, LORA_QKV, q, heads * dim, from, d->spec.entries.q_rank);
    d->ops->norm(d->dev, q, q, t->tokens * heads, dim, &y->head_norm);
    d->ops->turn(d->dev, q, &turn);
    return q;
}

static void store_keys(struct decoder *d, const struct entries *y, const struct sub_step *t)
{
    const uint32_t dim = d->spec.head_dim;
    const struct turn turn = turn_of(d, 1, dim, d->spec.layers[t->layer].rope);
    struct work w = t->work;
    float *k = work_take(&w, t->tokens, dim);
    project(d, t, y->kv, LORA_KV_A, k, dim, t->in, d->spec.hidden);
    d->ops->norm(d->dev, k, k, t->tokens, dim, &y->kv_norm);
    d->ops->turn(d->dev, k, &turn);
    d->ops->keep(d->dev, t->cache, t->kv, k, false);
}

/* The entries that end at the step's tokens, normalised and rotated; other tokens have zeros. */
static float *entries_of(struct decoder *d, const struct pool *y, const struct sub_step *t,
                         struct work *w, uint32_t dim)
{
    const struct layer_spec *s = &d->spec.layers[t->layer];
    const uint32_t series = series_of(d, t->layer);
    const struct state_ref state = layer_state(d, y->state);
    const struct turn turn = turn_of(d, 1, dim, s->entry_rope);
    float *k = work_take(w, t->tokens, dim), *x = work_take(w, t->tokens, (size_t)series * dim);
    float *gates = work_take(w, t->tokens, (size_t)series * dim);
    d->ops->linear(d->dev, x, t->in, t->tokens, y->x, NULL);
    d->ops->linear(d->dev, gates, t->in, t->tokens, y->gates, NULL);
    d->ops->pool_keys(d->dev, k, &state,
                      &(struct pool_keys){.dim = dim,
                                          .size = s->every,
                                          .series = series,
                                          .x = x,
                                          .gates = gates,
                                          .bias = y->bias});
    d->ops->norm(d->dev, k, k, t->tokens, dim, &y->norm);
    d->ops->turn(d->dev, k, &turn);
    return k;
}

/* Selects the entries to which each token attends; `from`: the latent of queries. */
static void select_top(struct decoder *d, const struct entries *y, const struct sub_step *t,
                       const float *from)
{
    const struct entries_spec *m = &d->spec.entries;
    struct work w = t->work;
    float *q = work_take(&w, t->tokens, (size_t)m->index_heads * m->index_dim);
    float *weights = work_take(&w, t->tokens, m->index_heads);
    float *k = entries_of(d, &y->index, t, &w, m->index_dim);
    const struct turn turn =
        turn_of(d, m->index_heads, m->index_dim, d->spec.layers[t->layer].rope);
    d->ops->linear(d->dev, q, from, t->tokens, y->index_q, NULL);
    d->ops->linear(d->dev, weights, t->in, t->tokens, y->index_weights, NULL);
    d->ops->select_keys(d->dev, d->scratch.top, q, k, t->cache, t->kv,
                        &(struct select_keys){.n_heads = m->index_heads,
                                              .dim = m->index_dim,
                                              .rot_at = turn.at,
                                              .rot_dim = turn.rot_dim,
                                              .interleaved = turn.interleaved,
                                              .rope = turn.rope,
                                              .turned = true,
                                              .top = m->index_top,
                                              .block = d->spec.layers[t->layer].every,
                                              .pooled = true,
                                              .complete = true,
                                              .weights = weights});
}

/* out = what the groups' matrices, then the last one, make of the heads' results. */
static void result(struct decoder *d, const struct entries *y, struct sub_step *t, float *o)
{
    const uint32_t heads = d->split.heads.n, low = y->groups * d->spec.entries.o_rank;
    struct turn turn = turn_of(d, heads, d->spec.head_dim, d->spec.layers[t->layer].rope);
    float *x = work_take(&t->work, t->tokens, low);
    turn.back = true;
    d->ops->turn(d->dev, o, &turn);
    if (y->groups == 1)
        d->ops->linear(d->dev, x, o, t->tokens, y->o_a[0], NULL);
    else
        d->ops->linear_heads(d->dev, x, o, t->tokens, y->o_a, y->groups);
    project(d, t, y->o_b, LORA_O, t->out, d->spec.hidden, x, low);
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct entries *y = self;
    const struct layer_spec *s = &d->spec.layers[t->layer];
    const uint32_t heads = d->split.heads.n, dim = d->spec.head_dim;
    (void)e;
    assert(t->tokens == t->total);
    const float *from = latent(d, y, t), *q = queries(d, y, t, from);
    store_keys(d, y, t);
    if (s->every) {
        struct work w = t->work;
        d->ops->keep(d->dev, t->cache, t->kv, entries_of(d, &y->pool, t, &w, dim), true);
    }
    if (s->chosen)
        select_top(d, y, t, from);
    float *o = work_take(&t->work, t->tokens, (size_t)heads * dim);
    d->ops->attention(d->dev, o, q, heads * dim, t->cache, t->kv,
                      &(struct attn){.n_heads = heads,
                                     .n_kv_heads = 1,
                                     .head_dim = dim,
                                     .scale = s->attn_scale,
                                     .window = s->window,
                                     .sinks = y->sinks,
                                     .entries = s->every,
                                     .top = s->chosen ? d->scratch.top : NULL,
                                     .n_top = s->chosen ? d->spec.entries.index_top : 0});
    result(d, y, t, o);
    return 0;
}

const struct sublayer_ops mixer_entries = {"entries", width, load, release, forward, keeps};
