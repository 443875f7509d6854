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

/* Keys and queries are small, and decide what all heads attend to: they keep their numbers. */
struct block_index *block_index_load(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_kv_heads(&l->d->split, s, layer);
    const uint32_t dim = s->blocks.dim;
    struct block_index *x = calloc(1, sizeof(*x));
    if (!x) {
        loader_nomem(l);
        return NULL;
    }
    struct mat_part p = loader_part(l, W_INDEX_Q, (int)layer, NO_EXPERT, false,
                                    (int64_t)spec_kv_heads(s, layer) * dim, s->hidden);
    p = loader_rows(p, h.first * dim, h.n * dim);
    x->q = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    p = loader_part(l, W_INDEX_K, (int)layer, NO_EXPERT, false, dim, s->hidden);
    x->k = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
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
    free(x);
}

uint32_t block_index_width(const struct decoder *d, uint32_t layer)
{
    return (split_kv_heads(&d->split, &d->spec, layer).n + 1) * d->spec.blocks.dim;
}

void block_index_select(struct decoder *d, const struct block_index *x, struct sub_step *t)
{
    const struct block_spec *s = &d->spec.blocks;
    const struct rope_spec *rope = &d->spec.rope[d->spec.layers[t->layer].rope];
    const uint32_t n = t->tokens, heads = split_kv_heads(&d->split, &d->spec, t->layer).n;
    struct work w = t->work;
    float *q = work_take(&w, n, (size_t)heads * s->dim), *k = work_take(&w, n, s->dim);
    assert(n == t->total);
    d->ops->linear(d->dev, q, t->in, n, x->q, NULL);
    d->ops->linear(d->dev, k, t->in, n, x->k, NULL);
    d->ops->norm(d->dev, q, q, n * heads, s->dim, &x->q_norm);
    d->ops->norm(d->dev, k, k, n, s->dim, &x->k_norm);
    d->ops->select_keys(
        d->dev, d->scratch.top, q, k, t->cache, t->kv,
        &(struct select_keys){.n_heads = heads,
                              .dim = s->dim,
                              .rot_dim = rope->dim,
                              .top = s->top,
                              .block = s->block,
                              .local = s->local,
                              .interleaved = rope->interleaved,
                              .rope = d->scratch.rope[d->spec.layers[t->layer].rope]});
}
