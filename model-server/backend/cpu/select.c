/* select.c - sparse attention's indexer: scores of the index keys, and the best of them.
 *
 * A score is a chain over the heads, of scores that the kernels of attention compute; with blocks
 * each head has its own scores, and a block the greatest of its positions. Scores of a
 * few tokens are computed at a time, in splits of KV_SPLIT keys on all threads. Then a token's
 * threshold, the score of its last selected position, is found byte by byte by counting (a radix
 * selection). */
#include "model-server/backend/cpu/cpu.h"
#include <math.h>
#include <string.h>

struct workspace {
    _Alignas(64) float q[MAX_HEAD_DIM * TILE_ROWS];
    _Alignas(64) float s[TILE_ROWS * KV_SCORES_LD];
    const char *pages[KV_SPLIT / KV_PAGE + KV_AHEAD];
};
_Static_assert(sizeof(struct workspace) <= THREAD_SCRATCH, "the indexer needs more scratch");

/* A token with more positions, or blocks, than it selects. */
struct chooser {
    const struct span *span;
    uint32_t row, n_keys;
};
enum { CHOOSERS = 256 };

struct select_job {
    struct device *d;
    uint32_t *top;
    float *q, *k;
    const struct kv_cache *cache;
    const struct kv_stream *stream;
    const struct select_keys *p;
    struct chooser tokens[CHOOSERS];
    uint32_t n, splits; /* tokens; splits of the one with most keys */
    uint32_t sets;      /* selections of a token */
    float *scores;      /* [n][sets][splits * KV_SPLIT] */
};

static size_t set_floats(const struct select_job *j) { return (size_t)j->splits * KV_SPLIT; }

/* Positions, or blocks, of n keys. */
static uint32_t units_of(const struct select_keys *p, uint32_t n_keys)
{
    if (!p->block)
        return n_keys;
    return (p->complete ? n_keys : n_keys + p->block - 1) / p->block;
}

/* ---------------------------------------------------------------- queries and keys */

static void rotate(const struct select_job *j, float *x, size_t token)
{
    const struct select_keys *p = j->p;
    if (p->rope && p->rot_dim)
        j->d->kern.rotate(x + p->rot_at, p->rope + token * p->rot_dim, p->rot_dim, p->interleaved);
}

static void prepare_tokens(void *arg, int thread, size_t begin, size_t end)
{
    const struct select_job *j = arg;
    const struct select_keys *p = j->p;
    const uint32_t *slots = kv_slots(&j->cache->desc, j->d->batch);
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        for (uint32_t h = 0; h < p->n_heads; h++)
            rotate(j, j->q + (t * p->n_heads + h) * p->dim, t);
        if (!p->turned)
            rotate(j, j->k + t * p->dim, t);
        kv_store(&j->d->kern, j->cache->desc.dtype, j->stream, false, slots[t], j->k + t * p->dim);
    }
}

/* ---------------------------------------------------------------- scores */

/* Adds heads [head, head + n) to the scores of `pages` pages. */
static void add_heads(const struct select_job *j, const struct chooser *c, struct workspace *ws,
                      uint32_t head, uint32_t n, uint32_t pages, float *scores)
{
    const struct select_keys *p = j->p;
    const enum kv_dtype t = j->cache->desc.dtype;
    const struct kernels *kern = &j->d->kern;
    const float *rows[TILE_ROWS];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = j->q + ((size_t)c->row * p->n_heads + head + i) * p->dim;
    kv_pack_q(j->d, t, ws->q, rows, n, p->dim, 1);
    kv_score(
        j->d, t,
        &(struct kv_scores){
            .s = ws->s, .q = ws->q, .rows = n, .head_dim = p->dim, .n = pages, .pages = ws->pages});
    for (uint32_t i = 0; i < n; i++) {
        float *s = ws->s + (size_t)i * KV_SCORES_LD;
        if (select_by_head(p)) {
            memcpy(scores + (head + i) * set_floats(j), s, (size_t)pages * KV_PAGE * sizeof(*s));
            continue;
        }
        kern->act(s, s, NULL, pages * KV_PAGE, ACT_RELU);
        kern->axpy(scores, s, p->weights ? p->weights[(size_t)c->row * p->n_heads + head + i] : 1,
                   pages * KV_PAGE);
    }
}

static void score_split(const struct select_job *j, const struct chooser *c, struct workspace *ws,
                        uint32_t split, float *scores)
{
    const uint32_t *blocks = kv_blocks_of(&j->cache->desc, c->span), begin = split * KV_SPLIT;
    const uint32_t keys = c->n_keys - begin < KV_SPLIT ? c->n_keys - begin : KV_SPLIT;
    const uint32_t pages = (keys + KV_PAGE - 1) / KV_PAGE, most = j->d->kern.mr;
    for (uint32_t i = 0; i < pages + KV_AHEAD; i++)
        ws->pages[i] = i < pages ? kv_page(j->cache, j->stream, blocks, begin / KV_PAGE + i)
                                 : ws->pages[i - 1];
    if (!select_by_head(j->p))
        memset(scores, 0, KV_SPLIT * sizeof(*scores));
    for (uint32_t h = 0, n; h < j->p->n_heads; h += n) {
        n = j->p->n_heads - h < most ? j->p->n_heads - h : most;
        add_heads(j, c, ws, h, n, pages, scores);
    }
}

static void score_splits(void *arg, int thread, size_t begin, size_t end)
{
    const struct select_job *j = arg;
    struct workspace *ws = (struct workspace *)cpu_thread_scratch(j->d, thread);
    for (size_t i = begin; i < end; i++) {
        const struct chooser *c = &j->tokens[i / j->splits];
        if (i % j->splits * KV_SPLIT < c->n_keys)
            score_split(j, c, ws, (uint32_t)(i % j->splits),
                        j->scores + i / j->splits * j->sets * set_floats(j) +
                            i % j->splits * KV_SPLIT);
    }
}

/* ---------------------------------------------------------------- the best */

/* Ascending with the score; both zeros are one. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof(bits));
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The order of the score number `top`, from the greatest on, of n; *equal: how many scores of this
 * order are among the first `top`. */
static uint32_t threshold(const float *s, uint32_t n, uint32_t top, uint32_t *equal)
{
    uint32_t value = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t count[256] = {0}, byte = 255;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t o = order_of(s[i]);
            count[o >> shift & 255] += (o & known) == value;
        }
        for (; count[byte] < top; byte--)
            top -= count[byte];
        value |= byte << shift;
        known |= 255u << shift;
    }
    *equal = top;
    return value;
}

/* The scores of blocks, from those of their positions, in place. */
static void pool_blocks(const struct select_keys *p, float *s, uint32_t n_keys)
{
    const uint32_t n = units_of(p, n_keys);
    for (uint32_t b = 0; p->pooled && b < n; b++)
        s[b] = b < n_keys / p->block ? s[(b + 1) * p->block - 1] : INFINITY;
    for (uint32_t b = 0; !p->pooled && b < n; b++) {
        const uint32_t first = b * p->block, left = n_keys - first;
        float most = s[first];
        for (uint32_t i = 1; i < left && i < p->block; i++)
            most = s[first + i] > most ? s[first + i] : most;
        s[b] = b + p->local < n ? most : INFINITY;
    }
}

static void choose(void *arg, int thread, size_t begin, size_t end)
{
    const struct select_job *j = arg;
    const uint32_t most = j->p->top;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const struct chooser *c = &j->tokens[t / j->sets];
        const bool whole = j->p->pooled && !j->p->complete && c->n_keys % j->p->block == 0;
        const uint32_t top = most - whole;
        float *s = j->scores + t * set_floats(j);
        uint32_t equal, n = 0, *out = j->top + ((size_t)c->row * j->sets + t % j->sets) * most;
        if (j->p->block)
            pool_blocks(j->p, s, c->n_keys);
        const uint32_t least = threshold(s, units_of(j->p, c->n_keys), top, &equal);
        for (uint32_t i = 0; n < top; i++) {
            const uint32_t o = order_of(s[i]);
            if (o > least || (o == least && equal && equal--))
                out[n++] = i;
        }
    }
}

/* Selects for the tokens listed so far. */
static void select_some(struct select_job *j)
{
    if (!j->n)
        return;
    pool_run(j->d->pool, score_splits, j, (size_t)j->n * j->splits, 1);
    pool_run(j->d->pool, choose, j, (size_t)j->n * j->sets, 1);
    j->n = 0;
}

void cpu_select_keys(struct device *d, uint32_t *top, float *q, float *k, struct kv_cache *cache,
                     uint32_t layer, const struct select_keys *p)
{
    struct select_job j = {.d = d, .top = top, .q = q, .k = k, .cache = cache, .p = p};
    j.sets = select_by_head(p) ? p->n_heads : 1;
    const struct ragged *b = d->batch;
    uint32_t longest = 0;
    j.stream = kv_index_stream(cache, layer);
    pool_run(d->pool, prepare_tokens, &j, b->n_tokens, 4);
    for (uint32_t i = 0; i < b->n_spans; i++)
        longest = b->spans[i].kv_len > longest ? b->spans[i].kv_len : longest;
    if (!select_some_of(p, longest))
        return;
    j.splits = (longest + KV_SPLIT - 1) / KV_SPLIT;
    const size_t each = j.sets * set_floats(&j) * sizeof(float);
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): each token has keys
    const size_t some = each < TOP_BYTES ? TOP_BYTES / each : 1;
    if (!(j.scores = cpu_scratch(d, SCRATCH_TOP, each > TOP_BYTES ? each : TOP_BYTES)))
        return;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        for (uint32_t t = 0; t < s->n; t++) {
            const uint32_t n_keys = s->kv_len - s->n + t + 1;
            if (select_some_of(p, n_keys))
                j.tokens[j.n++] = (struct chooser){s, s->first + t, n_keys};
            if (j.n == CHOOSERS || j.n == some)
                select_some(&j);
        }
    }
    select_some(&j);
}
