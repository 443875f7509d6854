/* attention.c - softmax attention over the paged cache: q, k and v from one product, rotation,
 * the cache, the weighted sum, the output projection (arXiv 1706.03762; grouped heads:
 * 2305.13245). */
#include "model-server/model/mixer/attention.h"
#include "model-server/model/decoder_impl.h"

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const struct attention_shape s = attention_shape(d, layer);
    const uint32_t gate = attn_gate_by_head(d->spec.attn_gate) ? s.heads : s.sums;
    const uint32_t apart = d->spec.apart.buckets ? apart_width(d) : 0;
    const uint32_t embedded = d->spec.attn_embedded ? s.qkv : 0;
    const uint32_t clipped = d->spec.clips ? d->spec.hidden + s.sums : 0;
    const uint32_t update = d->spec.shared.qkv ? 3 * d->spec.shared.rank + s.qkv : 0;
    const uint32_t index = d->spec.layers[layer].by_blocks ? block_index_width(d, layer) : 0;
    const uint32_t merged =
        d->spec.layers[layer].merged ? s.sums + 2 * s.heads * (uint32_t)ATTN_SUMS : 0;
    return s.qkv + s.sums + merged + embedded + (d->spec.attn_gate ? gate : 0) + apart + clipped +
           update + index + (d->spec.qk_norm == QK_NORM_ALL ? SQUARES : 0) +
           (d->spec.sub_norms ? SQUARES : 0);
}

bool attention_keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out)
{
    const struct attention_shape s = attention_shape(d, layer);
    *out = (struct kv_layer){.n_heads = s.kv_heads,
                             .k_dim = s.dim,
                             .v_dim = s.v_dim,
                             .index_dim = d->spec.layers[layer].by_blocks ? d->spec.blocks.dim : 0};
    return !d->spec.layers[layer].kv_of;
}

void attention_plain(struct decoder *d, const struct sub_step *t, float *att, float *qkv)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    d->ops->rope_kv(
        d->dev, qkv, t->cache, t->kv,
        &(struct rope_kv){.n_heads = s.heads, .n_kv_heads = s.kv_heads, .head_dim = s.dim});
    d->ops->attention(d->dev, att, qkv, s.qkv, t->cache, t->kv,
                      &(struct attn){.n_heads = s.heads,
                                     .n_kv_heads = s.kv_heads,
                                     .head_dim = s.dim,
                                     .scale = d->spec.layers[t->layer].attn_scale,
                                     .both = d->spec.both_ways});
}

/* With norms over all heads: `squares`, summed over ranks. A key-value head on several ranks
 * counts once per rank, in the sum and in the number of elements. */
static void rotate_and_store(struct decoder *d, const struct attention *a, const struct sub_step *t,
                             float *qkv, const float *squares)
{
    const uint32_t world = (uint32_t)d->split.world;
    const enum qk_norm norm = d->spec.qk_norm;
    const bool by_head = norm == QK_NORM_BY_HEAD || norm == QK_NORM_LAYER_BY_HEAD;
    const bool layer = norm == QK_NORM_LAYER || norm == QK_NORM_LAYER_BY_HEAD;
    const struct decoder_spec *m = &d->spec;
    const struct layer_spec *ls = &m->layers[t->layer];
    const uint32_t turn = t->out ? ls->rope : SPEC_NO_ROPE; /* rows of an encoder do not rotate */
    const struct rope_spec *rope = &m->rope[turn];
    const struct attention_shape s = attention_shape(d, t->layer);
    const float *turns = d->scratch.rope[turn] + (size_t)t->first * rope->dim;
    d->ops->rope_kv(d->dev, qkv, t->cache, t->kv,
                    &(struct rope_kv){.n_heads = s.heads,
                                      .n_kv_heads = s.new_kv_heads,
                                      .head_dim = s.dim,
                                      .rot_dim = rope->kind ? rope->dim : 0,
                                      .interleaved = rope->interleaved,
                                      .rope = rope->kind ? turns : NULL,
                                      .q_norm = a->q_norm,
                                      .k_norm = a->k_norm,
                                      .q_norm_bias = a->q_norm_bias,
                                      .k_norm_bias = a->k_norm_bias,
                                      .v_norm = a->v_norm,
                                      .q_scale = ls->q_grows ? d->scratch.q_scale + t->first : NULL,
                                      .clip = m->clip_qkv,
                                      .norm_eps = m->qk_norm_eps > 0 ? m->qk_norm_eps : m->norm.eps,
                                      .norm_kind = layer     ? NORM_LAYER
                                                   : by_head ? m->norm.kind
                                                             : NORM_RMS,
                                      .norm_by_head = by_head,
                                      .norm_last = m->qk_norm_last,
                                      .squares = squares,
                                      .q_all = world * s.q,
                                      .k_all = world * s.k});
}

void attention_gate(struct decoder *d, const struct attention *a, struct sub_step *t, float *att)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    const bool by_head = attn_gate_by_head(d->spec.attn_gate);
    const uint32_t width = by_head ? s.heads : s.sums;
    float *by = work_take(&t->work, t->total, width);
    layer_project(d, t->layer, &(struct projection){a->gate, a->gate_bias, LORA_Q_GATE, width}, by,
                  t->in, d->spec.hidden, t->tokens);
    if (a->gate_factors)
        layer_times(d, by, t->tokens, width, a->gate_factors);
    if (by_head) {
        d->ops->gate_rows(d->dev, att, t->tokens * s.heads, s.v_dim, by,
                          d->spec.attn_gate == ATTN_GATE_SOFTPLUS_BY_HEAD);
        return;
    }
    d->ops->gate_norm(d->dev, att, width, t->tokens, width,
                      &(struct gate_norm){.kind = GATE_SIGMOID,
                                          .gate = by,
                                          .stride = width,
                                          .w = a->gate_norm,
                                          .group = a->gate_norm ? s.v_dim : 0,
                                          .eps = d->spec.norm.eps,
                                          .norm_first = true});
}

/* q, k and v of these rows: the first area of the work, which store() leaves for forward(). */
static float *take_qkv(struct sub_step *t, const struct attention_shape *s)
{
    return work_take(&t->work, t->total, s->qkv) + (size_t)t->first * s->qkv;
}

/* Without t->out the rows are those of an encoder (layer_spec.merged), and q is not needed: it is
 * computed with k and v, which have no matrix of their own. */
static int store(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct attention *a = self;
    const struct decoder_spec *m = &d->spec;
    const struct attention_shape s = attention_shape(d, t->layer);
    float *qkv = take_qkv(t, &s);
    struct projection p = {a->qkv, a->qkv_bias, LORA_QKV, s.qkv, &a->qkv_clip};
    if (m->clips)
        p.clipped = work_take(&t->work, t->total, m->hidden);
    layer_project(d, t->layer, &p, qkv, t->in, spec_attn_in(m), t->tokens);
    if (t->update)
        layer_update(d, t->update, &t->work, qkv, s.qkv, t->in, t->tokens);
    if (a->qkv_embedded) {
        float *more = work_take(&t->work, t->total, s.qkv);
        d->ops->linear(d->dev, more, t->embedded, t->tokens, a->qkv_embedded, NULL);
        d->ops->add_norm(d->dev, NULL, qkv, more, 1, t->tokens, s.qkv, NULL);
    }
    float *squares = NULL;
    if (m->qk_norm == QK_NORM_ALL) {
        squares = work_take(&t->work, t->total, SQUARES);
        d->ops->row_squares(d->dev, squares, qkv, s.qkv, t->tokens, s.q, s.k);
        if (layer_sum(d, squares, (size_t)t->tokens * SQUARES, e))
            return -1;
    }
    rotate_and_store(d, a, t, qkv, squares);
    return 0;
}

/* The softmax over keys of the same cache as q, or over those of an encoder's rows. */
static struct attn weighs(const struct decoder *d, const struct attention *a, uint32_t layer)
{
    const struct decoder_spec *m = &d->spec;
    const struct layer_spec *ls = &m->layers[layer];
    const struct attention_shape s = attention_shape(d, layer);
    return (struct attn){.n_heads = s.heads,
                         .n_kv_heads = s.kv_heads,
                         .head_dim = s.dim,
                         .scale = ls->attn_scale,
                         .softcap = m->attn_softcap,
                         .window = ls->window,
                         .ahead = ls->ahead,
                         .chunk = ls->chunk,
                         .alibi = a->alibi,
                         .alibi_bf16 = m->alibi.bf16,
                         .near = a->near,
                         .reach = a->apart ? m->apart.most : m->near.most,
                         .at = a->apart ? a->apart->at : NULL,
                         .buckets = m->apart.buckets,
                         .sinks = a->sinks,
                         .top = a->index ? d->scratch.top : NULL,
                         .n_top = m->blocks.top,
                         .top_block = m->blocks.block,
                         .top_tail = m->blocks.heads != 0,
                         .both = m->both_ways,
                         .mutual = ls->mutual};
}

/* Attention to the step's own keys and, with layer_spec.merged, to those of the texts that all its
 * rows attend to: two steps over two caches, whose results are merged. */
static int attend(struct decoder *d, const struct attn *p, struct sub_step *t, const float *qkv,
                  float *att, struct err *e)
{
    const struct attention_shape s = attention_shape(d, t->layer);
    const struct crossing *c = &d->cross;
    if (!d->spec.layers[t->layer].merged || !c->n) {
        d->ops->attention(d->dev, att, qkv, s.qkv, t->cache, t->kv, p);
        return 0;
    }
    if (c->n != t->tokens)
        return err_set(e, ERR_GENERATION, "a step has tokens with and without an encoder's rows");
    const uint32_t sums = s.heads * (uint32_t)ATTN_SUMS, at = decoder_cross_at(d, t->layer);
    float *other = work_take(&t->work, t->total, s.sums);
    float *own_sums = work_take(&t->work, t->total, sums);
    float *other_sums = work_take(&t->work, t->total, sums);
    struct attn own = *p, shown = *p;
    own.sums = own_sums;
    shown.sums = other_sums;
    shown.window = 0;
    shown.both = true;
    shown.mutual = MUTUAL_ALONE;
    d->ops->attention(d->dev, att, qkv, s.qkv, t->cache, t->kv, &own);
    if (decoder_next_step(d, &c->alone, e))
        return -1;
    d->ops->attention(d->dev, other, qkv, s.qkv, c->kv, at, &shown);
    if (decoder_next_step(d, &c->whole, e))
        return -1;
    d->ops->merge_attention(d->dev, att, own_sums, other, other_sums, t->tokens * s.heads, s.v_dim);
    return 0;
}

static int forward(struct decoder *d, const void *self, struct sub_step *t, struct err *e)
{
    const struct attention *a = self;
    const struct decoder_spec *m = &d->spec;
    const struct attention_shape s = attention_shape(d, t->layer);
    const float *qkv = take_qkv(t, &s);
    float *att = work_take(&t->work, t->total, s.sums);
    struct attn keys = weighs(d, a, t->layer);
    if (a->apart) {
        float *tables = work_take(&t->work, t->total, apart_width(d));
        apart_tables(d, a->apart, tables, qkv, t->tokens);
        keys.apart = tables;
    }
    if (a->index)
        block_index_select(d, a->index, t);
    if (attend(d, &keys, t, qkv, att, e))
        return -1;
    if (a->gate)
        attention_gate(d, a, t, att);
    if (a->sub_norm && layer_sub_norm(d, att, t->tokens, s.sums, m->n_heads * s.v_dim, a->sub_norm,
                                      work_take(&t->work, t->total, SQUARES), e))
        return -1;
    struct projection p = {a->o, a->o_bias, LORA_O, m->hidden, &a->o_clip};
    if (m->clips)
        p.clipped = work_take(&t->work, t->total, s.sums);
    layer_project(d, t->layer, &p, t->out, att, s.sums, t->tokens);
    return 0;
}

const struct sublayer_ops mixer_attention = {.name = "attention",
                                             .width = width,
                                             .load = attention_load,
                                             .free = attention_free,
                                             .stateless = block_index_stateless,
                                             .store = store,
                                             .forward = forward,
                                             .kv = attention_keeps};
