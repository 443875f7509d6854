/* attention_load.c - loads and frees the weights of a layer of softmax attention. */
#include "model-server/backend/numbers.h"
#include "model-server/model/mixer/attention.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attention_shape attention_shape(const struct decoder *d, uint32_t layer)
{
    struct attention_shape s = {.dim = spec_head_dim(&d->spec, layer),
                                .v_dim = spec_v_dim(&d->spec, layer),
                                .heads = split_heads(&d->split, &d->spec, layer).n,
                                .kv_heads = split_kv_heads(&d->split, &d->spec, layer).n};
    s.q = s.heads * s.dim;
    s.k = s.kv_heads * s.dim;
    s.v = s.kv_heads * s.v_dim;
    s.sums = s.heads * s.v_dim;
    s.new_kv_heads = d->spec.layers[layer].kv_of ? 0 : s.kv_heads;
    s.qkv = s.q + s.new_kv_heads * (s.dim + s.v_dim);
    return s;
}

/* A head, or its vector, in the order in which its halves rotate together: see
 * rope_spec.halves. */
enum { HEAD_PARTS = 4 };
static int head_parts(struct mat_part whole, uint32_t row, uint32_t dim, struct mat_part *out)
{
    static const uint32_t quarter[HEAD_PARTS] = {0, 2, 1, 3};
    for (int i = 0; i < HEAD_PARTS; i++)
        out[i] = loader_rows(whole, row + quarter[i] * (dim / 4), dim / 4);
    return HEAD_PARTS;
}

/* The elements of a head that are not stored: rows of zeros of the same type. */
static struct mat_part padding(const struct loader *l, struct mat_part whole, uint32_t rows)
{
    whole.data = l->zeros;
    whole.rows = rows;
    whole.row_stride = 0;
    return whole;
}

/* This rank's heads of q, k and v as row ranges of the matrices that contain them. */
static int qkv_parts(struct loader *l, int layer, bool bias, struct mat_part *parts)
{
    static const enum role roles[] = {W_Q, W_K, W_V};
    const struct decoder_spec *s = &l->d->spec;
    const struct split *sp = &l->d->split;
    const uint32_t at = (uint32_t)layer, kv = spec_kv_heads(s, at), q_heads = spec_heads(s, at);
    const bool packed = s->qkv != QKV_SEPARATE && !loader_has(l, W_Q, layer, NO_EXPERT);
    const int64_t in = (s->attn_embedded ? 2 : 1) * (int64_t)spec_attn_in(s);
    const uint32_t gate = s->qkv == QKV_GATE_FIRST ? q_heads : 0, pad = l->zeros ? s->head_pad : 0;
    struct mat_part whole = {0};
    int n = 0;
    if (packed) {
        const int64_t rows = (int64_t)(q_heads + kv + gate) * (spec_head_dim(s, at) - pad) +
                             (int64_t)kv * (spec_v_dim(s, at) - pad);
        l->turns = s->qkv_turns;
        whole = loader_part(l, W_QKV, layer, NO_EXPERT, bias, rows, in);
        l->turns = 0;
    }
    for (int p = 0; p < (s->layers[layer].kv_of ? 1 : 3); p++) {
        const bool interleaved = p > 0 && s->kv_interleaved;
        const enum role role = roles[p == 2 && (s->layers[layer].k_is_v || interleaved) ? 1 : p];
        const struct slice heads = p == 0 ? split_heads(sp, s, at) : split_kv_heads(sp, s, at);
        const bool gates = s->attn_gate == ATTN_GATE_BESIDE_Q;
        const uint32_t of = interleaved ? 2 * kv : p ? kv : q_heads * (gates ? 2 : 1);
        const uint32_t dim = p == 2 ? spec_v_dim(s, at) : spec_head_dim(s, at);
        const bool halves = p < 2 && s->rope[s->layers[layer].rope].halves;
        uint32_t end = UINT32_MAX;
        if (!packed)
            whole = loader_part(l, role, layer, NO_EXPERT, bias, (int64_t)of * (dim - pad), in);
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++) {
            const uint32_t row = packed || gates ? spec_qkv_row(s, at, p, h)
                                 : interleaved   ? (2 * h + (uint32_t)p - 1) * dim
                                                 : h * dim;
            if (halves) {
                n += head_parts(whole, row, dim, parts + n);
                continue;
            }
            if (pad) {
                parts[n++] = loader_rows(whole, row / dim * (dim - pad), dim - pad);
                parts[n++] = padding(l, whole, pad);
                continue;
            }
            if (row == end)
                parts[n - 1].rows += dim;
            else
                parts[n++] = loader_rows(whole, row, dim);
            end = row + dim;
        }
    }
    return n;
}

/* With attn_embedded: the columns of one of the two inputs. */
static struct weight *half_qkv(struct loader *l, int layer, struct mat_part *parts, int64_t from)
{
    const int n = qkv_parts(l, layer, false, parts);
    const int64_t cols = spec_attn_in(&l->d->spec);
    for (int i = 0; i < n; i++)
        parts[i] = loader_cut(parts[i], 0, parts[i].rows, from, cols);
    return loader_pack(l, parts, n, l->d->dtype, l->d->quant);
}

/* Biases of q and v that are vectors of their own, and zeros for k, which has none. */
static float *load_qv_biases(struct loader *l, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct split *sp = &l->d->split;
    const uint32_t at = (uint32_t)layer, dim = spec_head_dim(s, at), v_dim = spec_v_dim(s, at);
    const struct slice q = split_heads(sp, s, at), kv = split_kv_heads(sp, s, at);
    float *none = calloc((size_t)kv.n * dim, sizeof(*none)), *v = NULL;
    const struct mat_part parts[] = {
        loader_rows(loader_table(l, W_Q_BIAS, layer, "", (int64_t)spec_heads(s, at) * dim, 1),
                    q.first * dim, q.n * dim),
        {.data = none,
         .dtype = DT_F32,
         .rows = (int64_t)kv.n * dim,
         .cols = 1,
         .row_stride = 1,
         .col_stride = 1},
        loader_rows(loader_table(l, W_V_BIAS, layer, "", (int64_t)spec_kv_heads(s, at) * v_dim, 1),
                    kv.first * v_dim, kv.n * v_dim)};
    if (none)
        v = loader_vector(l, parts, 3, 0);
    else
        loader_nomem(l);
    free(none);
    return v;
}

static void load_qkv(struct loader *l, struct attention *a, int layer)
{
    const struct attention_shape m = attention_shape(l->d, (uint32_t)layer);
    struct mat_part *parts =
        calloc(HEAD_PARTS * (m.heads + 2 * (size_t)m.kv_heads), sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    a->qkv = half_qkv(l, layer, parts, l->d->spec.attn_embedded ? l->d->spec.hidden : 0);
    if (l->d->spec.attn_embedded)
        a->qkv_embedded = half_qkv(l, layer, parts, 0);
    if (l->a->names[W_Q_BIAS])
        a->qkv_bias = load_qv_biases(l, layer);
    else if (l->d->spec.bias.qkv)
        a->qkv_bias = loader_vector(l, parts, qkv_parts(l, layer, true, parts), 0);
    free(parts);
}

/* A number of each head, repeated for its `dim` elements. */
static float *load_head_numbers(struct loader *l, enum role role, int layer, struct slice heads,
                                uint32_t dim)
{
    const uint32_t all = spec_heads(&l->d->spec, (uint32_t)layer);
    const struct mat_part p = loader_table(l, role, layer, "", all, 1);
    float *host = malloc((size_t)heads.n * dim * sizeof(*host)), *v = NULL;
    if (!host)
        loader_nomem(l);
    for (uint32_t i = 0; host && i < heads.n * dim; i++)
        host[i] = p.data ? number_at(p.data, p.dtype, heads.first + i / dim) : 0;
    loader_drop(l);
    if (host)
        v = loader_host_vector(l, host, heads.n * dim);
    free(host);
    return v;
}

static void load_gate_apart(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice heads = split_heads(&l->d->split, s, (uint32_t)layer);
    const bool by_head = attn_gate_by_head(s->attn_gate);
    const uint32_t dim = by_head ? 1 : spec_v_dim(s, (uint32_t)layer);
    const bool first = s->qkv == QKV_GATE_FIRST && !loader_has(l, W_ATTN_GATE, layer, NO_EXPERT);
    const uint32_t all = spec_heads(s, (uint32_t)layer), kv = spec_kv_heads(s, (uint32_t)layer);
    struct mat_part p = loader_part(l, first ? W_QKV : W_ATTN_GATE, layer, NO_EXPERT, false,
                                    (int64_t)(first ? 2 * all + 2 * kv : all) * dim, s->hidden);
    p = loader_rows(p, heads.first * dim, heads.n * dim);
    a->gate = loader_pack(l, &p, 1, l->d->dtype, l->d->quant);
    if (s->attn_gate_norm)
        a->gate_norm = loader_ones(l, heads.n * dim);
    if (s->attn_gate_bias)
        a->gate_bias = load_head_numbers(l, W_ATTN_GATE_BIAS, layer, heads, dim);
    if (s->sphere.rate != 0)
        a->gate_factors =
            loader_factors(l, W_SPHERE_GATE, layer, all * dim,
                           (struct slice){heads.first * dim, heads.n * dim}, s->sphere.gate, true);
}

/* The rows of the gate after each head's q, or their biases. */
static void gate_parts(struct loader *l, int layer, bool bias, struct mat_part *parts)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice heads = split_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t at = (uint32_t)layer, dim = spec_head_dim(s, at);
    const struct mat_part whole = loader_part(l, W_Q, layer, NO_EXPERT, bias,
                                              (int64_t)2 * spec_heads(s, at) * dim, s->hidden);
    for (uint32_t h = 0; h < heads.n; h++)
        parts[h] = loader_rows(whole, spec_qkv_row(s, at, 0, heads.first + h) + dim, dim);
}

static void load_gate(struct loader *l, struct attention *a, int layer)
{
    const int heads = (int)split_heads(&l->d->split, &l->d->spec, (uint32_t)layer).n;
    struct mat_part *parts = calloc((size_t)heads, sizeof(*parts));
    if (!parts) {
        loader_nomem(l);
        return;
    }
    gate_parts(l, layer, false, parts);
    a->gate = loader_pack(l, parts, heads, l->d->dtype, l->d->quant);
    if (l->d->spec.bias.qkv) {
        gate_parts(l, layer, true, parts);
        a->gate_bias = loader_vector(l, parts, heads, 0);
    }
    free(parts);
}

/* A copy of this rank's heads of o, with columns of zeros behind each head. */
static struct mat_part padded_columns(struct loader *l, struct mat_part o, struct slice heads,
                                      uint32_t dim, uint32_t pad)
{
    const size_t size = dtype_size(o.dtype), cols = (size_t)heads.n * dim, own = dim - pad;
    char *copy = o.data && !l->failed ? calloc((size_t)o.rows * cols, size) : NULL;
    if (!copy) {
        if (!l->failed)
            loader_nomem(l);
        return o;
    }
    for (size_t r = 0; r < (size_t)o.rows; r++)
        for (size_t c = 0; c < heads.n * own; c++)
            memcpy(copy + (r * cols + c / own * dim + c % own) * size,
                   (const char *)o.data + ((int64_t)r * o.row_stride +
                                           ((int64_t)(heads.first * own + c)) * o.col_stride) *
                                              (int64_t)size,
                   size);
    l->copies[l->n_copies++] = copy; /* one more than loader_part()'s */
    o.data = copy;
    o.cols = o.row_stride = (int64_t)cols;
    o.col_stride = 1;
    return o;
}

static void load_o(struct loader *l, struct attention *a, int layer)
{
    const uint32_t pad = l->zeros ? l->d->spec.head_pad : 0;
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer);
    const int64_t dim = spec_v_dim(s, (uint32_t)layer);
    struct mat_part o = loader_part(l, W_O, layer, NO_EXPERT, false, s->hidden,
                                    spec_heads(s, (uint32_t)layer) * (dim - pad));
    if (pad)
        o = padded_columns(l, o, h, (uint32_t)dim, pad);
    else
        o = loader_cut(o, 0, s->hidden, h.first * dim, h.n * dim);
    a->o = s->sub_scale ? loader_pack_scaled(l, o, W_ATTN_SCALE, layer, l->d->quant)
                        : loader_pack(l, &o, 1, l->d->dtype, l->d->quant);
    if (s->bias.o && l->d->split.rank == 0) /* added once, before the sum over ranks */
        a->o_bias = s->sub_scale ? loader_scaled_bias(l, W_O, W_ATTN_SCALE, layer, s->hidden)
                                 : loader_bias(l, W_O, layer, s->hidden);
    if (s->bias.last_o && (uint32_t)layer + 1 == s->n_layers && l->d->split.rank == 0)
        a->o_bias =
            loader_plain_vector(l, W_O_BIAS, layer, s->hidden, (struct slice){0, s->hidden});
}

static void load_clips(struct loader *l, struct attention *a, int layer)
{
    static const enum role qkv[] = {W_CLIP_Q, W_CLIP_K, W_CLIP_V}, o[] = {W_CLIP_O};
    const struct decoder_spec *s = &l->d->spec;
    const struct attention_shape m = attention_shape(l->d, (uint32_t)layer);
    a->qkv_clip = loader_clip(l, qkv, (const uint32_t[]){m.q, m.k, m.v}, 3, layer, s->hidden);
    a->o_clip = loader_clip(l, o, &s->hidden, 1, layer, m.sums);
}

static float *load_head_norm(struct loader *l, enum role role, int layer, uint32_t dim)
{
    const struct decoder_spec *s = &l->d->spec;
    struct mat_part parts[HEAD_PARTS];
    if (!s->rope[s->layers[layer].rope].halves)
        return loader_weight_vector(l, role, layer, dim);
    const int n = head_parts(loader_table(l, role, layer, ".weight", dim, 1), 0, dim, parts);
    return loader_vector(l, parts, n, s->norm.plus);
}

/* This rank's part of the biases [heads][dim] of such norms. */
static float *load_biases_by_head(struct loader *l, enum role role, int layer, uint32_t heads,
                                  uint32_t dim, struct slice of)
{
    struct mat_part p = loader_table(l, role, layer, ".bias", (int64_t)heads * dim, 1);
    p = loader_rows(p, of.first * dim, of.n * dim);
    return loader_vector(l, &p, 1, 0);
}

/* Of heads whose weights are tensors of their own, where the name has a place for the head. */
static float *load_norms_by_head(struct loader *l, enum role role, int layer, uint32_t dim,
                                 struct slice heads)
{
    float *host = malloc((size_t)heads.n * dim * sizeof(*host)), *v;
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    for (uint32_t h = 0; h < heads.n; h++) {
        const struct mat_part p =
            loader_table_of(l, role, layer, (int)(heads.first + h), ".weight", dim, 1);
        for (uint32_t i = 0; i < dim; i++)
            host[(size_t)h * dim + i] = p.data ? number_at(p.data, p.dtype, i) : 0;
        loader_drop(l);
    }
    v = loader_host_vector(l, host, heads.n * dim);
    free(host);
    return v;
}

static bool named_by_head(const struct loader *l, enum role role)
{
    const char *first = strchr(l->a->names[role], '*');
    return first && strchr(first + 1, '*');
}

/* Elements `of` of the weights [n] of all heads. Where each head has its own they are as they are
 * stored, without norm_spec.plus; PLaMo 2's have whole names. */
static float *load_norm_slice(struct loader *l, enum role role, int layer, uint32_t n,
                              struct slice of)
{
    if (l->d->spec.qk_norm != QK_NORM_BY_HEAD)
        return loader_weight_slice(l, role, layer, n, of);
    if (loader_has_named(l, role, layer))
        return loader_plain_vector(l, role, layer, n, of);
    struct mat_part p = loader_table(l, role, layer, ".weight", n, 1);
    p = loader_rows(p, of.first, of.n);
    return loader_vector(l, &p, 1, 0);
}

static void load_qk_norms(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = split_heads(&l->d->split, s, (uint32_t)layer),
                       g = split_kv_heads(&l->d->split, s, (uint32_t)layer);
    const uint32_t dim = spec_head_dim(s, (uint32_t)layer), kv = spec_kv_heads(s, (uint32_t)layer);
    if (s->qk_norm == QK_NORM_HEAD) {
        a->q_norm = load_head_norm(l, W_Q_NORM, layer, dim);
        if (!s->layers[layer].kv_of)
            a->k_norm = load_head_norm(l, W_K_NORM, layer, dim);
    } else if (s->qk_norm == QK_NORM_LAYER) {
        a->q_norm = loader_weight_vector(l, W_Q_NORM, layer, dim);
        a->k_norm = loader_weight_vector(l, W_K_NORM, layer, dim);
        a->q_norm_bias = loader_bias(l, W_Q_NORM, layer, dim);
        a->k_norm_bias = loader_bias(l, W_K_NORM, layer, dim);
    } else if (s->qk_norm == QK_NORM_PLAIN) {
        if (s->qk_norm_still || s->rope[s->layers[layer].rope].kind) {
            a->q_norm = loader_ones(l, dim);
            a->k_norm = loader_ones(l, dim);
        }
    } else if (s->sphere.rate != 0) {
        a->q_norm = loader_factors(l, W_SPHERE_Q, layer, spec_heads(s, (uint32_t)layer) * dim,
                                   (struct slice){h.first * dim, h.n * dim}, s->sphere.q, true);
        a->k_norm = loader_ones(l, g.n * dim);
    } else if (s->qk_norm == QK_NORM_BY_HEAD && named_by_head(l, W_Q_NORM)) {
        a->q_norm = load_norms_by_head(l, W_Q_NORM, layer, dim, h);
        a->k_norm = load_norms_by_head(l, W_K_NORM, layer, dim, g);
    } else if (s->qk_norm != QK_NORM_NONE) {
        const struct slice q = {h.first * dim, h.n * dim}, k = {g.first * dim, g.n * dim};
        a->q_norm = load_norm_slice(l, W_Q_NORM, layer, spec_heads(s, (uint32_t)layer) * dim, q);
        a->k_norm = load_norm_slice(l, W_K_NORM, layer, kv * dim, k);
        if (s->qk_norm == QK_NORM_LAYER_BY_HEAD) {
            a->q_norm_bias =
                load_biases_by_head(l, W_Q_NORM, layer, spec_heads(s, (uint32_t)layer), dim, h);
            a->k_norm_bias = load_biases_by_head(l, W_K_NORM, layer, kv, dim, g);
        }
    }
}

static void load_sub_norm(struct loader *l, struct attention *a, int layer)
{
    const uint32_t dim = spec_v_dim(&l->d->spec, (uint32_t)layer);
    const struct slice h = l->d->split.heads;
    if (l->d->spec.sphere.rate != 0) {
        a->sub_norm = loader_constants(l, h.n * dim, 1 / sqrtf((float)(l->d->spec.n_heads * dim)));
        return;
    }
    a->sub_norm = loader_weight_slice(l, W_ATTN_SUB_NORM, layer, l->d->spec.n_heads * dim,
                                      (struct slice){h.first * dim, h.n * dim});
}

/* Slopes 2^(-most (i + 1) / p) of p heads, a power of two; for other numbers see the paper's
 * appendix. */
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
    for (uint32_t i = 0; l->d->spec.alibi.bf16 && i < h.n; i++)
        slopes[i] = f32_of_bf16(bf16_of_f32(slopes[i]));
    a->alibi = loader_host_vector(l, slopes, h.n);
    free(slopes);
}

/* Bucket of a key `far` positions after the query; fp32, where transformers rounds. Causal
 * attention reads none after the query: those entries are the bucket of distance 0. */
static uint32_t near_bucket(const struct near_spec *n, bool both_ways, int32_t far)
{
    const uint32_t part = both_ways ? n->buckets / 2 : n->buckets, exact = part / 2;
    const uint32_t at = far < 0 ? (uint32_t)-far : both_ways ? (uint32_t)far : 0;
    uint32_t bucket = at;
    if (at >= exact) {
        const float more = logf((float)at / (float)exact) / logf((float)n->most / (float)exact);
        bucket = exact + (uint32_t)(more * (float)(part - exact));
    }
    return (bucket < part ? bucket : part - 1) + (both_ways && far > 0 ? part : 0);
}

/* The learned numbers of all buckets and heads. */
static struct mat_part near_table(struct loader *l, int layer)
{
    const struct near_spec *n = &l->d->spec.near;
    const int at = n->of == NEAR_OF_EACH ? layer : n->of == NEAR_OF_FIRST ? 0 : NO_LAYER;
    return loader_table(l, W_NEAR, at, ".weight", n->buckets, l->d->spec.n_heads);
}

static float near_number(const struct decoder_spec *s, const struct mat_part *all, uint32_t head,
                         int32_t far)
{
    if (s->near.of == NEAR_OF_SLOPES)
        return -alibi_slope(s, head) * (float)abs(far);
    const int64_t at = (int64_t)near_bucket(&s->near, s->both_ways, far) * s->n_heads + head;
    return all->data ? number_at(all->data, all->dtype, at) : 0;
}

static void load_near(struct loader *l, struct attention *a, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    const int32_t most = (int32_t)s->near.most;
    const size_t each = 2 * (size_t)most + 1;
    struct mat_part all = {0};
    if (s->near.of != NEAR_OF_SLOPES)
        all = near_table(l, layer);
    float *of = malloc(h.n * each * sizeof(*of));
    if (!of) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < h.n; i++)
        for (int32_t far = -most; far <= most; far++)
            of[i * each + (size_t)(far + most)] = near_number(s, &all, h.first + i, far);
    a->near = loader_host_vector(l, of, (uint32_t)(h.n * each));
    free(of);
}

void *attention_load(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct attention *a = calloc(1, sizeof(*a));
    if (!a) {
        loader_nomem(l);
        return NULL;
    }
    if (!s->layers[layer].apart_inputs)
        load_qkv(l, a, (int)layer);
    if (s->attn_gate == ATTN_GATE_APART || attn_gate_by_head(s->attn_gate))
        load_gate_apart(l, a, (int)layer);
    else if (s->attn_gate)
        load_gate(l, a, (int)layer);
    load_qk_norms(l, a, (int)layer);
    load_o(l, a, (int)layer);
    if (s->clips)
        load_clips(l, a, (int)layer);
    if (s->sub_norms)
        load_sub_norm(l, a, (int)layer);
    if (s->v_norm)
        a->v_norm = loader_ones(l, spec_v_dim(s, layer));
    if (s->alibi.order && s->near.of != NEAR_OF_SLOPES)
        load_alibi(l, a);
    if (s->apart.buckets)
        a->apart = apart_load(l, layer);
    if (s->layers[layer].by_blocks)
        a->index = block_index_load(l, layer);
    if (s->near.buckets || s->near.of == NEAR_OF_SLOPES)
        load_near(l, a, (int)layer);
    if (s->sinks == SINKS_ALL || (s->sinks == SINKS_WINDOWS && s->layers[layer].window))
        a->sinks = loader_plain_vector(l, W_SINKS, (int)layer, spec_heads(s, layer),
                                       split_heads(&l->d->split, s, layer));
    return a;
}

void attention_free(struct decoder *d, void *self)
{
    struct attention *a = self;
    float *vectors[] = {a->gate_factors, a->qkv_bias,    a->o_bias,      a->gate_bias, a->q_norm,
                        a->k_norm,       a->v_norm,      a->sinks,       a->alibi,     a->near,
                        a->sub_norm,     a->q_norm_bias, a->k_norm_bias, a->gate_norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    layer_free_weight(d, a->qkv);
    layer_free_weight(d, a->qkv_embedded);
    layer_free_weight(d, a->gate);
    layer_free_weight(d, a->o);
    apart_free(d, a->apart);
    block_index_free(d, a->index);
    layer_free_clip(d, &a->qkv_clip);
    layer_free_clip(d, &a->o_clip);
    free(a);
}
