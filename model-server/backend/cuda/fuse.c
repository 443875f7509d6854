/* fuse.c - fuses operations before and after a product of few rows into it, and the rounding of
 * rows to 16 bits into the operation that makes them.
 *
 * A launch costs a decode step one to three microseconds in which no weights are read. In a small
 * model this is longer than reading the weights. linear_stream can include the neighbouring
 * operations, with the same bits. So an operation that is about to be recorded looks at the one
 * recorded last. If that is the product it follows (or the norm that it reads), the two are
 * fused. If another operation lies between, such as a sum over ranks or an adapter, they stay
 * separate. Clearing CUDA_FUSE turns it off. */
#include "model-server/backend/cuda/cuda.h"

/* With more rows than these a norm by itself, which also stores its rows in 16 bits, is faster than
 * one in every block of the product: a step of 4 rows of 8B took 6.7 ms with the norms in products,
 * 4.7 without. */
enum { NORM_ROWS = 2, NORM_BYTES = 36 << 10 };

/* The arguments of the last recorded operation, if it was recorded with `fn`. */
static void *last(const struct device *d, launch_fn *fn)
{
    const struct recorder *r = &d->rec;
    const struct command *c = r->n ? &r->commands[r->n - 1] : NULL;
    return c && c->fn == fn && d->features & CUDA_FUSE ? r->bytes + c->at : NULL;
}

/* The last recorded product of few rows, if it is `y` and nothing is fused to it yet. */
static struct stream_args *last_product(const struct device *d, const float *y)
{
    struct stream_args *s = last(d, linear_stream_launch);
    return s && s->l.y == y && !s->l.gate && !s->sum && !s->rope.qkv ? s : NULL;
}

void fuse_norm(struct device *d, struct stream_args *s)
{
    const struct norm_args *p = last(d, norm_launch);
    if (!p || p->y != s->l.x || p->x == p->y || p->x == s->l.y || p->r || p->rows != s->l.rows ||
        p->n != s->l.w.cols || s->l.rows > NORM_ROWS || stream_x_bytes(&s->l) > NORM_BYTES ||
        s->l.w.quant == QUANT_W8A8)
        return;
    s->norm = *p;
    d->rec.n--;
    d->rec.n_bytes = d->rec.commands[d->rec.n].at;
}

bool fuse_gate(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n, enum act act)
{
    struct stream_args *s = last_product(d, x);
    if (!s || s->l.w.rows != 2 * n || (!s->l.table && s->l.rows != rows) || s->norm.x == y)
        return false;
    s->l.y = y, s->l.gate = true, s->l.act = act;
    unread_over(d, y);
    return true;
}

/* The sum of experts' results that was recorded last, by itself or with their product, if it is `r`
 * and nothing is fused to it yet. */
static struct mix_args *last_mix(const struct device *d, const float *r)
{
    struct stream_args *s = last(d, linear_stream_launch);
    struct mix_args *m = s ? &s->mix : last(d, mix_launch);
    return m && m->y == r && !m->sum ? m : NULL;
}

bool fuse_sum(struct device *d, float *x, const float *r, float scale, uint32_t rows, uint32_t n)
{
    struct mix_args *m = last_mix(d, r);
    if (m && m->rows == rows && m->n == n) {
        m->sum = x, m->scale = scale;
        return true;
    }
    struct stream_args *s = last_product(d, r);
    if (!s || s->l.table || s->l.rows != rows || s->l.w.rows != n || s->l.x == x ||
        s->norm.x == x || s->norm.y == x)
        return false;
    s->sum = x, s->scale = scale;
    return true;
}

bool fuse_rope(struct device *d, const struct rope_args *p)
{
    struct stream_args *s = last_product(d, p->qkv);
    const uint32_t heads = p->n_heads + 2 * p->n_kv_heads;
    if (!(d->features & CUDA_HEADS) || !s || p->kv.dtype == KV_I4 || s->l.table ||
        s->l.rows != p->tokens || s->l.w.rows != heads * p->head_dim || p->v_dim != p->head_dim ||
        p->q_norm_bias || p->head_dim % STREAM_OUTS || heads > TICKETS)
        return false;
    s->rope = *p, s->tickets = d->tickets;
    return true;
}

/* One block merges as fast as many, as long as a thread has at most this many dependent loads. */
enum { MERGE_STEPS = 64, MERGE_THREADS = 128 };

void fuse_merge(struct device *d, struct attn_args *a)
{
    const uint32_t quads = a->rows * a->head_dim / 4;
    const uint32_t turns = (quads + MERGE_THREADS - 1) / MERGE_THREADS;
    if (d->features & CUDA_FUSE && (uint64_t)turns * a->segments <= MERGE_STEPS &&
        (uint64_t)a->n_tiles * a->n_kv_heads <= TICKETS)
        a->tickets = d->tickets;
}

/* ---------------------------------------------------------------- rows in 16 bits */

bool is_attention(launch_fn *fn)
{
    return fn == attn_split_launch || fn == attn_merge_launch || fn == attn_shared_launch ||
           fn == attn_wgmma_launch;
}

static void store_narrow(struct device *d, struct narrow_rows *to, const struct narrow_args *x)
{
    *to = (struct narrow_rows){x->y, x->pitch, x->dtype, x->order, false};
    unread_mark(d, x->x, (size_t)x->rows * x->n * sizeof(float), &to->alone);
}

/* The last recorded operations, if they are one attention with the result x: its tiles of few rows
 * and of many are different launches. */
static bool narrow_attention(struct device *d, const struct narrow_args *x)
{
    const struct recorder *r = &d->rec;
    uint32_t first = r->n;
    for (; first && is_attention(r->commands[first - 1].fn); first--) {
        const struct attn_args *a = (const void *)(r->bytes + r->commands[first - 1].at);
        if (a->o != x->x)
            break;
        if (a->narrow.to || a->tokens != x->rows || a->n_heads * a->head_dim != x->n)
            return false;
    }
    for (uint32_t i = first; i < r->n; i++) {
        struct attn_args *a = (void *)(r->bytes + r->commands[i].at);
        store_narrow(d, &a->narrow, x);
    }
    return first < r->n;
}

bool fuse_narrow(struct device *d, const struct narrow_args *x)
{
    struct norm_args *p = last(d, norm_launch);
    if (p && p->y == x->x && !p->plain && p->rows == x->rows && p->n == x->n && !p->narrow.to) {
        store_narrow(d, &p->narrow, x);
        return true;
    }
    if (!(d->features & CUDA_FUSE) || x->pitch != x->n)
        return false;
    struct linear_args *a = last(d, linear_wgmma_launch);
    const bool order = !a || x->order == NARROW_WGMMA;
    if (!a)
        a = last(d, linear_stream_launch); /* the arguments begin with it */
    if (a && order && !a->table && a->y == x->x && a->gate && a->rows == x->rows &&
        a->w.rows == 2 * x->n && a->w.dtype == x->dtype && a->w.quant != QUANT_W8A8 &&
        !a->gated.to) {
        store_narrow(d, &a->gated, x);
        return true;
    }
    return narrow_attention(d, x);
}
