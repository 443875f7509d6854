/* attention.c - softmax(q K^T) V over the paged cache.
 *
 * The query heads that share a K/V head are rows of one small product: row r of a span is query
 * head r % group of token r / group. A unit of work is a tile of such rows, which fills the
 * registers. It iterates over the keys in splits that begin at multiples of KV_SPLIT positions.
 * Within a split: scores of all rows, softmax against the split's own maximum, weighted sum of
 * the values. Splits are merged in ascending order, a sink last.
 *
 * A row's operations depend only on its position. It is never combined with a value that it does
 * not attend to, not even with a weight of 0 (0 * NaN is NaN). If the rows of a tile attend to
 * different keys, at the diagonal and at the ends of a window, the keys are processed one by one,
 * each with its rows. Stale data in a block, after the last token or from another sequence, is
 * read as a key at most, and its score is overwritten.
 *
 * Many tiles (prefill, batches): a unit processes all splits of its tile. Few tiles (one long
 * sequence, more cores than heads): a unit is one split; a second pass merges. The bits are the
 * same. Splitting for decode: Flash-Decoding, Dao et al. 2023; the merge: Milakov, Gimelshein
 * 2018. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/hadamard.h"
#include "model-server/backend/cpu/mathf.h"
#include <stdatomic.h>
#include <string.h>

enum { SPLIT_PAGES = KV_SPLIT / KV_PAGE };

/* Softmax sums so far, one entry per row: maximum, sum of exp, weighted values. */
struct attention_partial {
    float max[TILE_ROWS], sum[TILE_ROWS];
    float *o[TILE_ROWS];
};

/* Working memory of one thread, in its scratch memory. */
struct workspace {
    _Alignas(64) float q[MAX_HEAD_DIM * TILE_ROWS];
    _Alignas(64) float s[TILE_ROWS * KV_SCORES_LD]; /* scores, then weights: [row][key] */
    _Alignas(64) float o[TILE_ROWS * MAX_HEAD_DIM];
    const char *pages[2 * SPLIT_PAGES + KV_AHEAD]; /* in reading order */
    struct attention_partial split;
};
_Static_assert(sizeof(struct workspace) <= THREAD_SCRATCH, "attention needs more scratch");

struct attn_job {
    struct device *d;
    const struct span *spans;
    float *o;
    const float *q;
    uint32_t q_stride, layer, group, n_units;
    uint32_t v_dim; /* of a value in the cache; p->head_dim: of a key */
    const struct kv_cache *kv;
    const struct attn *p;
    const struct mutual *mutual; /* NULL: the layer does not use them */
    /* few tiles: [unit][max_splits] partial results of TILE_ROWS * (2 + v_dim) floats */
    float *partials;
    uint32_t max_splits;
    atomic_uint next;
};

/* First unit of the current span. A thread processes its units in ascending order. */
struct kv_cursor {
    const struct span *span;
    uint32_t first;
};

/* Rows [first, first + n) of a span for one K/V head, and the union of their keys. */
struct rows {
    const struct span *span;
    uint32_t head, first, n;
    uint32_t lo, hi;
};

static uint32_t row_pos(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    return r->span->kv_len - r->span->n + (r->first + row) / j->group;
}

/* First position to which the token at `pos` attends; with a window or chunks the last one with
 * keys. */
static uint32_t first_key(const struct attn *p, uint32_t pos)
{
    if (p->chunk)
        return pos - pos % p->chunk;
    return p->window && pos + 1 > p->window ? pos + 1 - p->window : 0;
}

static uint64_t last_pos(const struct attn *p, uint32_t key)
{
    if (p->chunk)
        return (uint64_t)key - key % p->chunk + p->chunk - 1;
    return p->window ? (uint64_t)key + p->window - 1 : UINT64_MAX;
}

/* One past the last position to which it attends, in a sequence of kv_len tokens. */
static uint32_t end_key(const struct attn *p, const struct span *s, uint32_t pos)
{
    if (!p->both)
        return pos + 1;
    return p->window && s->kv_len - pos > p->window ? pos + p->window : s->kv_len;
}

/* Positions to which a token of a span attends. Both ends are non-decreasing over tokens. */
struct seen {
    uint32_t lo, hi;
};
static struct seen token_sees(const struct attn_job *j, const struct span *s, uint32_t token)
{
    const uint32_t pos = s->kv_len - s->n + token;
    struct seen v = {first_key(j->p, pos), end_key(j->p, s, pos)};
    const struct mutual *m = j->mutual ? &j->mutual[s->first + token] : NULL;
    if (!m || m->begin == m->end)
        return v;
    if (j->p->mutual == MUTUAL_ALONE)
        return (struct seen){m->begin, m->end};
    if (j->p->mutual == MUTUAL_TOO && m->begin < v.lo)
        v.lo = m->begin;
    v.hi = m->end > v.hi ? m->end : v.hi;
    return v;
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
    return j->o + head * j->v_dim;
}

static uint32_t n_tiles(const struct attn_job *j, const struct span *s)
{
    return (uint32_t)(((uint64_t)s->n * j->group + j->d->kern.mr - 1) / j->d->kern.mr);
}

/* Unit u: spans, then heads, then tiles. */
static struct rows unit_rows(const struct attn_job *j, struct kv_cursor *c, uint32_t u)
{
    for (; u - c->first >= n_tiles(j, c->span) * j->p->n_kv_heads; c->span++)
        c->first += n_tiles(j, c->span) * j->p->n_kv_heads;
    uint32_t tiles = n_tiles(j, c->span), tile = (u - c->first) % tiles;
    uint64_t all = (uint64_t)c->span->n * j->group;
    struct rows r = {.span = c->span, .head = (u - c->first) / tiles};
    r.first = (uint32_t)(all * tile / tiles);
    r.n = (uint32_t)(all * (tile + 1) / tiles) - r.first;
    r.lo = token_sees(j, r.span, r.first / j->group).lo;
    r.hi = token_sees(j, r.span, (r.first + r.n - 1) / j->group).hi;
    return r;
}

/* ---------------------------------------------------------------- kernels of the cache's type */

void kv_score(const struct device *d, enum kv_dtype t, const struct kv_scores *s)
{
    static const size_t slot[KV_N] = {
        offsetof(struct kernels, scores_f32),  offsetof(struct kernels, scores_f16),
        offsetof(struct kernels, scores_bf16), offsetof(struct kernels, scores_i8),
        offsetof(struct kernels, scores_fp8),  offsetof(struct kernels, scores_i4)};
    scores_f32_fn *const *fn = (const void *)((const char *)&d->kern + slot[t]);
    (*fn)(s);
}

static void values(const struct attn_job *j, const struct kv_values *t)
{
    static const size_t slot[KV_N] = {
        offsetof(struct kernels, values_f32),  offsetof(struct kernels, values_f16),
        offsetof(struct kernels, values_bf16), offsetof(struct kernels, values_i8),
        offsetof(struct kernels, values_fp8),  offsetof(struct kernels, values_i4)};
    values_f32_fn *const *fn = (const void *)((const char *)&j->d->kern + slot[j->kv->desc.dtype]);
    (*fn)(t);
}

/* ---------------------------------------------------------------- one split */

void kv_pack_q(const struct device *d, enum kv_dtype t, float *to, const float *const *rows,
               uint32_t n, uint32_t dim, float scale)
{
    const uint32_t stride = tile_stride(n);
    d->kern.pack(to, rows, n, dim, scale);
    memset(to + (size_t)dim * stride, 0, (size_t)(kv_dims(dim) - dim) * stride * sizeof(float));
    if (t == KV_I4)
        hadamard(to, dim, stride);
}

static void pack_q(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const float *src[TILE_ROWS];
    for (uint32_t i = 0; i < r->n; i++)
        src[i] = j->q + (size_t)row_token(j, r, i) * j->q_stride +
                 (size_t)row_head(j, r, i) * j->p->head_dim;
    kv_pack_q(j->d, j->kv->desc.dtype, ws->q, src, r->n, j->p->head_dim, j->p->scale);
}

/* Keys of a split to which some row of the tile attends: [begin, end), `begin` at the start of a
 * page. */
struct range {
    uint32_t begin, end, pages;
};

static struct range split_range(const struct rows *r, uint32_t split)
{
    uint32_t base = split * KV_SPLIT, lo = r->lo & ~(uint32_t)(KV_PAGE - 1);
    struct range a = {.begin = lo > base ? lo : base};
    a.end = r->hi - base < KV_SPLIT ? r->hi : base + KV_SPLIT;
    a.pages = (a.end - a.begin + KV_PAGE - 1) / KV_PAGE;
    return a;
}

static void name_pages(const struct attn_job *j, const struct rows *r, bool v, uint32_t key,
                       const char **out, uint32_t n)
{
    const struct kv_cache *kv = j->kv;
    const struct kv_stream *stream = kv_stream(kv, j->layer, v, r->head);
    const uint32_t *blocks = kv_blocks_of(&kv->desc, r->span);
    for (uint32_t i = 0; i < n; i++)
        out[i] = kv_page(kv, stream, blocks, key / KV_PAGE + i);
}

/* Lists the split's keys, its values, and the first keys of the next split, if there are any. */
static void list_pages(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    uint32_t left = (r->hi - a->end + KV_PAGE - 1) / KV_PAGE, n = left < KV_AHEAD ? left : KV_AHEAD;
    const char **next = ws->pages + (size_t)2 * a->pages;
    name_pages(j, r, false, a->begin, ws->pages, a->pages);
    name_pages(j, r, true, a->begin, ws->pages + a->pages, a->pages);
    name_pages(j, r, false, a->end, next, n);
    for (; n < KV_AHEAD; n++) /* in the cache already: no cost */
        next[n] = next[-1];
}

/* Keys [lo, hi) of a row of scores that begins with key `begin`. */
static void add_near(const struct attn_job *j, float *s, uint32_t begin, uint32_t lo, uint32_t hi,
                     uint32_t pos, uint32_t head)
{
    const int64_t reach = j->p->reach;
    const float *of = j->p->near + (size_t)head * (size_t)(2 * reach + 1) + reach;
    for (uint32_t i = lo; i < hi; i++) {
        const int64_t far = (int64_t)begin + i - pos;
        s[i] += of[far < -reach ? -reach : far > reach ? reach : far];
    }
}

/* The same for disentangled attention: all keys are tokens of this step. */
static void add_apart(const struct attn_job *j, const struct rows *r, float *s,
                      const struct range *a, uint32_t lo, uint32_t hi, uint32_t row)
{
    const struct attn *p = j->p;
    const size_t head = row_head(j, r, row), each = (size_t)3 * p->n_heads * p->buckets;
    const int64_t reach = p->reach, pos = row_pos(j, r, row);
    const float *of_q = p->apart + row_token(j, r, row) * each + head * p->buckets;
    const float *of_k =
        p->apart + (r->span->first + (size_t)a->begin) * each + (p->n_heads + head) * p->buckets;
    for (uint32_t i = lo; i < hi; i++) {
        const int64_t far = pos - a->begin - i;
        const uint32_t at = p->at[(far < -reach ? -reach : far > reach ? reach : far) + reach];
        s[i] = fmaf(of_q[at] + of_k[i * each + at], p->scale, s[i]);
    }
}

/* Converts the scores of one row to weights, within its keys; returns its maximum and sum. */
static void weigh_row(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                      const struct range *a, uint32_t row)
{
    float *s = ws->s + (size_t)row * KV_SCORES_LD;
    const struct kernels *k = &j->d->kern;
    const struct seen seen = token_sees(j, r->span, (r->first + row) / j->group);
    uint32_t pos = row_pos(j, r, row), lo = seen.lo, hi = seen.hi;
    lo = lo > a->begin ? lo : a->begin;
    hi = hi < a->end ? hi : a->end;
    if (lo >= hi) {
        ws->split.max[row] = -INFINITY, ws->split.sum[row] = 0.0f;
        return;
    }
    lo -= a->begin, hi -= a->begin;
    if (j->p->softcap > 0.0f)
        k->soft_cap(s + lo, hi - lo, 1.0f, j->p->softcap);
    for (uint32_t i = lo; j->p->alibi && i < hi; i++) {
        const float slope = j->p->alibi[row_head(j, r, row)];
        if (j->p->alibi_bf16)
            s[i] = fmaf(f32_of_bf16(bf16_of_f32(slope * (float)(a->begin + i))), j->p->scale, s[i]);
        else
            s[i] = fmaf(slope, (float)(int32_t)(a->begin + i - pos), s[i]);
    }
    if (j->p->near)
        add_near(j, s, a->begin, lo, hi, pos, row_head(j, r, row));
    if (j->p->apart)
        add_apart(j, r, s, a, lo, hi, row);
    uint32_t from = lo & ~(uint32_t)(LANES - 1), to = (hi + LANES - 1) & ~(uint32_t)(LANES - 1);
    for (uint32_t i = from; i < lo; i++)
        s[i] = -INFINITY;
    for (uint32_t i = hi; i < to; i++)
        s[i] = -INFINITY;
    ws->split.max[row] = k->row_max(s + from, to - from);
    ws->split.sum[row] = k->exp_sum(s + from, to - from, ws->split.max[row]);
}

/* First row of the tile's token number `token`; tiles may begin and end within a token. */
static uint32_t token_row(const struct attn_job *j, const struct rows *r, uint32_t token)
{
    uint32_t row = token * j->group, before = r->first % j->group;
    row = row > before ? row - before : 0;
    return row < r->n ? row : r->n;
}

/* Adds keys [key, next) for the rows of the tile's tokens [from, to). */
static void sum_run(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                    const struct range *a, uint32_t key, uint32_t next, uint32_t from, uint32_t to)
{
    const uint32_t row = token_row(j, r, from);
    struct kv_values t = {.ldo = kv_padded(j->v_dim), .head_dim = j->v_dim};
    t.pages = ws->pages + a->pages;
    t.rows = token_row(j, r, to) - row;
    t.o = ws->o + row * t.ldo;
    t.p = ws->s + (size_t)row * KV_SCORES_LD;
    t.first = key - a->begin, t.end = next - a->begin;
    values(j, &t);
}

/* As sum_values(), for tokens in and outside of images. */
static void sum_mutual(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    const uint32_t first = r->first / j->group;
    const uint32_t tokens = (r->first + r->n - 1) / j->group - first + 1;
    for (uint32_t key = r->lo > a->begin ? r->lo : a->begin, next; key < a->end; key = next) {
        uint32_t from = 0, to = 0;
        next = a->end;
        for (uint32_t t = 0; t < tokens; t++) {
            const struct seen seen = token_sees(j, r->span, first + t);
            from += seen.hi <= key;
            to += seen.lo <= key;
            next = seen.lo > key && seen.lo < next ? seen.lo : next;
            next = seen.hi > key && seen.hi < next ? seen.hi : next;
        }
        if (from < to)
            sum_run(j, r, ws, a, key, next, from, to);
    }
}

/* Adds every key to the rows that attend to it: those of tokens [from, to), in runs as long as
 * these are the same. */
static void sum_values(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    const uint32_t pos = row_pos(j, r, 0), tokens = row_pos(j, r, r->n - 1) - pos + 1;
    const uint32_t ahead = j->p->both ? j->p->window : 1;
    for (uint32_t key = r->lo > a->begin ? r->lo : a->begin, next; key < a->end; key = next) {
        uint32_t from = ahead && key >= pos + ahead ? key - pos - ahead + 1 : 0, to = tokens;
        const uint64_t last = last_pos(j->p, key);
        if (last - pos < tokens) /* some row sees the key */
            to = (uint32_t)(last - pos) + 1;
        next = from || to < tokens ? key + 1 : end_key(j->p, r->span, pos);
        next = next < a->end ? next : a->end;
        sum_run(j, r, ws, a, key, next, from, to);
    }
}

static void attend_split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                         uint32_t split)
{
    struct range a = split_range(r, split);
    size_t ldo = kv_padded(j->v_dim);
    list_pages(j, r, ws, &a);
    kv_score(j->d, j->kv->desc.dtype,
             &(struct kv_scores){.s = ws->s,
                                 .q = ws->q,
                                 .rows = r->n,
                                 .head_dim = j->p->head_dim,
                                 .n = a.pages,
                                 .pages = ws->pages});
    for (uint32_t i = 0; i < r->n; i++) {
        weigh_row(j, r, ws, &a, i);
        ws->split.o[i] = ws->o + i * ldo;
    }
    if (kv_dtype_scaled(j->kv->desc.dtype))
        j->d->kern.weigh(ws->s, r->n, ws->pages + a.pages, a.pages,
                         kv_dtype_bytes(j->kv->desc.dtype, (size_t)KV_PAGE * kv_padded(j->v_dim)));
    memset(ws->o, 0, r->n * ldo * sizeof(float));
    (j->mutual ? sum_mutual : sum_values)(j, r, ws, &a);
}

/* ---------------------------------------------------------------- several splits */

static void merge_row(const struct attn_job *j, struct attention_partial *to,
                      const struct attention_partial *from, uint32_t row)
{
    if (from->sum[row] == 0.0f) /* no keys in this split; NaN must propagate */
        return;
    if (to->sum[row] == 0.0f) {
        to->max[row] = from->max[row], to->sum[row] = from->sum[row];
        memcpy(to->o[row], from->o[row], j->v_dim * sizeof(float));
        return;
    }
    float max = to->max[row] > from->max[row] ? to->max[row] : from->max[row];
    float a = math_exp_neg(to->max[row] - max), b = math_exp_neg(from->max[row] - max);
    j->d->kern.merge(to->o[row], from->o[row], a, b, j->v_dim);
    to->sum[row] = fmaf(from->sum[row], b, to->sum[row] * a);
    to->max[row] = max;
}

/* The output rows hold the sums until finish(). */
static struct attention_partial partial_begin(const struct attn_job *j, const struct rows *r)
{
    struct attention_partial to;
    for (uint32_t i = 0; i < r->n; i++) {
        to.max[i] = -INFINITY, to.sum[i] = 0.0f;
        to.o[i] = out_row(j, r, i);
    }
    return to;
}

/* Final factor of a row's weighted values: a sink is one more term of the sum, merged last. */
static float row_factor(const struct attn_job *j, const struct rows *r,
                        const struct attention_partial *p, uint32_t row)
{
    if (!j->p->sinks)
        return 1.0f / p->sum[row];
    const float sink = j->p->sinks[row_head(j, r, row)];
    const float max = p->max[row] > sink ? p->max[row] : sink;
    const float a = math_exp_neg(p->max[row] - max);
    return a / fmaf(p->sum[row], a, math_exp_neg(sink - max));
}

static void partial_finish(const struct attn_job *j, const struct rows *r,
                           const struct attention_partial *p)
{
    for (uint32_t i = 0; i < r->n; i++) {
        j->d->kern.soft_cap(p->o[i], j->v_dim, row_factor(j, r, p, i), 0.0f);
        if (j->kv->desc.dtype == KV_I4)
            hadamard(p->o[i], j->v_dim, 1);
    }
}

static void attend_whole(const struct attn_job *j, struct workspace *ws, struct kv_cursor *c,
                         uint32_t unit)
{
    struct rows r = unit_rows(j, c, unit);
    struct attention_partial to = partial_begin(j, &r);
    pack_q(j, &r, ws);
    for (uint32_t split = r.lo / KV_SPLIT; split * KV_SPLIT < r.hi; split++) {
        attend_split(j, &r, ws, split);
        for (uint32_t i = 0; i < r.n; i++)
            merge_row(j, &to, &ws->split, i);
    }
    partial_finish(j, &r, &to);
}

/* Location of the partial result of one split: max, sum and o of each row. */
static float *partial_at(const struct attn_job *j, uint32_t unit, uint32_t split)
{
    size_t size = (size_t)TILE_ROWS * (2 + j->v_dim);
    return j->partials + ((size_t)unit * j->max_splits + split) * size;
}

static void attend_part(const struct attn_job *j, struct workspace *ws, struct kv_cursor *c,
                        uint32_t item)
{
    uint32_t unit = item / j->max_splits, split = item % j->max_splits, dim = j->v_dim;
    struct rows r = unit_rows(j, c, unit);
    if (split < r.lo / KV_SPLIT || split * KV_SPLIT >= r.hi)
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

static void merge_unit(const struct attn_job *j, struct kv_cursor *c, uint32_t unit)
{
    struct rows r = unit_rows(j, c, unit);
    struct attention_partial to = partial_begin(j, &r), from;
    for (uint32_t split = r.lo / KV_SPLIT; split * KV_SPLIT < r.hi; split++) {
        float *p = partial_at(j, unit, split);
        memcpy(from.max, p, r.n * sizeof(float));
        memcpy(from.sum, p + TILE_ROWS, r.n * sizeof(float));
        for (uint32_t i = 0; i < r.n; i++) {
            from.o[i] = p + (ptrdiff_t)2 * TILE_ROWS + (size_t)i * j->v_dim;
            merge_row(j, &to, &from, i);
        }
    }
    partial_finish(j, &r, &to);
}

/* ---------------------------------------------------------------- the operation */

/* With fewer units per thread they are split. */
enum { UNITS_PER_THREAD = 4, RESERVED_MOST = 64 << 20 };

static size_t partial_bytes(uint32_t v_dim)
{
    return (size_t)TILE_ROWS * (2 + v_dim) * sizeof(float);
}

bool cpu_attention_reserve(struct device *d, const struct kv_desc *k)
{
    uint64_t splits = ((uint64_t)k->n_blocks * k->block_size + KV_SPLIT - 1) / KV_SPLIT;
    uint64_t units = (uint64_t)pool_threads(d->pool) * UNITS_PER_THREAD;
    uint32_t v_dim = 1;
    for (uint32_t i = 0; i < k->n_layers; i++)
        v_dim = kv_layer(k, i)->v_dim > v_dim ? kv_layer(k, i)->v_dim : v_dim;
    uint64_t most = RESERVED_MOST / partial_bytes(v_dim), n = units * splits;
    return cpu_scratch(d, SCRATCH_ATTN, (n < most ? n : most) * partial_bytes(v_dim));
}

/* Units differ in cost (causality), so threads take the next one instead of a fixed share. */
static void take_units(void *arg, int thread, size_t begin, size_t end)
{
    struct attn_job *j = arg;
    struct workspace *ws = (struct workspace *)cpu_thread_scratch(j->d, thread);
    uint32_t n = j->partials ? j->n_units * j->max_splits : j->n_units;
    struct kv_cursor c = {.span = j->spans};
    (void)begin, (void)end;
    for (uint32_t u; (u = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < n;)
        if (j->partials)
            attend_part(j, ws, &c, u);
        else
            attend_whole(j, ws, &c, u);
}

static void merge_units(void *arg, int thread, size_t begin, size_t end)
{
    const struct attn_job *j = arg;
    struct kv_cursor c = {.span = j->spans};
    (void)thread;
    for (size_t u = begin; u < end; u++)
        merge_unit(j, &c, (uint32_t)u);
}

void cpu_attend(struct device *d, const struct attn_call *c)
{
    const struct attn *p = c->p;
    struct attn_job j = {.d = d,
                         .spans = c->spans,
                         .o = c->o,
                         .q = c->q,
                         .q_stride = c->q_stride,
                         .kv = c->kv,
                         .layer = c->layer,
                         .p = p};
    j.mutual = p->mutual ? d->batch->mutual : NULL;
    j.group = p->n_heads / p->n_kv_heads;
    j.v_dim = kv_stream(c->kv, c->layer, true, 0)->dim;
    uint32_t longest = 0, threads = (uint32_t)pool_threads(d->pool);
    for (uint32_t s = 0; s < c->n_spans; s++) {
        const struct span *span = &c->spans[s];
        j.n_units += n_tiles(&j, span) * p->n_kv_heads;
        longest = span->kv_len > longest ? span->kv_len : longest;
    }
    if (threads > 1 && j.n_units < UNITS_PER_THREAD * threads && longest > KV_SPLIT) {
        j.max_splits = (longest + KV_SPLIT - 1) / KV_SPLIT;
        j.partials =
            cpu_scratch(d, SCRATCH_ATTN, (size_t)j.n_units * j.max_splits * partial_bytes(j.v_dim));
        if (!j.partials)
            return;
    }
    pool_run(d->pool, take_units, &j, threads, 1);
    if (j.partials)
        pool_run(d->pool, merge_units, &j, j.n_units, 1);
}

void cpu_attention(struct device *d, float *o, const float *q, uint32_t q_stride,
                   const struct kv_cache *kv, uint32_t layer, const struct attn *p)
{
    const struct attn_call c = {.o = o,
                                .q = q,
                                .q_stride = q_stride,
                                .layer = layer,
                                .kv = kv,
                                .p = p,
                                .spans = d->batch->spans,
                                .n_spans = d->batch->n_spans};
    (p->top ? cpu_attend_top : cpu_attend)(d, &c);
}
