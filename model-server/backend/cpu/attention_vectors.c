/* attention_vectors.c - the products of attention on vectors, by the kernels of the cache's type
 * (kv_page.h): in fp32, or in pairs of bfloat16, to which q and the weights are rounded.
 *
 * If the rows of a tile attend to different keys, at the diagonal and at the ends of a window, the
 * keys are processed one by one, each with its rows. */
#include "model-server/backend/cpu/attention.h"
#include "model-server/backend/cpu/hadamard.h"
#include <string.h>

struct vectors {
    _Alignas(64) float q[MAX_HEAD_DIM * TILE_ROWS];
    _Alignas(64) float s[TILE_ROWS * KV_SCORES_LD]; /* [row][key] */
    _Alignas(64) float o[TILE_ROWS * MAX_HEAD_DIM];
};
_Static_assert(sizeof(struct workspace) + sizeof(struct vectors) + 64 <= THREAD_SCRATCH,
               "attention needs more scratch");

static uint32_t tile(const struct attn_job *j) { return j->d->kern.mr; }

static void open_vectors(const struct attn_job *j, struct workspace *ws)
{
    struct vectors *own = (void *)((char *)ws + ((sizeof(*ws) + 63) & ~(size_t)63));
    (void)j;
    ws->q = own->q, ws->s = own->s, ws->o = own->o;
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

static bool job_in_pairs(const struct attn_job *j) { return j->form == &attn_pairs; }

static void score(const struct attn_job *j, const struct kv_scores *t)
{
    if (job_in_pairs(j))
        j->d->kern.scores_pairs(t);
    else
        kv_score(j->d, j->kv->desc.dtype, t);
}

static void values(const struct attn_job *j, const struct kv_values *t)
{
    if (job_in_pairs(j)) {
        j->d->kern.values_pairs(t);
        return;
    }
    static const size_t slot[KV_N] = {
        offsetof(struct kernels, values_f32),  offsetof(struct kernels, values_f16),
        offsetof(struct kernels, values_bf16), offsetof(struct kernels, values_i8),
        offsetof(struct kernels, values_fp8),  offsetof(struct kernels, values_i4)};
    values_f32_fn *const *fn = (const void *)((const char *)&j->d->kern + slot[j->kv->desc.dtype]);
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
    const float *src[TILE_ROWS];
    for (uint32_t i = 0; i < r->n; i++)
        src[i] = row_q(j, r, i);
    kv_pack_q(j->d, j->kv->desc.dtype, ws->q, src, r->n, j->p->head_dim, j->p->scale);
}

/* ---------------------------------------------------------------- pairs of bfloat16 */

static void pack_pairs(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const uint32_t dim = j->p->head_dim, dims = kv_dims(dim), stride = tile_stride(r->n);
    _Alignas(64) uint16_t half[MAX_HEAD_DIM] = {0};
    _Alignas(64) float q[MAX_HEAD_DIM];
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(q, row_q(j, r, i), dim * sizeof(*q));
        j->d->kern.soft_cap(q, dim, j->p->scale, 0.0f);
        j->d->kern.narrow_bf16(half, q, dim);
        uint32_t *to = (uint32_t *)ws->q + i;
        for (uint32_t d = 0; d < dims; d += 2, to += stride)
            *to = half[d] | (uint32_t)half[d + 1] << 16;
    }
}

/* ---------------------------------------------------------------- weighted values */

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
            const struct kv_seen seen = attn_sees(j, r->span, first + t);
            from += seen.hi <= key;
            to += seen.lo <= key;
            next = seen.lo > key && seen.lo < next ? seen.lo : next;
            next = seen.hi > key && seen.hi < next ? seen.hi : next;
        }
        if (from < to)
            sum_run(j, r, ws, a, key, next, from, to);
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
static void sum_values(const struct attn_job *j, const struct rows *r, struct workspace *ws,
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
        sum_run(j, r, ws, a, key, next, from, to);
    }
}

static void split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                  const struct range *a)
{
    const size_t ldo = kv_padded(j->v_dim);
    score(j, &(struct kv_scores){.s = ws->s,
                                 .q = ws->q,
                                 .rows = r->n,
                                 .head_dim = j->p->head_dim,
                                 .n = a->pages,
                                 .pages = ws->pages});
    for (uint32_t i = 0; i < r->n; i++) {
        attn_weigh_row(j, r, ws, a, i);
        if (job_in_pairs(j))
            j->d->kern.pair_weights(ws->s + (size_t)i * KV_SCORES_LD, a->pages);
        ws->split.o[i] = ws->o + i * ldo;
    }
    if (kv_dtype_scaled(j->kv->desc.dtype))
        j->d->kern.weigh(ws->s, r->n, ws->pages + a->pages, a->pages,
                         kv_dtype_bytes(j->kv->desc.dtype, (size_t)KV_PAGE * kv_padded(j->v_dim)));
    memset(ws->o, 0, r->n * ldo * sizeof(float));
    (j->mutual ? sum_mutual : sum_values)(j, r, ws, a);
}

const struct attn_form attn_vectors = {tile, open_vectors, pack, split};
const struct attn_form attn_pairs = {tile, open_vectors, pack_pairs, split};
