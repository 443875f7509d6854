#include "model-server/model/mixer/blocks.h"
#include "model-server/model/decoder.h"
#include <assert.h>
#include <stdlib.h>

static struct norm load_norm(struct loader *l, enum role role, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    return (struct norm){.kind = NORM_RMS,
                         .eps = s->norm.eps,
                         .w = loader_weight_vector(l, role, layer, s->blocks.dim)};
}

/* Queries of a token on this rank. */
static uint32_t queries_of(const struct decoder *d, uint32_t layer)
{
    const uint32_t heads = d->spec.blocks.heads;
    return heads ? heads : split_kv_heads(&d->split, &d->spec, layer).n;
}

bool block_index_stateless(const struct decoder *d) { return !d->spec.blocks.heads; }

/* Keys and queries are small, and decide what all heads attend to: they keep their numbers. */
static struct weight *pack(struct loader *l, struct mat_part p)
{
    return loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
}

static void load_apart(struct loader *l, struct block_index *x, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_kv_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t dim = s->blocks.dim;
    const struct mat_part p =
        loader_part(l, W_INDEX_Q, layer, NO_EXPERT, false,
                    (int64_t)spec_kv_heads(s, (uint32_t)layer) * dim, s->hidden);
    x->q = pack(l, loader_rows(p, h.first * dim, h.n * dim));
    x->k = pack(l, loader_part(l, W_INDEX_K, layer, NO_EXPERT, false, dim, s->hidden));
}

/* A softmax of these numbers over the tokens of a block is 1 of its first. */
static float *load_first(struct loader *l, uint32_t block, uint32_t n)
{
    static const float none = -1e30f;
    float *host = calloc((size_t)block * n, sizeof(*host)), *y;
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t i = n; i < block * n; i++)
        host[i] = none;
    y = loader_host_vector(l, host, block * n);
    free(host);
    return y;
}

/* Queries over keys in one matrix, all on each rank. */
static void load_joined(struct loader *l, struct block_index *x, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct block_spec *b = &s->blocks;
    const uint32_t rot = s->rope[s->layers[layer].rope].dim, rows = b->heads * b->dim;
    struct mat_part p =
        loader_part(l, W_INDEX_Q, layer, NO_EXPERT, false, (int64_t)rows + b->dim, s->hidden);
    loader_numbers(l, &p);
    l->hold = true;
    x->q = pack(l, loader_rows(p, 0, rows));
    x->k = pack(l, loader_rows(p, rows, b->dim));
    l->hold = false;
    loader_drop(l);
    x->first = load_first(l, b->block, rot);
    x->keys = layer_take_state(l->d, pool_floats(&(struct pool_keys){.dim = b->dim, .series = 1}));
    x->turns = layer_take_state(l->d, pool_floats(&(struct pool_keys){.dim = rot, .series = 1}));
}

struct block_index *block_index_load(struct loader *l, uint32_t layer)
{
    struct block_index *x = calloc(1, sizeof(*x));
    if (!x) {
        loader_nomem(l);
        return NULL;
    }
    if (l->d->spec.blocks.heads)
        load_joined(l, x, (int)layer);
    else
        load_apart(l, x, (int)layer);
    x->q_norm = load_norm(l, W_INDEX_Q_NORM, (int)layer);
    x->k_norm = load_norm(l, W_INDEX_K_NORM, (int)layer);
    return x;
}

void block_index_free(struct decoder *d, struct block_index *x)
{
    if (!x)
        return;
    layer_free_weight(d, x->q);
    layer_free_weight(d, x->k);
    layer_free_norm(d, &x->q_norm);
    layer_free_norm(d, &x->k_norm);
    d->ops->free(d->dev, x->first);
    free(x);
}

uint32_t block_index_width(const struct decoder *d, uint32_t layer)
{
    const struct block_spec *s = &d->spec.blocks;
    const uint32_t rot = s->heads ? d->spec.rope[d->spec.layers[layer].rope].dim : 0;
    return (queries_of(d, layer) + 1) * s->dim + rot;
}

/* k of a block's last token becomes the norm of the block's mean, rotated as its first token. */
static void join_keys(struct decoder *d, const struct block_index *x, struct sub_step *t,
                      struct work *w, float *k)
{
    const struct block_spec *s = &d->spec.blocks;
    const uint8_t at = d->spec.layers[t->layer].rope;
    const struct rope_spec *rope = &d->spec.rope[at];
    const struct state_ref keys = layer_state(d, x->keys), turns = layer_state(d, x->turns);
    float *first = work_take(w, t->tokens, rope->dim);
    struct pool_keys p = {.dim = s->dim, .size = s->block, .series = 1, .x = k};
    d->ops->pool_keys(d->dev, k, &keys, &p);
    d->ops->norm(d->dev, k, k, t->tokens, s->dim, &x->k_norm);
    p.dim = rope->dim, p.x = d->scratch.rope[at], p.bias = x->first;
    d->ops->pool_keys(d->dev, first, &turns, &p);
    d->ops->turn(d->dev, k,
                 &(struct turn){.n_heads = 1,
                                .dim = s->dim,
                                .rot_dim = rope->dim,
                                .interleaved = rope->interleaved,
                                .rope = first});
}

void block_index_select(struct decoder *d, const struct block_index *x, struct sub_step *t)
{
    const struct block_spec *s = &d->spec.blocks;
    const struct rope_spec *rope = &d->spec.rope[d->spec.layers[t->layer].rope];
    const uint32_t n = t->tokens, heads = queries_of(d, t->layer);
    struct work w = t->work;
    float *q = work_take(&w, n, (size_t)heads * s->dim), *k = work_take(&w, n, s->dim);
    assert(n == t->total);
    d->ops->linear(d->dev, q, t->in, n, x->q, NULL);
    d->ops->linear(d->dev, k, t->in, n, x->k, NULL);
    d->ops->norm(d->dev, q, q, n * heads, s->dim, &x->q_norm);
    if (s->heads)
        join_keys(d, x, t, &w, k);
    else
        d->ops->norm(d->dev, k, k, n, s->dim, &x->k_norm);
    d->ops->select_keys(
        d->dev, d->scratch.top, q, k, t->cache, t->kv,
        &(struct select_keys){.n_heads = heads,
                              .dim = s->dim,
                              .rot_dim = rope->dim,
                              .top = s->top,
                              .block = s->block,
                              .local = s->local,
                              .pooled = s->heads > 0,
                              .turned = s->heads > 0,
                              .interleaved = rope->interleaved,
                              .rope = d->scratch.rope[d->spec.layers[t->layer].rope]});
}
