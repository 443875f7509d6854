/* attention.c - softmax(q K^T) V over the paged cache.
 *
 * The query heads that share a K/V head are rows of one small product: row r of a span is query
 * head r % group of token r / group. A unit of work takes a tile of such rows, which fills the
 * registers, and walks the keys in splits that lie at multiples of SPLIT positions. Within a split:
 * scores of all rows (K as panels of keys), softmax against the split's own maximum, weighted sum
 * (V as panels of dimensions). Splits are merged in ascending order. A row's operations depend on
 * its position alone: keys it may not see enter as weights of exactly 0, splits it sees nothing of
 * are passed over.
 *
 * Many tiles (prefill, batches): a unit walks all splits of its tile. Few tiles (one long sequence,
 * more cores than heads): a unit is one split; a second pass merges. The bits are the same.
 * Splitting for decode: Flash-Decoding, Dao et al. 2023; the merge: Milakov, Gimelshein 2018. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/mathf.h"
#include <stdatomic.h>
#include <string.h>

enum { SCORE_LD = SPLIT + LANES }; /* rows of scores must not all fall into one set of the cache */

enum { FETCH_BLOCKS = 2 }; /* how far ahead a decode step fetches */

/* Softmax sums so far, one entry a row: maximum, sum of exp, weighted values. */
struct partial {
    float max[TILE_ROWS], sum[TILE_ROWS];
    float *o[TILE_ROWS];
};

/* What one thread works with: lives in its scratch. */
struct workspace {
    _Alignas(64) float q[MAX_HEAD_DIM * TILE_ROWS];
    _Alignas(64) float s[TILE_ROWS * SCORE_LD]; /* [row][key] */
    _Alignas(64) float p[SPLIT * TILE_ROWS];    /* [key][row] */
    _Alignas(64) float o[TILE_ROWS * MAX_HEAD_DIM];
    struct partial split;
};
_Static_assert(sizeof(struct workspace) <= THREAD_SCRATCH, "attention needs more scratch");

struct attn_job {
    struct device *d;
    float *o;
    const float *q;
    uint32_t q_stride, layer, group, n_units;
    const struct kv_cache *kv;
    const struct attn *p;
    /* few tiles: [unit][max_splits] partial results of TILE_ROWS * (2 + head_dim) floats */
    float *partials;
    uint32_t max_splits;
    atomic_uint next;
};

/* Rows [first, first + n) of a span for one K/V head, and the keys that any of them sees. */
struct rows {
    const struct span *span;
    uint32_t head, first, n;
    uint32_t lo, hi;
};

static uint32_t row_pos(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->span->kv_len - r->span->n + (r->first + row) / j->group;
}

/* First position that the token at `pos` sees. */
static uint32_t first_key(const struct attn *p, uint32_t pos)
{
    return p->window && pos + 1 > p->window ? pos + 1 - p->window : 0;
}

static uint32_t row_head(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->head * j->group + (r->first + row) % j->group;
}

static uint32_t row_token(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->span->first + (r->first + row) / j->group;
}

static float *out_row(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    size_t head = (size_t)row_token(j, r, row) * j->p->n_heads + row_head(j, r, row);
    return j->o + head * j->p->head_dim;
}

static uint32_t n_tiles(const struct attn_job *j, const struct span *s)
{
    return (uint32_t)(((uint64_t)s->n * j->group + j->d->kern.mr - 1) / j->d->kern.mr);
}

/* Unit u: spans, then heads, then tiles. */
static struct rows unit_rows(const struct attn_job *j, uint32_t u)
{
    const struct span *s = j->d->batch->spans;
    for (; u >= n_tiles(j, s) * j->p->n_kv_heads; s++)
        u -= n_tiles(j, s) * j->p->n_kv_heads;
    uint32_t tiles = n_tiles(j, s), tile = u % tiles;
    uint64_t all = (uint64_t)s->n * j->group;
    struct rows r = {.span = s, .head = u / tiles, .first = (uint32_t)(all * tile / tiles)};
    r.n = (uint32_t)(all * (tile + 1) / tiles) - r.first;
    r.lo = first_key(j->p, row_pos(j, &r, 0));
    r.hi = row_pos(j, &r, r.n - 1) + 1;
    return r;
}

/* ---------------------------------------------------------------- one split */

static void run_tile(const struct attn_job *j, const struct tile *t)
{
    const struct kernels *k = &j->d->kern;
    enum dtype type = j->kv->desc.dtype;
    (type == DT_F32 ? k->tile_f32 : type == DT_F16 ? k->tile_f16 : k->tile_bf16)(t);
}

static void pack_q(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const float *src[TILE_ROWS];
    for (uint32_t i = 0; i < r->n; i++)
        src[i] = j->q + (size_t)row_token(j, r, i) * j->q_stride +
                 (size_t)row_head(j, r, i) * j->p->head_dim;
    j->d->kern.pack(ws->q, src, r->n, j->p->head_dim, j->p->scale);
}

/* Keys [begin, end) of the split at `base`, block by block; `v` says which product. */
static void walk_blocks(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                        uint32_t base, uint32_t begin, uint32_t end, bool v)
{
    const struct kv_cache *kv = j->kv;
    uint32_t size = kv->desc.block_size, stride = tile_stride(r->n);
    size_t lane_bytes = LANES * dtype_size(kv->desc.dtype);
    bool cold = r->span->n * j->group <= j->d->kern.mr; /* no other tile has just read the keys */
    for (uint32_t n, key = begin; key < end; key += n) {
        uint32_t at = key % size; /* a multiple of 16, or 0 */
        n = end - key < size - at ? end - key : size - at;
        const char *head = kv_head(kv, j->layer, r->span->blocks[key / size], v, r->head);
        struct tile t = {.rows = r->n};
        if (cold && key + FETCH_BLOCKS * size < r->hi) { /* the same place of a later block */
            uint32_t later = r->span->blocks[key / size + FETCH_BLOCKS];
            t.ahead = UINT32_MAX, t.next = kv_head(kv, j->layer, later, v, r->head) - head;
        }
        if (v) {
            t.y = ws->o, t.ldy = kv->panel_dim, t.add = key > begin;
            t.x = ws->p + (size_t)(key - base) * stride, t.k = n, t.n = j->p->head_dim;
            t.w = head + at * lane_bytes, t.w_bytes = kv->panel_pos * lane_bytes;
        } else {
            t.y = ws->s + (key - base), t.ldy = SCORE_LD;
            t.x = ws->q, t.k = j->p->head_dim, t.n = n;
            t.w_bytes = kv->panel_dim * lane_bytes, t.w = head + at / LANES * t.w_bytes;
        }
        run_tile(j, &t);
    }
}

/* Scores of one row to weights. The row covers keys base .. base + n - 1, n a multiple of 16. */
static void weigh_row(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                      uint32_t row, uint32_t base, uint32_t from, uint32_t n)
{
    float *s = ws->s + (size_t)row * SCORE_LD;
    const struct kernels *k = &j->d->kern;
    uint32_t pos = row_pos(j, r, row), lo = first_key(j->p, pos), hi = pos + 1;
    lo = lo > base ? lo - base : 0; /* visible: [lo, hi) of this row */
    hi = hi > base ? (hi - base < n ? hi - base : n) : 0;
    if (lo >= hi) {
        ws->split.max[row] = -INFINITY, ws->split.sum[row] = 0.0f;
        memset(s, 0, n * sizeof(*s));
        return;
    }
    if (j->p->softcap > 0.0f)
        k->soft_cap(s + lo, hi - lo, 1.0f, j->p->softcap);
    for (uint32_t i = lo; j->p->alibi && i < hi; i++) {
        float distance = (float)(int32_t)(base + i - pos);
        s[i] = fmaf(j->p->alibi[row_head(j, r, row)], distance, s[i]);
    }
    for (uint32_t i = from; i < lo; i++)
        s[i] = -INFINITY;
    for (uint32_t i = hi; i < n; i++)
        s[i] = -INFINITY;
    ws->split.max[row] = k->row_max(s + from, n - from);
    ws->split.sum[row] = k->exp_sum(s + from, n - from, ws->split.max[row]);
}

static void attend_split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                         uint32_t split)
{
    uint32_t base = split * SPLIT, end = r->hi - base < SPLIT ? r->hi : base + SPLIT;
    uint32_t align = j->kv->desc.block_size < LANES ? j->kv->desc.block_size : LANES;
    uint32_t begin = r->lo > base ? r->lo & ~(align - 1) : base;
    uint32_t from = (begin - base) & ~(uint32_t)(LANES - 1);
    uint32_t n = (end - base + LANES - 1) & ~(uint32_t)(LANES - 1);
    const float *src[TILE_ROWS];
    walk_blocks(j, r, ws, base, begin, end, false);
    for (uint32_t i = 0; i < r->n; i++) {
        weigh_row(j, r, ws, i, base, from, n);
        src[i] = ws->s + (size_t)i * SCORE_LD + (begin - base);
        ws->split.o[i] = ws->o + (size_t)i * j->kv->panel_dim;
    }
    float *p = ws->p + (size_t)(begin - base) * tile_stride(r->n);
    j->d->kern.pack(p, src, r->n, end - begin, 1.0f);
    walk_blocks(j, r, ws, base, begin, end, true);
}

/* ---------------------------------------------------------------- several splits */

static void merge_row(const struct attn_job *j, struct partial *to, const struct partial *from,
                      uint32_t row)
{
    if (from->max[row] == -INFINITY)
        return;
    if (to->max[row] == -INFINITY) {
        to->max[row] = from->max[row], to->sum[row] = from->sum[row];
        memcpy(to->o[row], from->o[row], j->p->head_dim * sizeof(float));
        return;
    }
    float max = to->max[row] > from->max[row] ? to->max[row] : from->max[row];
    float a = math_exp(to->max[row] - max), b = math_exp(from->max[row] - max);
    j->d->kern.merge(to->o[row], from->o[row], a, b, j->p->head_dim);
    to->sum[row] = fmaf(from->sum[row], b, to->sum[row] * a);
    to->max[row] = max;
}

/* The output rows themselves hold the sums until finish(). */
static struct partial partial_begin(const struct attn_job *j, const struct rows *r)
{
    struct partial to;
    for (uint32_t i = 0; i < r->n; i++) {
        to.max[i] = -INFINITY, to.sum[i] = 0.0f;
        to.o[i] = out_row(j, r, i);
    }
    return to;
}

static void partial_finish(const struct attn_job *j, const struct rows *r, const struct partial *p)
{
    for (uint32_t i = 0; i < r->n; i++)
        j->d->kern.soft_cap(p->o[i], j->p->head_dim, 1.0f / p->sum[i], 0.0f);
}

static void attend_whole(const struct attn_job *j, struct workspace *ws, uint32_t unit)
{
    struct rows r = unit_rows(j, unit);
    struct partial to = partial_begin(j, &r);
    pack_q(j, &r, ws);
    for (uint32_t split = r.lo / SPLIT; split * SPLIT < r.hi; split++) {
        attend_split(j, &r, ws, split);
        for (uint32_t i = 0; i < r.n; i++)
            merge_row(j, &to, &ws->split, i);
    }
    partial_finish(j, &r, &to);
}

/* Where the partial result of one split waits: max, sum and o of each row. */
static float *partial_at(const struct attn_job *j, uint32_t unit, uint32_t split)
{
    size_t size = (size_t)TILE_ROWS * (2 + j->p->head_dim);
    return j->partials + ((size_t)unit * j->max_splits + split) * size;
}

static void attend_part(const struct attn_job *j, struct workspace *ws, uint32_t item)
{
    uint32_t unit = item / j->max_splits, split = item % j->max_splits, dim = j->p->head_dim;
    struct rows r = unit_rows(j, unit);
    if (split < r.lo / SPLIT || split * SPLIT >= r.hi)
        return;
    float *to = partial_at(j, unit, split);
    pack_q(j, &r, ws);
    attend_split(j, &r, ws, split);
    memcpy(to, ws->split.max, r.n * sizeof(float));
    memcpy(to + TILE_ROWS, ws->split.sum, r.n * sizeof(float));
    for (uint32_t i = 0; i < r.n; i++)
        memcpy(to + (ptrdiff_t)2 * TILE_ROWS + (size_t)i * dim, ws->split.o[i],
               dim * sizeof(float));
}

static void merge_unit(const struct attn_job *j, uint32_t unit)
{
    struct rows r = unit_rows(j, unit);
    struct partial to = partial_begin(j, &r), from;
    for (uint32_t split = r.lo / SPLIT; split * SPLIT < r.hi; split++) {
        float *p = partial_at(j, unit, split);
        memcpy(from.max, p, r.n * sizeof(float));
        memcpy(from.sum, p + TILE_ROWS, r.n * sizeof(float));
        for (uint32_t i = 0; i < r.n; i++) {
            from.o[i] = p + (ptrdiff_t)2 * TILE_ROWS + (size_t)i * j->p->head_dim;
            merge_row(j, &to, &from, i);
        }
    }
    partial_finish(j, &r, &to);
}

/* ---------------------------------------------------------------- the operation */

/* Units differ in cost (causality), so threads take the next one instead of a fixed share. */
static void take_units(void *arg, int thread, size_t begin, size_t end)
{
    struct attn_job *j = arg;
    struct workspace *ws = (struct workspace *)cpu_thread_scratch(j->d, thread);
    uint32_t n = j->partials ? j->n_units * j->max_splits : j->n_units;
    (void)begin, (void)end;
    for (uint32_t u; (u = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < n;)
        if (j->partials)
            attend_part(j, ws, u);
        else
            attend_whole(j, ws, u);
}

static void merge_units(void *arg, int thread, size_t begin, size_t end)
{
    (void)thread;
    for (size_t u = begin; u < end; u++)
        merge_unit(arg, (uint32_t)u);
}

void cpu_attention(struct device *d, float *o, const float *q, uint32_t q_stride,
                   const struct kv_cache *kv, uint32_t layer, const struct attn *p)
{
    struct attn_job j = {.d = d, .o = o, .q = q, .q_stride = q_stride, .kv = kv, .layer = layer};
    j.p = p;
    j.group = p->n_heads / p->n_kv_heads;
    uint32_t longest = 0, threads = (uint32_t)pool_threads(d->pool);
    for (uint32_t s = 0; s < d->batch->n_spans; s++) {
        const struct span *span = &d->batch->spans[s];
        j.n_units += n_tiles(&j, span) * p->n_kv_heads;
        longest = span->kv_len > longest ? span->kv_len : longest;
    }
    if (threads > 1 && j.n_units < 4 * threads && longest > SPLIT) {
        j.max_splits = (longest + SPLIT - 1) / SPLIT;
        size_t size = (size_t)TILE_ROWS * (2 + p->head_dim) * sizeof(float);
        j.partials = cpu_scratch(d, SCRATCH_ATTN, (size_t)j.n_units * j.max_splits * size);
        if (!j.partials)
            return;
    }
    pool_run(d->pool, take_units, &j, threads, 1);
    if (j.partials)
        pool_run(d->pool, merge_units, &j, j.n_units, 1);
}
