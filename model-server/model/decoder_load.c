/* From a checkpoint to the device: find each tensor by its role, check its shape, cut out this
 * rank's part as strided views, let the backend pack them. The first fault is kept and the rest
 * skipped. */
#include "common/log.h"
#include "model-server/model/decoder.h"
#include "model-server/model/half.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 200, NO_LAYER = -1, NO_EXPERT = -1, MAX_SOURCES = 4 };

struct loader {
    struct decoder *d;
    const struct arch *a;
    const struct checkpoint *c;
    struct err *e;
    bool failed;
    /* What the matrix at hand is made of, until it is packed (at most q, k and v): tensors whose
     * pages are then let go, so that memory peaks at the packed weights and not at twice that; and
     * copies of those at odd addresses. */
    const struct tensor *tensors[MAX_SOURCES];
    void *copies[MAX_SOURCES];
    int n_tensors, n_copies;
};

/* ---------------------------------------------------------------- tensors by role */

static void name_of(const struct loader *l, enum role role, int layer, int expert,
                    const char *suffix, char out[NAME_MAX_LEN])
{
    int index = layer;
    size_t n = 0;
    for (const char *p = l->a->names[role]; *p && n < NAME_MAX_LEN - 32; p++) {
        if (*p != '*') {
            out[n++] = *p;
            continue;
        }
        n += (size_t)snprintf(out + n, NAME_MAX_LEN - n, "%d", index);
        index = expert;
    }
    snprintf(out + n, NAME_MAX_LEN - n, "%s", suffix);
}

static const struct tensor *find(struct loader *l, const char *name)
{
    const char *prefix = l->a->prefix;
    const struct tensor *t = checkpoint_find(l->c, name);
    if (!t && prefix && strncmp(name, prefix, strlen(prefix)) == 0)
        t = checkpoint_find(l->c, name + strlen(prefix));
    if (!t && !l->failed) {
        checkpoint_missing(l->c, name, l->e);
        l->failed = true;
    }
    return t;
}

/* Backends read elements at their natural alignment; the format promises none. */
static const void *source(struct loader *l, const struct tensor *t, size_t size)
{
    assert(l->n_tensors < MAX_SOURCES);
    l->tensors[l->n_tensors++] = t;
    if ((uintptr_t)t->data % size == 0)
        return t->data;
    void *copy = malloc(t->bytes ? t->bytes : 1);
    if (!copy) {
        err_nomem(l->e);
        l->failed = true;
        return t->data;
    }
    l->copies[l->n_copies++] = copy;
    return memcpy(copy, t->data, t->bytes);
}

static void drop_sources(struct loader *l)
{
    while (l->n_tensors)
        tensor_release(l->tensors[--l->n_tensors]);
    while (l->n_copies)
        free(l->copies[--l->n_copies]);
}

static int element_type(struct loader *l, const struct tensor *t, enum dtype *out)
{
    if (t->type == T_F32 || t->type == T_F16 || t->type == T_BF16) {
        *out = t->type == T_F32 ? DT_F32 : t->type == T_F16 ? DT_F16 : DT_BF16;
        return 0;
    }
    l->failed = true;
    return err_set(l->e, ERR_VALIDATION,
                   "%s: tensor `%s` has dtype %s; weights must be F32, F16 or BF16", t->file,
                   t->name, tensor_type_name(t->type));
}

static int wrong_shape(struct loader *l, const struct tensor *t, int64_t rows, int64_t cols)
{
    char have[TENSOR_MAX_DIMS * 24] = "", want[64];
    for (int i = 0, n = 0; i < t->n_dims; i++)
        n += snprintf(have + n, sizeof(have) - (size_t)n, "%s%llu", i ? ", " : "",
                      (unsigned long long)t->dims[i]);
    if (cols)
        snprintf(want, sizeof(want), "%lld, %lld", (long long)rows, (long long)cols);
    else
        snprintf(want, sizeof(want), "%lld", (long long)rows);
    l->failed = true;
    return err_set(l->e, ERR_VALIDATION, "%s: tensor `%s` has shape [%s]; config.json means [%s]",
                   t->file, t->name, have, want);
}

/* The whole matrix [rows, cols] of a role; its bias [rows] where `bias`, as one column. An empty
 * part after a fault. */
static struct mat_part tensor_part(struct loader *l, enum role role, int layer, int expert,
                                   bool bias, int64_t rows, int64_t cols)
{
    bool table = role == W_EMBED || role == W_POSITIONS || role == W_HEAD || role == W_ROUTER;
    bool turned = l->d->spec.transposed && !bias && !table;
    uint64_t r = (uint64_t)(turned ? cols : rows), c = (uint64_t)(turned ? rows : cols);
    struct mat_part p = {0};
    char name[NAME_MAX_LEN];
    name_of(l, role, layer, expert, bias ? ".bias" : ".weight", name);
    const struct tensor *t = l->failed ? NULL : find(l, name);
    if (!t || element_type(l, t, &p.dtype))
        return p;
    bool ok = bias ? t->n_dims == 1 && t->dims[0] == (uint64_t)rows
                   : t->n_dims == 2 && t->dims[0] == r && t->dims[1] == c;
    if (!ok) {
        wrong_shape(l, t, (int64_t)r, bias ? 0 : (int64_t)c);
        return p;
    }
    p.data = source(l, t, dtype_size(p.dtype));
    p.rows = rows;
    p.cols = bias ? 1 : cols;
    p.row_stride = bias || turned ? 1 : cols;
    p.col_stride = bias ? 1 : turned ? rows : 1;
    return p;
}

static struct mat_part part_at(struct mat_part p, int64_t row, int64_t rows, int64_t col,
                               int64_t cols)
{
    size_t at = (size_t)(row * p.row_stride + col * p.col_stride) * dtype_size(p.dtype);
    if (p.data)
        p.data = (const char *)p.data + at;
    p.rows = rows;
    p.cols = cols;
    return p;
}

static struct mat_part rows_of(struct mat_part p, uint32_t first, uint32_t n)
{
    return part_at(p, first, n, 0, p.cols);
}

/* ---------------------------------------------------------------- onto the device */

static struct weight *pack(struct loader *l, const struct mat_part *parts, int n, enum dtype dtype)
{
    struct decoder *d = l->d;
    const struct mat_desc m = {.parts = parts, .n_parts = n, .dtype = dtype};
    struct weight *w = l->failed ? NULL : d->ops->weight_load(d->dev, &m, l->e);
    if (!w)
        l->failed = true;
    for (int i = 0; w && i < n; i++)
        d->weight_bytes += (uint64_t)(parts[i].rows * parts[i].cols) * dtype_size(dtype);
    drop_sources(l);
    return w;
}

static float element(const struct mat_part *p, int64_t i)
{
    const char *at = (const char *)p->data + (size_t)(i * p->row_stride) * dtype_size(p->dtype);
    float v;
    if (p->dtype == DT_F32)
        memcpy(&v, at, 4);
    else {
        uint16_t h;
        memcpy(&h, at, 2);
        v = p->dtype == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
    return v;
}

/* Columns stacked into one fp32 vector: biases of q over k over v, of gate over up. */
static float *pack_vector(struct loader *l, const struct mat_part *parts, int n, float plus)
{
    struct decoder *d = l->d;
    int64_t rows = 0, at = 0;
    float *host, *v = NULL;
    for (int i = 0; i < n; i++)
        rows += parts[i].rows;
    if (l->failed)
        return NULL;
    if (!(host = malloc((size_t)rows * sizeof(float))))
        err_nomem(l->e);
    else {
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < parts[i].rows; k++)
                host[at++] = element(&parts[i], k);
        v = d->ops->vector_load(d->dev, &(struct mat_part){host, DT_F32, rows, 1, 1, 1}, plus,
                                l->e);
    }
    free(host);
    if (!v)
        l->failed = true;
    d->weight_bytes += (uint64_t)rows * sizeof(float);
    drop_sources(l);
    return v;
}

static float *bias_vector(struct loader *l, enum role role, int layer, uint32_t n)
{
    struct mat_part p = tensor_part(l, role, layer, NO_EXPERT, true, n, 1);
    return pack_vector(l, &p, 1, 0);
}

static float *weight_vector(struct loader *l, enum role role, int layer, uint32_t n)
{
    char name[NAME_MAX_LEN];
    struct mat_part p = {.rows = n, .cols = 1, .row_stride = 1, .col_stride = 1};
    name_of(l, role, layer, NO_EXPERT, ".weight", name);
    const struct tensor *t = l->failed ? NULL : find(l, name);
    if (!t || element_type(l, t, &p.dtype))
        return NULL;
    if (t->n_dims != 1 || t->dims[0] != n)
        wrong_shape(l, t, n, 0);
    else
        p.data = source(l, t, dtype_size(p.dtype));
    return pack_vector(l, &p, 1, l->d->spec.norm.plus);
}

static struct norm norm(struct loader *l, enum role role, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct norm n = {.kind = s->norm.kind, .eps = s->norm.eps};
    n.w = weight_vector(l, role, layer, s->hidden);
    n.b = s->bias.norm ? bias_vector(l, role, layer, s->hidden) : NULL;
    return n;
}

/* ---------------------------------------------------------------- layers */

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
        whole = tensor_part(l, W_QKV, layer, NO_EXPERT, bias, all, s->hidden);
    for (int p = 0; p < 3; p++) {
        const struct slice heads = p == 0 ? sp->heads : sp->kv_heads;
        const uint32_t of = p == 0 ? s->n_heads : s->n_kv_heads;
        uint32_t end = UINT32_MAX;
        if (!packed)
            whole = tensor_part(l, roles[p], layer, NO_EXPERT, bias, (int64_t)of * s->head_dim,
                                s->hidden);
        for (uint32_t h = heads.first; h < heads.first + heads.n; h++) {
            uint32_t row = spec_qkv_row(s, p, h);
            if (row == end)
                parts[n - 1].rows += s->head_dim;
            else
                parts[n++] = rows_of(whole, row, s->head_dim);
            end = row + s->head_dim;
        }
    }
    return n;
}

static void load_qkv(struct loader *l, struct layer *y, int layer)
{
    const struct split *sp = &l->d->split;
    struct mat_part *parts = calloc(sp->heads.n + 2 * sp->kv_heads.n, sizeof(*parts));
    if (!parts) {
        err_nomem(l->e);
        l->failed = true;
        return;
    }
    y->qkv = pack(l, parts, qkv_parts(l, layer, false, parts), l->d->dtype);
    if (l->d->spec.bias.qkv)
        y->qkv_bias = pack_vector(l, parts, qkv_parts(l, layer, true, parts), 0);
    free(parts);
}

/* Gate over up, or up alone: this rank's rows of `ffn`. */
static int up_parts(struct loader *l, int layer, bool bias, struct mat_part parts[2])
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.ffn;
    if (s->mlp == MLP_GATED_PACKED) {
        parts[1] =
            tensor_part(l, W_GATE_UP, layer, NO_EXPERT, bias, 2 * (int64_t)s->ffn, s->hidden);
        parts[0] = rows_of(parts[1], f.first, f.n);
        parts[1] = rows_of(parts[1], s->ffn + f.first, f.n);
        return 2;
    }
    int n = 0;
    if (s->mlp == MLP_GATED)
        parts[n++] = rows_of(tensor_part(l, W_GATE, layer, NO_EXPERT, bias, s->ffn, s->hidden),
                             f.first, f.n);
    parts[n++] =
        rows_of(tensor_part(l, W_UP, layer, NO_EXPERT, bias, s->ffn, s->hidden), f.first, f.n);
    return n;
}

static void load_mlp(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.ffn;
    struct mat_part parts[2];
    y->up = pack(l, parts, up_parts(l, layer, false, parts), l->d->dtype);
    parts[0] = tensor_part(l, W_DOWN, layer, NO_EXPERT, false, s->hidden, s->ffn);
    parts[0] = part_at(parts[0], 0, s->hidden, f.first, f.n);
    y->down = pack(l, parts, 1, l->d->dtype);
    if (!s->bias.mlp)
        return;
    y->up_bias = pack_vector(l, parts, up_parts(l, layer, true, parts), 0);
    if (l->d->split.rank == 0) /* added once, before the sum over ranks */
        y->down_bias = bias_vector(l, W_DOWN, layer, s->hidden);
}

static void load_experts(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice f = l->d->split.moe_ffn;
    const uint32_t n = s->moe.n_experts;
    struct mat_part parts[2];
    y->experts_up = calloc(n, sizeof(struct weight *));
    y->experts_down = calloc(n, sizeof(struct weight *));
    if (!y->experts_up || !y->experts_down) {
        err_nomem(l->e);
        l->failed = true;
        return;
    }
    parts[0] = tensor_part(l, W_ROUTER, layer, NO_EXPERT, false, n, s->hidden);
    y->router = pack(l, parts, 1, DT_F32); /* small, and its ties decide */
    for (uint32_t i = 0; i < n && !l->failed; i++) {
        parts[0] = tensor_part(l, W_MOE_GATE, layer, (int)i, false, s->moe.ffn, s->hidden);
        parts[1] = tensor_part(l, W_MOE_UP, layer, (int)i, false, s->moe.ffn, s->hidden);
        parts[0] = rows_of(parts[0], f.first, f.n);
        parts[1] = rows_of(parts[1], f.first, f.n);
        y->experts_up[i] = pack(l, parts, 2, l->d->dtype);
        parts[0] = tensor_part(l, W_MOE_DOWN, layer, (int)i, false, s->hidden, s->moe.ffn);
        parts[0] = part_at(parts[0], 0, s->hidden, f.first, f.n);
        y->experts_down[i] = pack(l, parts, 1, l->d->dtype);
    }
}

static void load_layer(struct loader *l, struct layer *y, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice h = l->d->split.heads;
    y->attn_norm = norm(l, W_ATTN_NORM, layer);
    load_qkv(l, y, layer);
    if (s->qk_norm) {
        y->q_norm = weight_vector(l, W_Q_NORM, layer, s->head_dim);
        y->k_norm = weight_vector(l, W_K_NORM, layer, s->head_dim);
    }
    struct mat_part o =
        tensor_part(l, W_O, layer, NO_EXPERT, false, s->hidden, (int64_t)s->n_heads * s->head_dim);
    o = part_at(o, 0, s->hidden, (int64_t)h.first * s->head_dim, (int64_t)h.n * s->head_dim);
    y->o = pack(l, &o, 1, l->d->dtype);
    if (s->bias.o && l->d->split.rank == 0)
        y->o_bias = bias_vector(l, W_O, layer, s->hidden);
    if (!s->parallel || !s->shared_norm)
        y->mlp_norm = norm(l, W_MLP_NORM, layer);
    if (s->post_norms) {
        y->post_attn_norm = norm(l, W_POST_ATTN_NORM, layer);
        y->post_mlp_norm = norm(l, W_POST_MLP_NORM, layer);
    }
    if (s->layers[layer].moe)
        load_experts(l, y, layer);
    else
        load_mlp(l, y, layer);
    LOG(LOG_DEBUG, "layer loaded", LOGI("layer", layer + 1), LOGI("of", s->n_layers),
        LOGI("bytes", l->d->weight_bytes));
}

static void load_outer(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const struct slice v = d->split.vocab;
    struct mat_part p = rows_of(
        tensor_part(l, W_EMBED, NO_LAYER, NO_EXPERT, false, s->vocab, s->hidden), v.first, v.n);
    d->embed = pack(l, &p, 1, d->dtype);
    if (s->learned_positions) {
        int64_t rows = (int64_t)s->max_positions + s->position_offset;
        p = tensor_part(l, W_POSITIONS, NO_LAYER, NO_EXPERT, false, rows, s->hidden);
        d->positions = pack(l, &p, 1, d->dtype);
    }
    d->final_norm = norm(l, W_FINAL_NORM, NO_LAYER);
    d->head = d->embed;
    if (!s->tied) {
        p = tensor_part(l, W_HEAD, NO_LAYER, NO_EXPERT, false, s->vocab, s->hidden);
        p = rows_of(p, v.first, v.n);
        d->head = pack(l, &p, 1, d->dtype);
    }
    if (s->bias.head) {
        p = rows_of(tensor_part(l, W_HEAD, NO_LAYER, NO_EXPERT, true, s->vocab, 1), v.first, v.n);
        d->head_bias = pack_vector(l, &p, 1, 0);
    }
}

int decoder_load(struct decoder *d, const struct arch *a, const struct checkpoint *c, struct err *e)
{
    struct loader l = {.d = d, .a = a, .c = c, .e = e};
    d->layers = calloc(d->spec.n_layers, sizeof(d->layers[0]));
    if (!d->layers)
        return err_nomem(e);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_init(&d->rope[i], &d->spec.rope[i]);
    load_outer(&l);
    for (uint32_t i = 0; i < d->spec.n_layers && !l.failed; i++)
        load_layer(&l, &d->layers[i], (int)i);
    drop_sources(&l);
    return l.failed ? -1 : 0;
}

/* ---------------------------------------------------------------- and off it */

static void free_norm(struct decoder *d, struct norm *n)
{
    d->ops->free(d->dev, (void *)(uintptr_t)n->w);
    d->ops->free(d->dev, (void *)(uintptr_t)n->b);
}

static void free_weight(struct decoder *d, struct weight *w)
{
    if (w)
        d->ops->weight_free(d->dev, w);
}

static void free_layer(struct decoder *d, struct layer *y)
{
    float *vectors[] = {y->qkv_bias, y->o_bias, y->up_bias, y->down_bias, y->q_norm, y->k_norm};
    struct weight *weights[] = {y->qkv, y->o, y->up, y->down, y->router};
    struct norm *norms[] = {&y->attn_norm, &y->post_attn_norm, &y->mlp_norm, &y->post_mlp_norm};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        d->ops->free(d->dev, vectors[i]);
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        free_weight(d, weights[i]);
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        free_norm(d, norms[i]);
    for (uint32_t i = 0; i < d->spec.moe.n_experts; i++) {
        if (y->experts_up)
            free_weight(d, y->experts_up[i]);
        if (y->experts_down)
            free_weight(d, y->experts_down[i]);
    }
    free(y->experts_up);
    free(y->experts_down);
}

void decoder_free(struct decoder *d)
{
    for (uint32_t i = 0; d->layers && i < d->spec.n_layers; i++)
        free_layer(d, &d->layers[i]);
    free(d->layers);
    if (d->head != d->embed)
        free_weight(d, d->head);
    free_weight(d, d->embed);
    free_weight(d, d->positions);
    free_norm(d, &d->final_norm);
    d->ops->free(d->dev, d->head_bias);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        rope_free(&d->rope[i]);
    if (d->kv)
        d->ops->kv_free(d->dev, d->kv);
    d->ops->free(d->dev, d->scratch.memory);
    free(d->scratch.host);
}
