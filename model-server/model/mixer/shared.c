/* shared.c - Mamba-2 or Mamba whose input is the stream plus the result of a block: attention to
 * the stream and the embedding side by side, then an MLP, without residuals, and a matrix (Zamba,
 * arXiv 2405.16712; Zamba2, 2411.15242). Layers take turns with a few blocks, whose weights they
 * share. Low-rank updates of q, k, v, gate and up, and all else, are a layer's own. */
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/mixer/attention.h"
#include "model-server/model/mixer/recurrent.h"
#include <stdlib.h>

struct shared {
    bool owns;                             /* the block: else another layer frees it */
    void *attention, *mlp;                 /* the block */
    struct norm block_norm, mlp_norm;      /* [2 hidden], [hidden]: of the block */
    struct low_rank qkv_update, up_update; /* or NULL matrices */
    struct weight *out;                    /* [hidden, hidden] */
    void *mamba;
};

static const struct sublayer_ops *recurrence(const struct decoder *d)
{
    return d->spec.recur.step_rank ? &mixer_mamba : &mixer_mamba2;
}

/* The three parts reuse the memory of each other, after the areas of forward(). */
static uint32_t width(const struct decoder *d, uint32_t layer)
{
    const uint32_t of[] = {mixer_attention.width(d, layer), ffn_dense.width(d, layer),
                           recurrence(d)->width(d, layer)};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        most = of[i] > most ? of[i] : most;
    return 4 * d->spec.hidden + most;
}

/* ---------------------------------------------------------------- load */

/* The block from an earlier layer that was loaded, if there is one. */
static bool borrow(const struct loader *l, struct shared *y, uint32_t layer)
{
    const struct decoder *d = l->d;
    for (uint32_t i = 0; i < layer; i++) {
        const struct shared *of = d->layers[i].mixer.self;
        if (d->spec.layers[i].mixer != MIXER_SHARED || !of ||
            d->spec.layers[i].block_of != d->spec.layers[layer].block_of)
            continue;
        y->attention = of->attention, y->mlp = of->mlp;
        y->block_norm = of->block_norm, y->mlp_norm = of->mlp_norm;
        return true;
    }
    return false;
}

static void load_block(struct loader *l, struct shared *y, uint32_t at)
{
    const struct decoder_spec *s = &l->d->spec;
    y->owns = true;
    y->block_norm = (struct norm){
        .kind = s->norm.kind,
        .eps = s->norm.eps,
        .w = loader_weight_vector(l, W_BLOCK_NORM, (int)at, spec_attn_in(s)),
    };
    y->attention = mixer_attention.load(l, at);
    y->mlp_norm = loader_norm(l, W_MLP_NORM, (int)at);
    y->mlp = ffn_dense.load(l, at);
}

/* Elements of a part, from row `from` of `rows` on, to columns from `col` on of out [..][cols]. */
static void place(struct loader *l, struct mat_part p, struct slice of, float *out, uint32_t col,
                  uint32_t cols)
{
    loader_numbers(l, &p);
    for (uint32_t r = 0; p.data && !l->failed && r < of.n; r++)
        for (int64_t c = 0; c < p.cols; c++)
            out[(size_t)r * cols + col + (uint32_t)c] =
                number_at(p.data, p.dtype, (of.first + r) * p.row_stride + c * p.col_stride);
}

/* One pair for the whole product: q, k and v each have columns of their own in `up`, and the
 * others of their rows are 0. */
static void load_qkv_update(struct loader *l, struct shared *y, uint32_t layer)
{
    static const enum role downs[] = {W_TURN_Q_DOWN, W_TURN_K_DOWN, W_TURN_V_DOWN};
    static const enum role ups[] = {W_TURN_Q_UP, W_TURN_K_UP, W_TURN_V_UP};
    const struct decoder_spec *s = &l->d->spec;
    const struct layer_spec *ls = &s->layers[layer];
    const struct slice q = scaled(l->d->split.heads, s->head_dim, 0),
                       kv = scaled(split_kv_heads(&l->d->split, s, layer), s->head_dim, 0);
    const struct slice of[] = {q, kv, kv};
    const uint32_t rank = s->shared.rank, cols = 3 * rank, rows = q.n + 2 * kv.n;
    float *up = calloc((size_t)rows * cols + 1, sizeof(*up));
    struct mat_part down[3];
    if (!up) {
        loader_nomem(l);
        return;
    }
    for (int i = 0; i < 3; i++)
        down[i] = loader_part(l, downs[i], (int)ls->block_of, (int)ls->turn, false, rank,
                              spec_attn_in(s));
    y->qkv_update.rank = cols;
    y->qkv_update.down = loader_pack(l, down, 3, l->d->dtype, QUANT_NONE);
    for (uint32_t i = 0, row = 0; i < 3; row += of[i].n, i++) {
        const int64_t all = (int64_t)(i ? spec_kv_heads(s, layer) : s->n_heads) * s->head_dim;
        place(l, loader_part(l, ups[i], (int)ls->block_of, (int)ls->turn, false, all, rank), of[i],
              up + (size_t)row * cols, i * rank, cols);
        loader_drop(l);
    }
    struct mat_part p = {.data = up,
                         .dtype = DT_F32,
                         .rows = rows,
                         .cols = cols,
                         .row_stride = cols,
                         .col_stride = 1};
    y->qkv_update.up = l->failed ? NULL : loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    free(up);
}

static void load_up_update(struct loader *l, struct shared *y, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const int block = (int)s->layers[layer].block_of, turn = (int)s->layers[layer].turn;
    const struct slice f = split_ffn(&l->d->split, s, layer);
    const uint32_t rank = s->shared.rank, ffn = spec_ffn(s, layer);
    struct mat_part parts[2];
    parts[0] = loader_part(l, W_TURN_MLP_DOWN, block, turn, false, rank, s->hidden);
    y->up_update.rank = rank;
    y->up_update.down = loader_pack(l, parts, 1, l->d->dtype, QUANT_NONE);
    parts[0] = loader_part(l, W_TURN_MLP_UP, block, turn, false, 2 * (int64_t)ffn, rank);
    parts[1] = loader_rows(parts[0], ffn + f.first, f.n);
    parts[0] = loader_rows(parts[0], f.first, f.n);
    y->up_update.up = loader_pack(l, parts, 2, l->d->dtype, QUANT_NONE);
}

static void *load(struct loader *l, uint32_t layer)
{
    const struct decoder_spec *s = &l->d->spec;
    struct shared *y = calloc(1, sizeof(*y));
    if (!y) {
        loader_nomem(l);
        return NULL;
    }
    if (!borrow(l, y, layer))
        load_block(l, y, s->layers[layer].block_of);
    if (s->shared.rank)
        load_up_update(l, y, layer);
    if (s->shared.qkv)
        load_qkv_update(l, y, layer);
    struct mat_part out =
        loader_part(l, W_BLOCK_OUT, (int)layer, NO_EXPERT, false, s->hidden, s->hidden);
    y->out = loader_pack(l, &out, 1, l->d->dtype, l->d->quant);
    y->mamba = recurrence(l->d)->load(l, layer);
    return y;
}

static void release(struct decoder *d, void *self)
{
    struct shared *y = self;
    if (y->owns) {
        layer_free_norm(d, &y->block_norm);
        layer_free_norm(d, &y->mlp_norm);
        if (y->attention)
            mixer_attention.free(d, y->attention);
        if (y->mlp)
            ffn_dense.free(d, y->mlp);
    }
    struct weight *own[] = {y->qkv_update.down, y->qkv_update.up, y->up_update.down,
                            y->up_update.up, y->out};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        layer_free_weight(d, own[i]);
    if (y->mamba)
        recurrence(d)->free(d, y->mamba);
    free(y);
}

/* ---------------------------------------------------------------- forward */

static const struct low_rank *given(const struct low_rank *r) { return r->rank ? r : NULL; }

/* mlp = the block's MLP of the norm of its attention, summed over ranks; `joined` and `mid` are
 * scratch rows of 2 hidden and hidden. */
static int run_block(struct decoder *d, const struct shared *y, const struct sub_step *s,
                     float *joined, float *mid, float *mlp, struct err *e)
{
    const uint32_t hidden = d->spec.hidden, t = s->tokens;
    struct sub_step a = *s, m = *s;
    d->ops->beside(d->dev, joined, s->stream, s->embedded, t, hidden);
    d->ops->norm(d->dev, joined, joined, t, spec_attn_in(&d->spec), &y->block_norm);
    a.in = joined, a.out = mid, a.update = given(&y->qkv_update);
    struct sub_step stored = a;
    if (mixer_attention.store(d, y->attention, &stored, e) ||
        mixer_attention.forward(d, y->attention, &a, e) || layer_sum(d, mid, (size_t)t * hidden, e))
        return -1;
    d->ops->norm(d->dev, mid, mid, t, hidden, &y->mlp_norm);
    m.in = mid, m.out = mlp, m.update = given(&y->up_update);
    return ffn_dense.forward(d, y->mlp, &m, e) || layer_sum(d, mlp, (size_t)t * hidden, e) ? -1 : 0;
}

/* The decoder's norm of the stream is not used: that of the sum has its weights. */
static int forward(struct decoder *d, const void *self, struct sub_step *s, struct err *e)
{
    const struct shared *y = self;
    const uint32_t hidden = d->spec.hidden, t = s->tokens;
    float *joined = work_take(&s->work, s->total, 2 * (size_t)hidden);
    float *mid = work_take(&s->work, s->total, hidden);
    float *mlp = work_take(&s->work, s->total, hidden);
    if (run_block(d, y, s, joined, mid, mlp, e))
        return -1;
    d->ops->linear(d->dev, mid, mlp, t, y->out, NULL);
    d->ops->beside(d->dev, joined, s->stream, NULL, t, hidden);
    d->ops->add_norm(d->dev, mlp, joined, mid, 1, t, hidden, &d->layers[s->layer].mixer_norm);
    struct sub_step mamba = *s;
    mamba.in = mlp;
    return recurrence(d)->forward(d, y->mamba, &mamba, e);
}

const struct sublayer_ops mixer_shared = {.name = "recurrence with a shared block",
                                          .width = width,
                                          .load = load,
                                          .free = release,
                                          .forward = forward,
                                          .kv = attention_keeps};
