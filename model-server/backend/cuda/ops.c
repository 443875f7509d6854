/* ops.c - operations of backend.h as kernels and their arguments. */
#include "model-server/backend/cuda/cuda.h"

/* ---------------------------------------------------------------- rows */

static void embed_rows(struct device *d, float *y, const struct weight *w, const uint32_t *index,
                       uint32_t shift, float scale, bool add)
{
    struct embed_args a = {.y = y,
                           .w = w->m,
                           .index = index,
                           .rows = d->batch->n_tokens,
                           .shift = shift,
                           .scale = scale,
                           .add = add};
    RECORD(d, embed_launch, a);
}

void cuda_embed(struct device *d, float *y, const struct weight *w, uint32_t first_row, float scale)
{
    embed_rows(d, y, w, d->b.ids, -first_row, scale, false);
}

void cuda_give_rows(struct device *d, float *y, const float *x, uint32_t n, bool add)
{
    struct give_args a = {y, x, d->b.given, d->batch->n_tokens, n, add};
    if (d->batch->given)
        RECORD(d, give_launch, a);
}

void cuda_embed_pos(struct device *d, float *y, const struct weight *w, uint32_t offset)
{
    embed_rows(d, y, w, d->b.pos, offset, 1.0f, true);
}

void cuda_norm(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
               const struct norm *p)
{
    struct norm_args a = {.y = y,
                          .x = (float *)(uintptr_t)x, /* written only with r */
                          .w = p->w,
                          .b = p->b,
                          .rows = rows,
                          .n = n,
                          .layer = p->kind == NORM_LAYER,
                          .eps = p->eps};
    if (rows)
        RECORD(d, norm_launch, a);
}

void cuda_add_norm(struct device *d, float *y, float *x, const float *r, float scale, uint32_t rows,
                   uint32_t n, const struct norm *p)
{
    struct norm_args a = {
        .y = p ? y : NULL, .x = x, .r = r, .rows = rows, .n = n, .plain = !p, .scale = scale};
    if (rows && fuse_sum(d, x, r, scale, rows, n)) {
        if (p)
            cuda_norm(d, y, x, rows, n, p);
        return;
    }
    if (p) {
        a.w = p->w, a.b = p->b, a.eps = p->eps;
        a.layer = p->kind == NORM_LAYER;
    }
    if (rows)
        RECORD(d, norm_launch, a);
}

void cuda_act_mul(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                  enum act kind)
{
    struct act_args a = {y, x, NULL, rows, n, kind, true};
    if (rows && !wgmma_gate(d, y, x, rows, n, kind) && !fuse_gate(d, y, x, rows, n, kind))
        RECORD(d, act_launch, a);
}

void cuda_act(struct device *d, float *x, uint32_t rows, uint32_t n, enum act kind)
{
    struct act_args a = {x, x, NULL, rows, n, kind, false};
    if (rows)
        RECORD(d, act_launch, a);
}

void cuda_xielu(struct device *d, float *x, uint32_t rows, uint32_t n, float a, float b)
{
    struct xielu_args args = {x, (uint64_t)rows * n, a, b};
    if (rows)
        RECORD(d, xielu_launch, args);
}

void cuda_act_by(struct device *d, float *x, const float *m, uint32_t rows, uint32_t n,
                 enum act kind)
{
    struct act_args a = {x, x, m, rows, n, kind, false};
    if (rows)
        RECORD(d, act_launch, a);
}

void cuda_row_squares(struct device *d, float *y, const float *x, uint32_t stride, uint32_t rows,
                      uint32_t a, uint32_t b)
{
    struct squares_args args = {y, x, rows, stride, a, b};
    if (rows)
        RECORD(d, squares_launch, args);
}

void cuda_gate_rows(struct device *d, float *x, uint32_t rows, uint32_t n, const float *gate,
                    bool softplus)
{
    struct gate_args a = {x, gate, rows, n, softplus, 0};
    if (rows)
        RECORD(d, gate_launch, a);
}

void cuda_scale_heads(struct device *d, float *x, uint32_t rows, uint32_t heads, uint32_t n,
                      const float *by, const float *slope, const float *offset)
{
    struct scale_heads_args a = {x, by, slope, offset, (uint64_t)rows * heads * n, heads, n};
    if (rows)
        RECORD(d, scale_heads_launch, a);
}

void cuda_clip(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
               const float *low, const float *high)
{
    struct clip_args a = {y, x, low, high, (uint64_t)rows * n, n, 0};
    if (rows)
        RECORD(d, clip_launch, a);
}

void cuda_gather_out(struct device *d, float *y, const float *x, uint32_t n)
{
    struct gather_args a = {y, x, d->b.out_rows, d->batch->n_out, n};
    if (a.rows)
        RECORD(d, gather_launch, a);
}

void cuda_logit_scale(struct device *d, float *x, uint32_t rows, uint32_t n, float scale, float cap)
{
    struct scale_args a = {x, (uint64_t)rows * n, scale, cap};
    if (a.n)
        RECORD(d, scale_launch, a);
}

/* ---------------------------------------------------------------- linear */

/* So few tiles that their slices must run in parallel to use the whole device. */
static bool slices_apart(const struct device *d, uint32_t rows, const struct stored *w)
{
    uint32_t tile = rows <= 32 ? 32 : 128;
    uint64_t tiles = ((uint64_t)w->rows + 127) / 128 * ((rows + tile - 1) / tile);
    return tiles < (uint64_t)d->sms && (size_t)rows * w->rows <= (8 << 20);
}

/* For a rehearsal: the maximum over fewer rows, one tile for each multiprocessor. */
static size_t slices_bytes(const struct device *d, uint32_t rows, const struct stored *w)
{
    const size_t n = (size_t)rows * w->rows, most = (size_t)d->sms * 128 * 128;
    return SLICES * sizeof(float) * (d->rehearsal && n > most ? most : n);
}

void cuda_narrow(struct device *d, struct linear_args *a, enum narrow_order order)
{
    struct narrow_args x = {
        .x = a->x, .rows = a->rows, .n = a->w.cols, .dtype = a->w.dtype, .order = order};
    x.pitch = k_padded(a->w.cols, a->w.quant);
    /* in turns: the product that makes these rows may still read its own */
    d->narrow_turn ^= 1;
    a->narrow = x.y = cuda_work(d, d->narrow_turn ? WORK_NARROW : WORK_NARROW_OTHER,
                                (size_t)x.rows * x.pitch * sizeof(*x.y));
    if (x.y && !fuse_narrow(d, &x))
        RECORD(d, narrow_launch, x);
    a->x = NULL; /* the product does not read it */
}

void cuda_quantise(struct device *d, struct linear_args *a, uint32_t rows, enum narrow_order order)
{
    struct quantise_args x = {.x = a->x, .rows = rows, .n = a->w.cols, .order = order};
    x.pitch = k_padded(a->w.cols, a->w.quant);
    a->narrow = x.y = cuda_work(d, WORK_NARROW, (size_t)rows * (x.pitch + sizeof(*x.scale)));
    if (!x.y)
        return;
    a->x_scale = x.scale = (float *)(x.y + (size_t)rows * x.pitch);
    RECORD(d, quantise_launch, x);
}

static void linear_tile(struct device *d, struct linear_args *a)
{
    if (!a->narrow)
        cuda_narrow(d, a, a->w.quant == PACKED_8 ? NARROW_HALVES : NARROW_PLAIN);
    if (slices_apart(d, a->rows, &a->w) || d->rehearsal)
        a->part = cuda_work(d, WORK_SLICES, slices_bytes(d, a->rows, &a->w));
    if (!a->narrow)
        return;
    RECORD(d, linear_tile_launch, *a);
    if (a->part)
        RECORD(d, linear_sum_launch, *a);
}

/* Few rows that have no room in shared memory would be read from global memory again and again. */
static bool few_rows(struct device *d, struct linear_args *a)
{
    const bool must = a->table || !wgmma_takes(d, a) || a->w.quant == QUANT_W8A8;
    return (a->table || a->rows <= STREAM_ROWS) && stream_linear(d, a, must);
}

/* In fp32: more rows of more outputs are better off with larger tiles. */
enum { CHAIN_ROWS = 16, CHAIN_OUTS = 512 };

static bool chain_takes(const struct device *d, const struct linear_args *a)
{
    return d->features & CUDA_CHAIN && a->w.dtype == DT_F32 && a->w.quant == QUANT_NONE &&
           !a->table && a->w.cols % K_ALIGN == 0 &&
           (a->rows <= CHAIN_ROWS || a->w.rows <= CHAIN_OUTS);
}

/* The choice of the kernel does not change a product's bits: they depend only on CUDA_TENSOR and
 * on the weight (with CUDA_WGMMA_ANY also on the number of rows). */
void cuda_product(struct device *d, struct linear_args *a, uint32_t x_rows)
{
    if (a->w.quant == QUANT_W8A8) {
        const bool wide = a->rows > STREAM_ROWS && wgmma_takes(d, a);
        cuda_quantise(d, a, x_rows, wide ? NARROW_WGMMA : NARROW_PLAIN);
        if (!a->narrow)
            return;
    }
    if (chain_takes(d, a))
        RECORD(d, linear_chain_launch, *a);
    else if (a->w.dtype == DT_F32 || !(d->features & CUDA_TENSOR)) /* quantised ones never are */
        RECORD(d, linear_any_launch, *a);
    else if (few_rows(d, a))
        return;
    else if (wgmma_takes(d, a))
        wgmma_linear(d, a);
    else
        linear_tile(d, a);
}

void cuda_linear(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                 const float *bias)
{
    struct linear_args a = {.y = y, .x = x, .w = w->m, .bias = bias, .rows = rows};
    if (rows)
        cuda_product(d, &a, rows);
}

/* ---------------------------------------------------------------- attention */

void cuda_rope_kv(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                  const struct rope_kv *p)
{
    struct rope_args a = {.qkv = qkv,
                          .kv = kv_view(kv, layer),
                          .rope = p->rot_dim ? p->rope : NULL,
                          .q_norm = p->q_norm,
                          .k_norm = p->k_norm,
                          .v_norm = p->v_norm,
                          .q_norm_bias = p->q_norm_bias,
                          .k_norm_bias = p->k_norm_bias,
                          .q_scale = p->q_scale,
                          .clip = p->clip,
                          .slots = kv_slots_of(d, kv),
                          .tokens = d->batch->n_tokens,
                          .n_heads = p->n_heads,
                          .n_kv_heads = p->n_kv_heads,
                          .head_dim = p->head_dim,
                          .v_dim = kv->places[layer].v_dim,
                          .rot_dim = p->rot_dim,
                          .interleaved = p->interleaved,
                          .squares = p->squares,
                          .q_all = p->q_all,
                          .k_all = p->k_all,
                          .eps = p->norm_eps,
                          .norm_layer = p->norm_kind == NORM_LAYER,
                          .norm_by_head = p->norm_by_head,
                          .norm_last = p->norm_last};
    if (!fuse_rope(d, &a))
        RECORD(d, rope_launch, a);
}

void cuda_latent_kv(struct device *d, float *q, const float *kv, struct kv_cache *cache,
                    uint32_t layer, const struct latent_kv *p)
{
    struct latent_args a = {.q = q,
                            .kv_rows = kv,
                            .latent = p->latent,
                            .turned = p->turned,
                            .rope = p->rope,
                            .norm = p->norm,
                            .turn_norm = p->turn_norm,
                            .q_scale = p->q_scale,
                            .slots = kv_slots_of(d, cache),
                            .kv = kv_view(cache, layer),
                            .tokens = d->batch->n_tokens,
                            .n_heads = p->n_heads,
                            .rank = p->rank,
                            .rot_dim = p->rot_dim,
                            .interleaved = p->interleaved,
                            .eps = p->eps};
    RECORD(d, latent_launch, a);
}

static void attention_mma(struct device *d, struct attn_args *a)
{
    const struct batch_record *b = &d->b;
    batch_tiles(d, a->n_heads / a->n_kv_heads, a->n_kv_heads, a->head_dim);
    if (d->rehearsal) {
        cuda_work(d, WORK_ATTN,
                  batch_split_bytes(d, a->n_heads / a->n_kv_heads, a->n_kv_heads, a->head_dim));
        return;
    }
    if (b->n_split) {
        a->tiles = b->tiles, a->n_tiles = b->n_split;
        a->rows = b->split_rows, a->segments = b->segments;
        a->walkers = batch_walkers(d, a->n_kv_heads);
        /* an encoder's step writes keys at any position */
        a->ahead = d->decode && !a->both && !a->mutual && d->features & CUDA_KV_AHEAD;
        size_t rows = (size_t)a->n_tiles * a->n_kv_heads * a->segments * a->rows;
        a->part_o = cuda_work(d, WORK_ATTN, rows * (a->head_dim + 2) * sizeof(float));
        if (!a->part_o)
            return;
        a->part_ml = a->part_o + rows * a->head_dim;
        fuse_merge(d, a);
        RECORD(d, attn_split_launch, *a);
        if (!a->tickets)
            RECORD(d, attn_merge_launch, *a);
    }
    if (b->n_shared) {
        a->tiles = b->tiles + b->n_split, a->n_tiles = b->n_shared;
        a->part_o = a->part_ml = NULL;
        a->tickets = NULL;
        a->rows = a->segments = a->walkers = a->ahead = 0;
        if (attn_wgmma_takes(d, a))
            RECORD(d, attn_wgmma_launch, *a);
        else
            RECORD(d, attn_shared_launch, *a);
    }
}

/* Queries rotated as the keys of a cache in 4 bits are. False: there is no memory. */
static bool rotate_queries(struct device *d, struct attn_args *a)
{
    struct hadamard_args h = {.x = a->q,
                              .tokens = a->tokens,
                              .heads = a->n_heads,
                              .dim = a->head_dim,
                              .size = hadamard_size(a->head_dim),
                              .stride = a->q_stride};
    a->q_stride = a->n_heads * a->head_dim;
    a->q = h.y = cuda_work(d, WORK_ROTATED, (size_t)a->tokens * a->q_stride * sizeof(float));
    if (h.y)
        RECORD(d, hadamard_launch, h);
    return h.y;
}

/* Rotates results of a cache in 4 bits back. A latent value was rotated as a part of its key. */
static void rotate_results(struct device *d, float *o, const struct attn_args *a, bool latent)
{
    const struct hadamard_args h = {.y = o,
                                    .x = o,
                                    .tokens = a->tokens,
                                    .heads = a->n_heads,
                                    .dim = a->v_dim,
                                    .size = hadamard_size(latent ? a->head_dim : a->v_dim),
                                    .stride = a->n_heads * a->v_dim};
    RECORD(d, hadamard_launch, h);
}

static void attend(struct device *d, struct attn_args *a, const struct attn *p, enum kv_dtype t)
{
    if (d->features & CUDA_TENSOR && !p->alibi_bf16 && !p->near && !p->apart &&
        !p->sinks_by_token && !p->top && !p->sums && a->v_dim == a->head_dim &&
        attn_mma_has(p->head_dim, t) && batch_group(d, p->n_heads / p->n_kv_heads))
        attention_mma(d, a);
    else
        RECORD(d, attn_any_launch, *a);
}

/* As with linear(): the bits depend only on CUDA_TENSOR and on the shape of the cache. */
void cuda_attention(struct device *d, float *o, const float *q, uint32_t q_stride,
                    const struct kv_cache *kv, uint32_t layer, const struct attn *p)
{
    struct attn_args a = {.o = o,
                          .q = q,
                          .kv = kv_view(kv, layer),
                          .spans = d->b.spans,
                          .tables = kv->desc.windows ? d->b.window_tables : d->b.tables,
                          .span_of = d->b.span_of,
                          .alibi = p->alibi,
                          .near = p->near,
                          .reach = p->reach,
                          .apart = p->apart,
                          .at = p->at,
                          .buckets = p->buckets,
                          .apart_bias = p->apart_bias,
                          .kinds = p->kinds,
                          .sinks = p->sinks,
                          .sinks_by_token = p->sinks_by_token,
                          .q_stride = q_stride,
                          .tokens = d->batch->n_tokens,
                          .n_heads = p->n_heads,
                          .n_kv_heads = p->n_kv_heads,
                          .head_dim = p->head_dim,
                          .v_dim = kv->places[layer].v_dim,
                          .chunk = p->chunk,
                          .alibi_bf16 = p->alibi_bf16,
                          .window = p->window,
                          .both = p->both,
                          .beyond = p->ahead,
                          .sums = p->sums,
                          .mutual = p->mutual ? d->b.mutual : NULL,
                          .mutual_alone = p->mutual == MUTUAL_ALONE,
                          .mutual_ahead = p->mutual == MUTUAL_AHEAD,
                          .scale = p->scale,
                          .softcap = p->softcap,
                          .top = p->top,
                          .n_top = p->n_top,
                          .top_block = p->top_block,
                          .top_tail = p->top_tail,
                          .entries = p->entries};
    const bool rotated = kv->desc.dtype == KV_I4;
    if (p->entries) {
        a.entry_kv = kv_entry_view(kv, layer, p->entries);
        RECORD(d, attn_entries_launch, a);
        return;
    }
    if (rotated && !rotate_queries(d, &a))
        return;
    attend(d, &a, p, kv->desc.dtype);
    if (rotated)
        rotate_results(d, o, &a, kv->places[layer].latent);
}
