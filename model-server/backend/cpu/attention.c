/* attention.c - softmax(q K^T) V over the paged cache.
 *
 * The query heads that share a K/V head are rows of one small product: row r of a span is query
 * head r % group of token r / group. A unit of work is a tile of such rows. It iterates over the
 * keys in splits that begin at multiples of KV_SPLIT positions. Within a split: scores of all rows,
 * softmax against the split's own maximum, weighted sum of the values, in one of four forms
 * (attention.h). Splits are merged in ascending order, a sink last.
 *
 * A row's operations depend only on its position. It is never combined with a value that it does
 * not attend to, not even with a weight of 0 (0 * NaN is NaN). Stale data in a block, after the
 * last token or from another sequence, is read as a key at most, and its score is overwritten.
 *
 * Many tiles (prefill, batches): a unit processes all splits of its tile. Few tiles (one long
 * sequence, more cores than heads): a unit is one split; a second pass merges. The bits are the
 * same. Splitting for decode: Flash-Decoding, Dao et al. 2023; the merge: Milakov, Gimelshein
 * 2018. */
#include "model-server/backend/cpu/attention.h"
#include "model-server/backend/cpu/hadamard.h"
#include "model-server/backend/mathf.h"
#include <string.h>

/* First unit of the current span. A thread processes its units in ascending order. */
struct kv_cursor {
    const struct span *span;
    uint32_t first;
};

/* First position to which the token at `pos` attends; with a window or chunks the last one with
 * keys. */
static uint32_t first_key(const struct attn *p, uint32_t pos)
{
    if (p->chunk)
        return pos - pos % p->chunk;
    return p->window && pos + 1 > p->window ? pos + 1 - p->window : 0;
}

/* One past the last position to which it attends, in a sequence of kv_len tokens. */
static uint32_t end_key(const struct attn *p, const struct span *s, uint32_t pos)
{
    if (!p->both)
        return pos + 1;
    const uint32_t ahead = p->window + p->ahead;
    return p->window && s->kv_len - pos > ahead ? pos + ahead : s->kv_len;
}

struct kv_seen attn_sees(const struct attn_job *j, const struct span *s, uint32_t token)
{
    const uint32_t pos = s->kv_len - s->n + token;
    struct kv_seen v = {first_key(j->p, pos), end_key(j->p, s, pos)};
    const struct mutual *m = j->mutual ? &j->mutual[s->first + token] : NULL;
    if (!m || m->begin == m->end)
        return v;
    if (j->p->mutual == MUTUAL_ALONE)
        return (struct kv_seen){m->begin, m->end};
    if (j->p->mutual == MUTUAL_TOO && m->begin < v.lo)
        v.lo = m->begin;
    v.hi = m->end > v.hi ? m->end : v.hi;
    return v;
}

static float *out_row(const struct attn_job *j, const struct rows *r, uint32_t row)
{
    size_t head = (size_t)row_token(j, r, row) * j->p->n_heads + row_head(j, r, row);
    return j->o + head * j->v_dim;
}

static uint32_t n_tiles(const struct attn_job *j, const struct span *s)
{
    return (uint32_t)(((uint64_t)s->n * j->group + j->tile - 1) / j->tile);
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
    r.lo = attn_sees(j, r.span, r.first / j->group).lo;
    r.hi = attn_sees(j, r.span, (r.first + r.n - 1) / j->group).hi;
    return r;
}

/* ---------------------------------------------------------------- one split */

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

/* The same by numbers of the query alone, and by kinds of tokens. */
static void add_relative(const struct attn_job *j, const struct rows *r, float *s,
                         const struct range *a, uint32_t lo, uint32_t hi, uint32_t row)
{
    const struct attn *p = j->p;
    const size_t head = row_head(j, r, row), token = row_token(j, r, row);
    const int64_t reach = p->reach, pos = row_pos(j, r, row);
    const float *of = p->apart + (token * p->n_heads + head) * p->buckets;
    const float *bias = p->apart_bias + head * p->buckets;
    const uint32_t *kinds = p->kinds ? p->kinds + r->span->first + a->begin : NULL;
    const float differs = of[p->buckets - 1] + bias[p->buckets - 1];
    for (uint32_t i = lo; i < hi; i++) {
        const int64_t far = pos - a->begin - i;
        const uint32_t at = p->at[(far < -reach ? -reach : far > reach ? reach : far) + reach];
        const bool other = kinds && kinds[i] != p->kinds[token];
        s[i] = fmaf(of[at] + bias[at] + (other ? differs : 0), p->scale, s[i]);
    }
}

struct kv_seen attn_weigh_row(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                              const struct range *a, uint32_t row)
{
    float *s = ws->s + (size_t)row * KV_SCORES_LD;
    const struct kernels *k = &j->d->kern;
    const struct kv_seen seen = attn_sees(j, r->span, (r->first + row) / j->group);
    uint32_t pos = row_pos(j, r, row), lo = seen.lo, hi = seen.hi;
    lo = lo > a->begin ? lo : a->begin;
    hi = hi < a->end ? hi : a->end;
    if (lo >= hi) {
        ws->split.max[row] = -INFINITY, ws->split.sum[row] = 0.0f;
        return (struct kv_seen){0, 0};
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
    if (j->p->apart_bias)
        add_relative(j, r, s, a, lo, hi, row);
    else if (j->p->apart)
        add_apart(j, r, s, a, lo, hi, row);
    uint32_t from = lo & ~(uint32_t)(LANES - 1), to = (hi + LANES - 1) & ~(uint32_t)(LANES - 1);
    for (uint32_t i = from; i < lo; i++)
        s[i] = -INFINITY;
    for (uint32_t i = hi; i < to; i++)
        s[i] = -INFINITY;
    ws->split.max[row] = k->row_max(s + from, to - from);
    ws->split.sum[row] = k->exp_sum(s + from, to - from, ws->split.max[row]);
    return (struct kv_seen){lo, hi};
}

static void attend_split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                         uint32_t split)
{
    const struct range a = split_range(r, split);
    list_pages(j, r, ws, &a);
    j->form->split(j, r, ws, &a);
}

/* ---------------------------------------------------------------- several splits */

/* Adds a row of `from` with the factors of both. */
static void merge_row(const struct attn_job *j, struct attention_partial *to,
                      const struct attention_partial *from, uint32_t row, float a, float b)
{
    if (from->sum[row] == 0.0f) /* no keys in this split; NaN must propagate */
        return;
    if (to->sum[row] == 0.0f) {
        to->max[row] = from->max[row], to->sum[row] = from->sum[row];
        memcpy(to->o[row], from->o[row], j->v_dim * sizeof(float));
        return;
    }
    j->d->kern.merge(to->o[row], from->o[row], a, b, j->v_dim);
    to->sum[row] = fmaf(from->sum[row], b, to->sum[row] * a);
    to->max[row] = to->max[row] > from->max[row] ? to->max[row] : from->max[row];
}

static void merge_rows(const struct attn_job *j, struct attention_partial *to,
                       const struct attention_partial *from, uint32_t n)
{
    _Alignas(64) float a[ATTN_ROWS], b[ATTN_ROWS]; /* exp(max - the greater max) */
    const uint32_t lanes = (n + LANES - 1) & ~(uint32_t)(LANES - 1);
    for (uint32_t i = 0; i < lanes; i++) {
        const bool both = i < n && from->sum[i] != 0.0f && to->sum[i] != 0.0f;
        const float max = both && to->max[i] > from->max[i] ? to->max[i] : from->max[i % n];
        a[i] = both ? to->max[i] - max : 0, b[i] = both ? from->max[i] - max : 0;
    }
    j->d->kern.exp_sum(a, lanes, 0.0f);
    j->d->kern.exp_sum(b, lanes, 0.0f);
    for (uint32_t i = 0; i < n; i++)
        merge_row(j, to, from, i, a[i], b[i]);
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
    const size_t of = j->p->sinks_by_token ? (size_t)row_token(j, r, row) * j->p->n_heads : 0;
    const float sink = j->p->sinks[of + row_head(j, r, row)];
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
        if (j->p->sums) {
            float *to = j->p->sums + (size_t)(p->o[i] - j->o) / j->v_dim * ATTN_SUMS;
            to[0] = p->max[i], to[1] = p->sum[i];
        }
    }
}

static void attend_whole(const struct attn_job *j, struct workspace *ws, struct kv_cursor *c,
                         uint32_t unit)
{
    struct rows r = unit_rows(j, c, unit);
    struct attention_partial to = partial_begin(j, &r);
    j->form->pack(j, &r, ws);
    for (uint32_t split = r.lo / KV_SPLIT; split * KV_SPLIT < r.hi; split++) {
        attend_split(j, &r, ws, split);
        merge_rows(j, &to, &ws->split, r.n);
    }
    partial_finish(j, &r, &to);
}

/* Location of the partial result of one split: max, sum and o of each row. */
static float *partial_at(const struct attn_job *j, uint32_t unit, uint32_t split)
{
    size_t size = (size_t)j->tile * (2 + j->v_dim);
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
    j->form->pack(j, &r, ws);
    attend_split(j, &r, ws, split);
    memcpy(to, ws->split.max, r.n * sizeof(float));
    memcpy(to + j->tile, ws->split.sum, r.n * sizeof(float));
    for (uint32_t i = 0; i < r.n; i++)
        memcpy(to + (size_t)2 * j->tile + (size_t)i * dim, ws->split.o[i], dim * sizeof(float));
}

static void merge_unit(const struct attn_job *j, struct kv_cursor *c, uint32_t unit)
{
    struct rows r = unit_rows(j, c, unit);
    struct attention_partial to = partial_begin(j, &r), from;
    for (uint32_t split = r.lo / KV_SPLIT; split * KV_SPLIT < r.hi; split++) {
        float *p = partial_at(j, unit, split);
        memcpy(from.max, p, r.n * sizeof(float));
        memcpy(from.sum, p + j->tile, r.n * sizeof(float));
        for (uint32_t i = 0; i < r.n; i++)
            from.o[i] = p + (size_t)2 * j->tile + (size_t)i * j->v_dim;
        merge_rows(j, &to, &from, r.n);
    }
    partial_finish(j, &r, &to);
}

/* ---------------------------------------------------------------- the operation */

/* With fewer units per thread they are split. */
enum { UNITS_PER_THREAD = 4, FEW_ROWS = 16, RESERVED_MOST = 64 << 20 };

static size_t partial_bytes(uint32_t rows, uint32_t v_dim)
{
    return (size_t)rows * (2 + v_dim) * sizeof(float);
}

bool cpu_attention_reserve(struct device *d, const struct kv_desc *k)
{
    uint64_t splits = ((uint64_t)k->n_blocks * k->block_size + KV_SPLIT - 1) / KV_SPLIT;
    uint64_t units = (uint64_t)pool_threads(d->pool) * UNITS_PER_THREAD;
    uint32_t v_dim = 1;
    for (uint32_t i = 0; i < k->n_layers; i++)
        v_dim = kv_layer(k, i)->v_dim > v_dim ? kv_layer(k, i)->v_dim : v_dim;
    uint64_t most = RESERVED_MOST / partial_bytes(FEW_ROWS, v_dim), n = units * splits;
    return cpu_scratch(d, SCRATCH_ATTN, (n < most ? n : most) * partial_bytes(FEW_ROWS, v_dim));
}

/* Units differ in cost (causality), so threads take the next one instead of a fixed share. */
static void take_units(void *arg, int thread, size_t begin, size_t end)
{
    struct attn_job *j = arg;
    struct workspace *ws = (struct workspace *)(void *)cpu_thread_scratch(j->d, thread);
    j->form->open(j, ws);
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

static uint32_t count_units(const struct attn_job *j, const struct attn_call *c)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < c->n_spans; s++)
        n += n_tiles(j, &c->spans[s]) * j->p->n_kv_heads;
    return n;
}

/* The largest tiles of which there are enough for all threads. */
static void choose_tile(struct attn_job *j, const struct attn_call *c, uint32_t enough)
{
    j->tile = j->form->tile(j);
    while ((j->n_units = count_units(j, c)) < enough && j->tile > FEW_ROWS)
        j->tile /= 2;
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
    const enum kv_dtype type = c->kv->desc.dtype;
    j.products = cpu_kv_products(d, type, c->kv->desc.rounds);
    j.mutual = p->mutual ? d->batch->mutual : NULL;
    j.group = p->n_heads / p->n_kv_heads;
    j.v_dim = kv_stream(c->kv, c->layer, true, 0)->dim;
    const uint32_t threads = (uint32_t)pool_threads(d->pool);
    j.form = attn_in_squares(&j) ? &attn_squares
             : j.products.quads  ? &attn_quads
             : j.products.pairs  ? &attn_pairs
                                 : &attn_vectors;
    choose_tile(&j, c, UNITS_PER_THREAD * threads);
    uint32_t longest = 0;
    for (uint32_t s = 0; s < c->n_spans; s++)
        longest = c->spans[s].kv_len > longest ? c->spans[s].kv_len : longest;
    if (threads > 1 && j.n_units < UNITS_PER_THREAD * threads && longest > KV_SPLIT) {
        j.max_splits = (longest + KV_SPLIT - 1) / KV_SPLIT;
        j.partials = cpu_scratch(d, SCRATCH_ATTN,
                                 (size_t)j.n_units * j.max_splits * partial_bytes(j.tile, j.v_dim));
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
    (p->top || p->entries ? cpu_attend_top : cpu_attend)(d, &c);
}

/* ---------------------------------------------------------------- two sources */

struct merge_job {
    const struct device *d;
    float *y;
    const float *y_sums, *x, *x_sums;
    uint32_t n;
};

/* As merge_rows() and row_factor(), of finished rows. */
static void merge_sources(void *arg, int thread, size_t begin, size_t end)
{
    const struct merge_job *j = arg;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *of_y = j->y_sums + r * ATTN_SUMS, *of_x = j->x_sums + r * ATTN_SUMS;
        const float max = of_y[0] > of_x[0] ? of_y[0] : of_x[0];
        const float y = of_y[1] * math_exp_neg(of_y[0] - max);
        const float x = of_x[1] * math_exp_neg(of_x[0] - max);
        j->d->kern.merge(j->y + r * j->n, j->x + r * j->n, y / (y + x), x / (y + x), j->n);
    }
}

void cpu_merge_attention(struct device *d, float *y, const float *y_sums, const float *x,
                         const float *x_sums, uint32_t rows, uint32_t n)
{
    struct merge_job j = {d, y, y_sums, x, x_sums, n};
    pool_run(d->pool, merge_sources, &j, rows, 1 + (1 << 12) / n);
}
