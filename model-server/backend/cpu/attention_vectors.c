/* attention_vectors.c - the products of attention on vectors, by the kernels of the cache's type
 * (kv_page.h): in fp32, or in pairs of bfloat16, to which q and the weights are rounded.
 *
 * A tile is several parts of as many rows as the kernels hold in registers. The parts follow each
 * other through a split, so that its pages come from memory once.
 *
 * Pages of int8, fp8 and int4 are widened to pages of bfloat16, which represents their numbers,
 * once for several parts. A tile of one part widens them in registers. The bits are the same.
 *
 * If the rows of a part attend to different keys, at the diagonal and at the ends of a window, the
 * keys are processed one by one, each with its rows. */
#include "model-server/backend/cpu/attention.h"
#include "model-server/backend/cpu/hadamard.h"
#include <assert.h>
#include <string.h>

enum { MOST_PARTS = 16 };

/* Sizes in floats of the memory of a thread, for parts of `mr` rows. */
static size_t q_floats(const struct attn_job *j) /* of a part */
{
    return (size_t)kv_dims(j->p->head_dim) * tile_stride(j->d->kern.mr);
}

static size_t o_floats(const struct attn_job *j) { return kv_padded(j->v_dim); } /* of a row */

/* Bytes of a widened page of keys or values. */
static size_t wide_bytes(const struct attn_job *j)
{
    const uint32_t dim = j->p->head_dim > j->v_dim ? j->p->head_dim : j->v_dim;
    return kv_page_bytes(KV_BF16, dim);
}

static size_t space(const struct attn_job *j, uint32_t parts)
{
    const size_t rows = (size_t)parts * j->d->kern.mr;
    return sizeof(struct workspace) + 64 + SPLIT_PAGES * wide_bytes(j) +
           (parts * q_floats(j) + rows * (KV_SCORES_LD + o_floats(j))) * sizeof(float);
}
_Static_assert(sizeof(struct workspace) + 64 + (size_t)KV_SPLIT * 2 * MAX_HEAD_DIM +
                       sizeof(float) * TILE_ROWS * (2 * MAX_HEAD_DIM + KV_SCORES_LD) <=
                   THREAD_MEMORY,
               "one part needs more scratch");

static uint32_t tile(const struct attn_job *j)
{
    uint32_t parts = MOST_PARTS;
    while (parts > 1 && (parts * j->d->kern.mr > ATTN_ROWS || space(j, parts) > THREAD_SCRATCH))
        parts /= 2;
    return parts * j->d->kern.mr;
}

static void open_vectors(const struct attn_job *j, struct workspace *ws)
{
    const uint32_t mr = j->d->kern.mr, parts = (j->tile + mr - 1) / mr;
    char *at = (char *)ws + ((sizeof(*ws) + 63) & ~(size_t)63);
    ws->q = at, at += parts * q_floats(j) * sizeof(float);
    ws->s = (float *)(void *)at, at += (size_t)parts * mr * KV_SCORES_LD * sizeof(float);
    ws->o = (float *)(void *)at, at += (size_t)parts * mr * o_floats(j) * sizeof(float);
    for (uint32_t i = 0; i < SPLIT_PAGES + KV_AHEAD; i++) /* what is ahead is there already */
        ws->wide[i] = at + (i < SPLIT_PAGES ? i : SPLIT_PAGES - 1) * wide_bytes(j);
}

/* Rows [first, first + n) of a tile, n at most those of a part. */
static struct rows part_of(const struct attn_job *j, const struct rows *r, uint32_t first)
{
    const uint32_t left = r->n - first, mr = j->d->kern.mr;
    struct rows p = {.span = r->span, .head = r->head, .first = r->first + first};
    p.n = left < mr ? left : mr;
    p.lo = attn_sees(j, r->span, p.first / j->group).lo;
    p.hi = attn_sees(j, r->span, (p.first + p.n - 1) / j->group).hi;
    return p;
}

static float *part_q(const struct attn_job *j, const struct workspace *ws, uint32_t first)
{
    const uint32_t mr = j->d->kern.mr;
    assert(mr);
    return (float *)ws->q + first / mr * q_floats(j);
}

/* ---------------------------------------------------------------- kernels of the cache's type */

/* A row for each type of cache; those that bfloat16 does not represent have no pairs. */
#define SLOT(op) offsetof(struct kernels, op)
static const size_t score_slots[KV_N] = {SLOT(scores_f32), SLOT(scores_f16), SLOT(scores_bf16),
                                         SLOT(scores_i8),  SLOT(scores_fp8), SLOT(scores_i4)};
static const size_t value_slots[KV_N] = {SLOT(values_f32), SLOT(values_f16), SLOT(values_bf16),
                                         SLOT(values_i8),  SLOT(values_fp8), SLOT(values_i4)};
static const size_t score_pair_slots[KV_N] = {[KV_BF16] = SLOT(scores_pairs_bf16),
                                              [KV_I8] = SLOT(scores_pairs_i8),
                                              [KV_FP8] = SLOT(scores_pairs_fp8),
                                              [KV_I4] = SLOT(scores_pairs_i4)};
static const size_t value_pair_slots[KV_N] = {[KV_BF16] = SLOT(values_pairs_bf16),
                                              [KV_I8] = SLOT(values_pairs_i8),
                                              [KV_FP8] = SLOT(values_pairs_fp8),
                                              [KV_I4] = SLOT(values_pairs_i4)};

static void score_by(const struct device *d, size_t slot, const struct kv_scores *s)
{
    scores_f32_fn *const *fn = (const void *)((const char *)&d->kern + slot);
    (*fn)(s);
}

void kv_score(const struct device *d, enum kv_dtype t, const struct kv_scores *s)
{
    score_by(d, score_slots[t], s);
}

static bool job_in_pairs(const struct attn_job *j) { return j->form == &attn_pairs; }

/* The pages of a split are of type `t`. */
static void score(const struct attn_job *j, enum kv_dtype t, const struct kv_scores *s)
{
    score_by(j->d, (job_in_pairs(j) ? score_pair_slots : score_slots)[t], s);
}

static void values(const struct attn_job *j, enum kv_dtype type, const struct kv_values *t)
{
    const size_t slot = (job_in_pairs(j) ? value_pair_slots : value_slots)[type];
    values_f32_fn *const *fn = (const void *)((const char *)&j->d->kern + slot);
    (*fn)(t);
}

void kv_pack_q(const struct device *d, enum kv_dtype t, float *to, const float *const *rows,
               uint32_t n, uint32_t dim, float scale)
{
    const uint32_t stride = tile_stride(n);
    d->kern.pack(to, rows, n, dim, scale);
    memset(to + (size_t)dim * stride, 0, (size_t)(kv_dims(dim) - dim) * stride * sizeof(float));
    if (t == KV_I4)
        hadamard(to, dim, stride);
}

static void pack(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    for (uint32_t first = 0; first < r->n; first += j->d->kern.mr) {
        const struct rows part = part_of(j, r, first);
        const float *src[TILE_ROWS];
        for (uint32_t i = 0; i < part.n; i++)
            src[i] = row_q(j, &part, i);
        kv_pack_q(j->d, j->kv->desc.dtype, part_q(j, ws, first), src, part.n, j->p->head_dim,
                  j->p->scale);
    }
}

/* ---------------------------------------------------------------- pairs of bfloat16 */

/* q in fp32 as it is packed, [dims][stride], becomes words of two dimensions in its place. */
static void pair_q(const struct kernels *kern, float *q, uint32_t dims, uint32_t stride)
{
    uint16_t half[MAX_HEAD_DIM * TILE_ROWS];
    uint32_t *words = (uint32_t *)(void *)q;
    kern->narrow_bf16(half, q, dims * stride);
    for (uint32_t d = 0; d < dims; d += 2, words += stride) {
        const uint16_t *lower = half + (size_t)d * stride, *upper = lower + stride;
        for (uint32_t i = 0; i < stride; i++)
            words[i] = lower[i] | (uint32_t)upper[i] << 16;
    }
}

static void pack_pairs(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const uint32_t mr = j->d->kern.mr;
    pack(j, r, ws);
    for (uint32_t first = 0; first < r->n; first += mr)
        pair_q(&j->d->kern, part_q(j, ws, first), kv_dims(j->p->head_dim),
               tile_stride(r->n - first < mr ? r->n - first : mr));
}

/* ---------------------------------------------------------------- weighted values */

/* The values of a split, their type, and the sums and weights of a part's rows. */
struct weighted {
    enum kv_dtype type;
    struct kv_values of;
};

/* First row of the part's token number `token`; parts may begin and end within a token. */
static uint32_t token_row(const struct attn_job *j, const struct rows *r, uint32_t token)
{
    uint32_t row = token * j->group, before = r->first % j->group;
    row = row > before ? row - before : 0;
    return row < r->n ? row : r->n;
}

/* Adds keys [key, next) for the rows of the part's tokens [from, to). */
static void sum_run(const struct attn_job *j, const struct rows *r, const struct weighted *w,
                    const struct range *a, uint32_t key, uint32_t next, uint32_t from, uint32_t to)
{
    const uint32_t row = token_row(j, r, from);
    struct kv_values t = w->of;
    t.rows = token_row(j, r, to) - row;
    t.o += row * t.ldo;
    t.p += (size_t)row * KV_SCORES_LD;
    t.first = key - a->begin, t.end = next - a->begin;
    values(j, w->type, &t);
}

/* As sum_values(), for tokens in and outside of images. */
static void sum_mutual(const struct attn_job *j, const struct rows *r, const struct weighted *w,
                       const struct range *a)
{
    const uint32_t first = r->first / j->group;
    const uint32_t tokens = (r->first + r->n - 1) / j->group - first + 1;
    for (uint32_t key = r->lo > a->begin ? r->lo : a->begin, next; key < a->end; key = next) {
        uint32_t from = 0, to = 0;
        next = a->end;
        for (uint32_t t = 0; t < tokens; t++) {
            const struct kv_seen seen = attn_sees(j, r->span, first + t);
            from += seen.hi <= key;
            to += seen.lo <= key;
            next = seen.lo > key && seen.lo < next ? seen.lo : next;
            next = seen.hi > key && seen.hi < next ? seen.hi : next;
        }
        if (from < to)
            sum_run(j, r, w, a, key, next, from, to);
    }
}

/* The last position that attends to `key`. */
static uint64_t last_pos(const struct attn *p, uint32_t key)
{
    if (p->chunk)
        return (uint64_t)key - key % p->chunk + p->chunk - 1;
    return p->window ? (uint64_t)key + p->window - 1 : UINT64_MAX;
}

/* Adds every key to the rows that attend to it: those of tokens [from, to), in runs as long as
 * these are the same. */
static void sum_values(const struct attn_job *j, const struct rows *r, const struct weighted *w,
                       const struct range *a)
{
    const uint32_t pos = row_pos(j, r, 0), tokens = row_pos(j, r, r->n - 1) - pos + 1;
    const uint32_t window = j->p->window;
    const uint32_t ahead = !j->p->both ? 1 : window ? window + j->p->ahead : 0;
    const uint32_t end = attn_sees(j, r->span, r->first / j->group).hi;
    for (uint32_t key = r->lo > a->begin ? r->lo : a->begin, next; key < a->end; key = next) {
        uint32_t from = ahead && key >= pos + ahead ? key - pos - ahead + 1 : 0, to = tokens;
        const uint64_t last = last_pos(j->p, key);
        if (last - pos < tokens) /* some row sees the key */
            to = (uint32_t)(last - pos) + 1;
        next = from || to < tokens ? key + 1 : end;
        next = next < a->end ? next : a->end;
        sum_run(j, r, w, a, key, next, from, to);
    }
}

/* ---------------------------------------------------------------- a split */

static bool widens(const struct attn_job *j, const struct rows *r)
{
    return kv_dtype_scaled(j->kv->desc.dtype) && r->n > j->d->kern.mr;
}

/* Scores of all rows, each part with the pages to which it attends. */
static void score_split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                        const struct range *a)
{
    struct kv_scores s = {.head_dim = j->p->head_dim, .pages = ws->pages};
    enum kv_dtype t = j->kv->desc.dtype;
    if (widens(j, r)) {
        j->d->kern.widen_keys(ws->wide, ws->pages, a->pages, s.head_dim, t);
        t = KV_BF16, s.pages = (const char *const *)ws->wide;
        s.scaled = attn_scales(j, ws->pages, s.head_dim);
    }
    for (uint32_t first = 0; first < r->n; first += j->d->kern.mr) {
        const struct rows part = part_of(j, r, first);
        const uint32_t end = part.hi < a->end ? part.hi : a->end;
        if (end <= a->begin)
            continue;
        s.s = ws->s + (size_t)first * KV_SCORES_LD;
        s.q = part_q(j, ws, first);
        s.rows = part.n;
        s.n = (end - a->begin + KV_PAGE - 1) / KV_PAGE;
        score(j, t, &s);
    }
}

/* Weights of a row as words. Beside the first and the last key that it attends to, a word may have
 * another one: its weight becomes 0, even if its scale is NaN. */
static void pair_row(const struct attn_job *j, float *s, struct kv_seen keys, uint32_t pages,
                     const struct kv_scaled *scaled)
{
    uint16_t *half = (uint16_t *)(void *)s; /* the earlier one of two positions is the upper one */
    j->d->kern.pair_weights(s, pages, scaled);
    if (keys.lo % 2)
        half[keys.lo] = 0;
    if (keys.hi % 2)
        half[keys.hi - 1] = 0;
}

static void weigh_rows(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    const struct kv_scaled scaled = attn_scales(j, ws->pages + a->pages, j->v_dim);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct kv_seen keys = attn_weigh_row(j, r, ws, a, i);
        if (job_in_pairs(j))
            pair_row(j, ws->s + (size_t)i * KV_SCORES_LD, keys, a->pages, &scaled);
    }
    if (scaled.pages && !job_in_pairs(j))
        j->d->kern.weigh(ws->s, r->n, scaled.pages, a->pages, scaled.at);
}

static void sum_split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                      const struct range *a)
{
    const enum kv_dtype t = j->kv->desc.dtype;
    struct weighted w = {t, {.ldo = o_floats(j), .head_dim = j->v_dim}};
    w.of.pages = ws->pages + a->pages;
    if (widens(j, r)) {
        j->d->kern.widen_values(ws->wide, w.of.pages, a->pages, j->v_dim, t);
        w.type = KV_BF16, w.of.pages = (const char *const *)ws->wide;
    }
    memset(ws->o, 0, r->n * w.of.ldo * sizeof(float));
    for (uint32_t first = 0; first < r->n; first += j->d->kern.mr) {
        const struct rows part = part_of(j, r, first);
        struct range of_part = *a;
        of_part.end = part.hi < a->end ? part.hi : a->end;
        w.of.o = ws->o + first * w.of.ldo;
        w.of.p = ws->s + (size_t)first * KV_SCORES_LD;
        (j->mutual ? sum_mutual : sum_values)(j, &part, &w, &of_part);
    }
}

static void split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                  const struct range *a)
{
    score_split(j, r, ws, a);
    weigh_rows(j, r, ws, a);
    sum_split(j, r, ws, a);
    for (uint32_t i = 0; i < r->n; i++)
        ws->split.o[i] = ws->o + i * o_floats(j);
}

const struct attn_form attn_vectors = {tile, open_vectors, pack, split};
const struct attn_form attn_pairs = {tile, open_vectors, pack_pairs, split};
