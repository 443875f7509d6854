/* attention_quads.c - attention over a cache of int4 in products of integers (kv_quads.h).
 * q is rounded with a scale for each token and head; the weights, times the values' scales, with
 * one for each row and 64 positions.
 *
 * All rows of a tile are multiplied with all positions of the split, with weight 0 where a row does
 * not attend to one. So the bits of a row depend on its position alone, and on every CPU they are
 * the same: sums of integers are exact, and the few fp32 operations on them have one order.
 *
 * A tile with several rows packs the pages of a split in quads once. */
#include "model-server/backend/cpu/attention.h"
#include "model-server/backend/cpu/hadamard.h"
#include <string.h>

/* More rows than this pack the pages. */
enum { FEW_QUAD_ROWS = 8 };

static uint32_t quads(const struct attn_job *j) { return kv_dims(j->p->head_dim) / 4; }

static size_t packed_bytes(const struct attn_job *j)
{
    const uint32_t dim = j->p->head_dim > j->v_dim ? j->p->head_dim : j->v_dim;
    return (size_t)KV_PAGE * kv_padded(dim);
}

/* The memory behind ws: words, sums and scales of q; the same of the weights, whose bytes are in
 * ws->s; scores, sums of values, packed pages. */
static size_t space(const struct attn_job *j, uint32_t rows)
{
    const size_t q = quads(j) + (size_t)2, weights = (size_t)2 * QUAD_GROUPS;
    return sizeof(struct workspace) + 128 + SPLIT_PAGES * packed_bytes(j) +
           rows * (q + weights + KV_SCORES_LD + kv_padded(j->v_dim)) * sizeof(float);
}
_Static_assert(sizeof(struct workspace) + 128 + (size_t)KV_SPLIT * MAX_HEAD_DIM +
                       sizeof(float) * 16 * (2 * MAX_HEAD_DIM + KV_SCORES_LD) <=
                   THREAD_SCRATCH,
               "16 rows need more scratch");

static uint32_t tile(const struct attn_job *j)
{
    uint32_t rows = ATTN_ROWS;
    while (space(j, rows) > THREAD_SCRATCH)
        rows /= 2;
    return rows;
}

static void open_quads(const struct attn_job *j, struct workspace *ws)
{
    char *at = (char *)ws + ((sizeof(*ws) + 63) & ~(size_t)63);
    for (uint32_t i = 0; i < SPLIT_PAGES + KV_AHEAD; i++)
        ws->wide[i] = at + (i < SPLIT_PAGES ? i : SPLIT_PAGES - 1) * packed_bytes(j);
    at += SPLIT_PAGES * packed_bytes(j);
    ws->s = (float *)(void *)at, at += (size_t)j->tile * KV_SCORES_LD * sizeof(float);
    ws->o = (float *)(void *)at, at += (size_t)j->tile * kv_padded(j->v_dim) * sizeof(float);
    ws->q = at, at += (size_t)j->tile * quads(j) * sizeof(int32_t);
    ws->q_sums = (int32_t *)(void *)at, at += (size_t)j->tile * sizeof(int32_t);
    ws->q_scales = (float *)(void *)at, at += (size_t)j->tile * sizeof(float);
    ws->p_sums = (int32_t *)(void *)at, at += (size_t)j->tile * QUAD_GROUPS * sizeof(int32_t);
    ws->p_scales = (float *)(void *)at;
}

/* ---------------------------------------------------------------- q */

static void pack(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const uint32_t dim = j->p->head_dim;
    _Alignas(64) float q[MAX_HEAD_DIM + LANES];
    for (uint32_t i = 0; i < r->n; i++) {
        int8_t *bytes = (int8_t *)q, *to = (int8_t *)((int32_t *)ws->q + i);
        memcpy(q, row_q(j, r, i), dim * sizeof(*q));
        memset(q + dim, 0, LANES * sizeof(*q));
        j->d->kern.soft_cap(q, dim, j->p->scale, 0.0f);
        hadamard(q, dim, 1);
        j->d->kern.kv_to_bytes(&(struct kv_to_bytes){.dst = bytes,
                                                     .x = q,
                                                     .n = kv_padded(dim),
                                                     .hi = dim,
                                                     .group = kv_padded(dim),
                                                     .scales = ws->q_scales + i,
                                                     .sums = ws->q_sums + i});
        for (uint32_t d = 0; d < 4 * quads(j); d++)
            to[(size_t)(d / 4) * r->n * sizeof(int32_t) + d % 4] = bytes[kv_quad_dim(d)];
    }
}

/* ---------------------------------------------------------------- a split */

static void scores(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                   const struct range *a)
{
    struct kv_quad_scores s = {.s = ws->s,
                               .q = ws->q,
                               .sums = ws->q_sums,
                               .scales = ws->q_scales,
                               .rows = r->n,
                               .head_dim = j->p->head_dim,
                               .n = a->pages,
                               .packed = r->n > FEW_QUAD_ROWS,
                               .pages = ws->pages,
                               .scaled = attn_scales(j, ws->pages, j->p->head_dim)};
    if (s.packed) {
        j->d->kern.quads_of_keys(ws->wide, ws->pages, a->pages, s.head_dim);
        s.pages = (const char *const *)ws->wide;
    }
    for (uint32_t i = 0; i < a->pages; i++) /* of the values: weights need them first */
        __builtin_prefetch(kv_scales(ws->pages[a->pages + i], KV_I4, j->v_dim));
    j->d->kern.scores_quads(&s);
}

/* Pages that the range's first group lacks. */
static uint32_t lead(const struct range *a) { return a->begin % QUAD_GROUP / KV_PAGE; }

/* Fetches the values of pages [from, to): weights are computed from the caches alone, and memory
 * would be idle. */
static void fetch_pages(const struct attn_job *j, const struct workspace *ws, const struct range *a,
                        uint32_t from, uint32_t to)
{
    const size_t bytes = kv_page_bytes(KV_I4, j->v_dim);
    for (uint32_t i = from; i < to; i++)
        for (size_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(ws->pages[a->pages + i] + at);
}

static void weigh_rows(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    for (uint32_t i = 0; i < r->n; i++) {
        float *s = ws->s + (size_t)i * KV_SCORES_LD;
        if (r->n <= FEW_QUAD_ROWS)
            fetch_pages(j, ws, a, a->pages * i / r->n, a->pages * (i + 1) / r->n);
        const struct kv_seen keys = attn_weigh_row(j, r, ws, a, i);
        j->d->kern.kv_to_bytes(
            &(struct kv_to_bytes){.dst = (int8_t *)s,
                                  .x = s,
                                  .n = a->pages * KV_PAGE,
                                  .lo = keys.lo,
                                  .hi = keys.hi,
                                  .group = QUAD_GROUP,
                                  .lead = lead(a) * KV_PAGE,
                                  .scaled = attn_scales(j, ws->pages + a->pages, j->v_dim),
                                  .scales = ws->p_scales + (size_t)i * QUAD_GROUPS,
                                  .sums = ws->p_sums + (size_t)i * QUAD_GROUPS});
    }
}

static void sum_values(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                       const struct range *a)
{
    struct kv_quad_values v = {.o = ws->o,
                               .ldo = kv_padded(j->v_dim),
                               .p = (const int8_t *)ws->s,
                               .ldp = KV_SCORES_LD * sizeof(float),
                               .sums = ws->p_sums,
                               .scales = ws->p_scales,
                               .rows = r->n,
                               .head_dim = j->v_dim,
                               .n = a->pages,
                               .lead = lead(a),
                               .packed = r->n > FEW_QUAD_ROWS,
                               .pages = ws->pages + a->pages};
    if (v.packed) {
        j->d->kern.quads_of_values(ws->wide, v.pages, a->pages, v.head_dim);
        v.pages = (const char *const *)ws->wide;
    }
    j->d->kern.values_quads(&v);
}

static void split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                  const struct range *a)
{
    scores(j, r, ws, a);
    weigh_rows(j, r, ws, a);
    sum_values(j, r, ws, a);
    for (uint32_t i = 0; i < r->n; i++)
        ws->split.o[i] = ws->o + (size_t)i * kv_padded(j->v_dim);
}

const struct attn_form attn_quads = {tile, open_quads, pack, split};
