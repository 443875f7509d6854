/* attention.c - softmax attention over the paged cache: q, k and v of one product, rotation, the
 * cache, the weighted sum, the output projection (arXiv 1706.03762; grouped heads: 2305.13245). */
#include "model-server/model/decoder.h"
#include "model-server/model/loader.h"
#include <math.h>
#include <stdlib.h>

struct attention {
    struct weight *qkv;  /* [(heads + 2 kv_heads) * head_dim, hidden], this rank's heads */
    struct weight *o;    /* [hidden, heads * head_dim] */
    struct weight *gate; /* [heads * head_dim, hidden], or NULL */
    float *qkv_bias, *o_bias;
    float *q_norm, *k_norm; /* [head_dim], or of all this rank's heads */
    float *sinks, *alibi;   /* [heads] */
};

static uint32_t kv_width(const struct decoder *d) { return d->split.kv_heads.n * d->spec.head_dim; }
static uint32_t q_width(const struct decoder *d) { return d->split.heads.n * d->spec.head_dim; }

static uint32_t qkv_width(const struct decoder *d)
{
    return (d->split.heads.n + 2 * d->split.kv_heads.n) * d->spec.head_dim;
}

static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t squares = d->spec.qk_norm == QK_NORM_ALL ? SQUARES : 0;
    const uint32_t gate = d->spec.attn_gate ? q_width(d) : 0;
    return (void)layer, qkv_width(d) + q_width(d) + gate + squares;
}

/* ---------------------------------------------------------------- load */

/* This rank's heads of q, k and v as row ranges of whatever matrices hold them. */
static int qkv_parts(struct loader *l, int layer, bool bias, struct mat_part *parts)
{
    static const enum role roles[] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const struct split *sp = &l->d->split;
    const uint32_t all = (s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    const bool packed = s->qkv != QKV_SEPARATE;
    struct mat_part whole = {0};
    int n = 0;
    if (packed)
        whole = loader_part(l, W_QKV, layer, NO_EXPERT, bias, all, s->hidden);
    for (int p = 0; p < 3; p++) {
        const struct slice heads = p == 0 ? sp->heads : sp->kv_heads;
        const uint32_t of = p ? s->n_kv_heads : s->n_heads * (s->attn_gate ? 2 : 1);
        uint32_t end = UINT32_MAX;
        if (!packed)
            whole = loader_part(l, roles[p], layer, NO_EXPERT, bias, (int64_t)of * s->head_dim,
                                s->hidden);
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++) {
            uint32_t row = spec_qkv_row(s, p, h);
            if (row == end)
                parts[n - 1].rows += s->head_dim;
            else
                parts[n++] = loader_rows(whole, row, s->head_dim);
            end = row + s->head_dim;
        }
    }
    return n;
}

static void load_qkv(struct loader *l, struct attention *a, int layer)
{
    const struct split *sp = &l->d->split;
    struct mat_part *parts = calloc(sp->heads.n + 2 * sp->kv_heads.n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    a->qkv = loader_pack(l, parts, qkv_parts(l, layer, false, parts), l->d->dtype, l->d->quant);
    if (l->d->spec.bias.qkv)
        a->qkv_bias = loader_vector(l, parts, qkv_parts(l, layer, true, parts), 0);
    free(parts);
}

/* The rows behind each head's q. */
static void load_gate(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice heads = l->d->split.heads;
    struct mat_part *parts = calloc(heads.n, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    const struct mat_part whole = loader_part(l, W_Q, layer, NO_EXPERT, false,
                                              (int64_t)2 * s->n_heads * s->head_dim, s->hidden);
    for (uint32_t h = 0; h < heads.n; h++)
        parts[h] =
            loader_rows(whole, spec_qkv_row(s, 0, heads.first + h) + s->head_dim, s->head_dim);
    a->gate = loader_pack(l, parts, (int)heads.n, l->d->dtype, l->d->quant);
    free(parts);
}

static void load_o(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    struct mat_part o =
        loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * s->head_dim);
    o = loader_cut(o, 0, s->hidden, (int64_t)h.first * s->head_dim, (int64_t)h.n * s->head_dim);
    a->o = loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (s->bias.o && l->d->split.rank == 0) /* added once, before the sum over ranks */
        a->o_bias = loader_bias(l, W_O, layer, s->hidden);
}

static void load_qk_norms(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct split *sp = &l->d->split;
    const uint32_t dim = s->head_dim;
    if (s->qk_norm == QK_NORM_HEAD) {
        a->q_norm = loader_weight_vector(l, W_Q_NORM, layer, dim);
        a->k_norm = loader_weight_vector(l, W_K_NORM, layer, dim);
    } else if (s->qk_norm != QK_NORM_NONE) {
        const struct slice q = {sp->heads.first * dim, sp->heads.n * dim},
                           k = {sp->kv_heads.first * dim, sp->kv_heads.n * dim};
        a->q_norm = loader_weight_slice(l, W_Q_NORM, layer, s->n_heads * dim, q);
        a->k_norm = loader_weight_slice(l, W_K_NORM, layer, s->n_kv_heads * dim, k);
    }
}

/* Slopes 2^(-most (i + 1) / p) of p heads, a power of two; the paper's appendix for other numbers.
 */
static float alibi_slope(const struct decoder_spec *s, uint32_t head)
{
    uint32_t below = 1;
    while (2 * below <= s->n_heads)
        below *= 2;
    const bool even = below == s->n_heads;
    uint32_t of = below, nth = head + 1; /* the nth of so many */
    if (!even && s->alibi.order == ALIBI_MPT) {
        of = 2 * below;
        nth = 2 * head + 2 <= of ? 2 * head + 2 : 2 * (head - below) + 1;
    } else if (head >= below) {
        of = 2 * below;
        nth = 2 * (head - below) + 1;
    }
    return (float)exp2(-(double)s->alibi.most * nth / of);
}

static void load_alibi(struct loader *l, struct attention *a)
{
    const struct slice h = l->d->split.heads;
    float *slopes = malloc(h.n * sizeof(*slopes));
    if (!slopes) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < h.n; i++)
        slopes[i] = alibi_slope(&l->d->spec, h.first + i);
    a->alibi = loader_host_vector(l, slopes, h.n);
    free(slopes);
}

static void *load(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct attention *a = calloc(1, sizeof(*a));
    if (!a) {
        loader_nomem(l);
        return NULL;
    }
    load_qkv(l, a, (int)layer);
    if (s->attn_gate)
        load_gate(l, a, (int)layer);
    load_qk_norms(l, a, (int)layer);
    load_o(l, a, (int)layer);
    if (s->alibi.order)
        load_alibi(l, a);
    if (s->sinks)
        a->sinks = loader_plain_vector(l, W_SINKS, (int)layer, s->n_heads, l->d->split.heads);
    return a;
}

static void release(struct decoder *d, void *self)
{
    struct attention *a = self;
    float *vectors[] = {a->qkv_bias, a->o_bias, a->q_norm, a->k_norm, a->sinks, a->alibi};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    layer_free_weight(d, a->qkv);
    layer_free_weight(d, a->gate);
    layer_free_weight(d, a->o);
    free(a);
}

/* ---------------------------------------------------------------- forward */

/* With norms over all heads: `squares`, summed over ranks. A key-value head that several ranks keep
 * counts as often, in the sum and in the number of elements. */
static void rotate_and_store(struct decoder *d, const struct attention *a, uint32_t layer,
                             float *qkv, const float *squares)
{
    const uint32_t world = (uint32_t)d->split.world;
    const bool by_head = d->spec.qk_norm == QK_NORM_BY_HEAD;
    const struct decoder_spec *m = &d->spec;
    const struct layer_spec *ls = &m->layers[layer];
    const struct rope_spec *rope = &m->rope[ls->rope];
    d->ops->rope_kv(d->dev, qkv, d->kv, d->encodes ? 0 : ls->cache,
                    &(struct rope_kv){.n_heads = d->split.heads.n,
                                      .n_kv_heads = d->split.kv_heads.n,
                                      .head_dim = m->head_dim,
                                      .rot_dim = rope->kind ? rope->dim : 0,
                                      .interleaved = rope->interleaved,
                                      .rope = rope->kind ? d->scratch.rope[ls->rope] : NULL,
                                      .q_norm = a->q_norm,
                                      .k_norm = a->k_norm,
                                      .norm_eps = m->norm.eps,
                                      .norm_kind = by_head ? m->norm.kind : NORM_RMS,
                                      .norm_by_head = by_head,
                                      .squares = squares,
                                      .q_all = world * q_width(d),
                                      .k_all = world * kv_width(d)});
}

static void gate(struct decoder *d, const struct attention *a, struct sub_step *s, float *att)
{
    const uint32_t width = q_width(d);
    float *by = work_take(&s->work, s->tokens, width);
    d->ops->linear(d->dev, by, s->in, s->tokens, a->gate, NULL);
    d->ops->gate_norm(d->dev, att, width, s->tokens, width,
                      &(struct gate_norm){.kind = GATE_SIGMOID, .gate = by, .stride = width});
}

static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct attention *a = self;
    const struct decoder_spec *m = &d->spec;
    const struct layer_spec *ls = &m->layers[s->layer];
    float *qkv = work_take(&s->work, s->tokens, qkv_width(d));
    float *att = work_take(&s->work, s->tokens, q_width(d));
    layer_project(d, s->layer, &(struct projection){a->qkv, a->qkv_bias, LORA_QKV, qkv_width(d)},
                  qkv, s->in, m->hidden, s->tokens);
    float *squares = NULL;
    if (m->qk_norm == QK_NORM_ALL) {
        squares = work_take(&s->work, s->tokens, SQUARES);
        d->ops->row_squares(d->dev, squares, qkv, qkv_width(d), s->tokens, q_width(d), kv_width(d));
        if (layer_sum(d, squares, (size_t)s->tokens * SQUARES, e))
            return -1;
    }
    rotate_and_store(d, a, s->layer, qkv, squares);
    d->ops->attention(d->dev, att, qkv, qkv_width(d), d->kv, d->encodes ? 0 : ls->cache,
                      &(struct attn){.n_heads = d->split.heads.n,
                                     .n_kv_heads = d->split.kv_heads.n,
                                     .head_dim = m->head_dim,
                                     .scale = ls->attn_scale,
                                     .softcap = m->attn_softcap,
                                     .window = ls->window,
                                     .alibi = a->alibi,
                                     .sinks = a->sinks,
                                     .both = m->both_ways});
    if (a->gate)
        gate(d, a, s, att);
    layer_project(d, s->layer, &(struct projection){a->o, a->o_bias, LORA_O, m->hidden}, s->out,
                  att, q_width(d), s->tokens);
    return 0;
}

const struct sublayer_ops mixer_attention = {"attention", width, load, release, forward};
