/* attention_squares.c - the products of attention on matrix units (squares.h), over a cache of
 * bfloat16. q and the weights are split into bfloat16 parts that add up to them, or are rounded.
 *
 * Scores: a page of keys is a panel of 16 outputs, as it lies in the cache. Weighted values: the
 * values of a split are laid out as panels of 16 dimensions, whose steps are 32 positions that
 * begin at multiples of 32. All rows of a tile are multiplied with all positions of the split, with
 * weight 0 where a row does not attend to one: adding 0 times a finite number to a sum changes
 * nothing. If a value is infinite or NaN, the tokens of the tile are multiplied one by one, each
 * with the positions to which it attends. */
#include "model-server/backend/cpu/attention.h"
#include <string.h>

enum { STEP_DIMS = SQUARE_STEP_BYTES / 2, STEP_KEYS = STEP_DIMS };
enum { MOST_STEPS = KV_SPLIT / STEP_KEYS };
enum { MOST_ROWS = 64 };
_Static_assert((int)MOST_ROWS <= (int)ATTN_ROWS, "rows of a tile");

/* Bytes of a row in a step, for all parts. */
static size_t row_step(const struct attn_job *j)
{
    return (size_t)j->products.squares * SQUARE_STEP_BYTES;
}

/* The number of rows in a tile's squares: whole ones if there are several. */
static uint32_t in_whole(uint32_t rows)
{
    return rows < SQUARE ? rows : (rows + SQUARE - 1) / SQUARE * SQUARE;
}

static size_t q_bytes(const struct attn_job *j, uint32_t rows)
{
    return (size_t)(j->p->head_dim / STEP_DIMS) * rows * row_step(j);
}

static size_t space(const struct attn_job *j, uint32_t rows)
{
    return sizeof(struct workspace) + 64 + q_bytes(j, rows) +
           (size_t)rows * KV_SCORES_LD * sizeof(float) + (size_t)MOST_STEPS * rows * row_step(j) +
           (size_t)j->v_dim * KV_SPLIT * 2 + (size_t)rows * j->v_dim * sizeof(float);
}

static uint32_t tile(const struct attn_job *j)
{
    uint32_t rows = MOST_ROWS;
    while (rows > SQUARE && space(j, rows) > THREAD_SCRATCH)
        rows /= 2;
    return rows;
}

bool attn_in_squares(const struct attn_job *j)
{
    return j->products.squares && j->p->head_dim % 32 == 0 && j->v_dim % 32 == 0 &&
           space(j, SQUARE) <= THREAD_SCRATCH;
}

static void open_squares(const struct attn_job *j, struct workspace *ws)
{
    const uint32_t rows = in_whole(j->tile);
    char *at = (char *)ws + ((sizeof(*ws) + 63) & ~(size_t)63);
    ws->q = at, at += q_bytes(j, rows);
    ws->s = (float *)(void *)at, at += (size_t)rows * KV_SCORES_LD * sizeof(float);
    ws->weights = at, at += (size_t)MOST_STEPS * rows * row_step(j);
    ws->values = at, at += (size_t)j->v_dim * KV_SPLIT * 2;
    ws->o = (float *)(void *)at;
}

/* ---------------------------------------------------------------- q */

static void pack(const struct attn_job *j, const struct rows *r, struct workspace *ws)
{
    const uint32_t dim = j->p->head_dim, square = r->n < SQUARE ? r->n : SQUARE;
    struct square_row to = {.step = square * row_step(j),
                            .part = (size_t)square * SQUARE_STEP_BYTES,
                            .parts = j->products.squares};
    const size_t below = (size_t)(dim / STEP_DIMS) * to.step;
    _Alignas(64) float q[MAX_HEAD_DIM];
    memset(ws->q, 0, q_bytes(j, in_whole(r->n)));
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(q, row_q(j, r, i), dim * sizeof(*q));
        j->d->kern.soft_cap(q, dim, j->p->scale, 0.0f);
        to.to = (char *)ws->q + i / SQUARE * below + (size_t)(i % SQUARE) * SQUARE_STEP_BYTES;
        square_place_bf16(&j->d->kern, &to, q, dim);
    }
}

/* ---------------------------------------------------------------- a split */

static void scores(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                   const struct range *a)
{
    const uint32_t steps = j->p->head_dim / STEP_DIMS, square = r->n < SQUARE ? r->n : SQUARE;
    j->d->kern.squares_bf16(&(struct squares){.sums = ws->s,
                                              .sums_bytes = KV_SCORES_LD * sizeof(float),
                                              .x = ws->q,
                                              .x_bytes = (size_t)steps * square * row_step(j),
                                              .panels = ws->pages,
                                              .tall = (r->n + SQUARE - 1) / SQUARE,
                                              .wide = a->pages,
                                              .steps = steps,
                                              .rows = square,
                                              .parts = j->products.squares,
                                              .fetch = r->n <= SQUARE ? SQUARE_BYTES : 0});
}

/* Sets the weighted values of rows [first, first + n) of the tile, from positions [keys.lo,
 * keys.hi) of the range. False if one of the values is not finite. */
static bool sum_rows(const struct attn_job *j, struct workspace *ws, const struct range *a,
                     uint32_t first, uint32_t n, struct kv_seen keys)
{
    const uint32_t square = n < SQUARE ? n : SQUARE, lead = a->begin / KV_PAGE % 2;
    const uint32_t steps = (lead * KV_PAGE + a->end - a->begin + STEP_KEYS - 1) / STEP_KEYS;
    const struct kv_columns at = {lead, steps, keys.lo, keys.hi};
    j->d->kern.square_weights(
        &(struct kv_square_weights){.dst = ws->weights,
                                    .src = ws->s + (size_t)first * KV_SCORES_LD,
                                    .seen = ws->keys + first,
                                    .rows = n,
                                    .square = square,
                                    .parts = j->products.squares,
                                    .lead = lead,
                                    .steps = steps});
    struct kv_square_values v = {
        .dst = ws->values, .pages = ws->pages + a->pages, .dims = j->v_dim, .at = at};
    float *sums = ws->o + (size_t)first * j->v_dim;
    if (n <= SQUARE)
        return j->d->kern.square_sum(&(struct kv_square_sum){.sums = sums,
                                                             .ld = j->v_dim,
                                                             .x = ws->weights,
                                                             .rows = n,
                                                             .parts = j->products.squares,
                                                             .values = v});
    const bool finite = j->d->kern.square_values(&v);
    j->d->kern.squares_bf16(&(struct squares){.sums = sums,
                                              .sums_bytes = j->v_dim * sizeof(float),
                                              .x = ws->weights,
                                              .x_bytes = (size_t)steps * square * row_step(j),
                                              .w = ws->values,
                                              .w_bytes = (size_t)steps * SQUARE_BYTES,
                                              .next = ws->values,
                                              .tall = (n + SQUARE - 1) / SQUARE,
                                              .wide = j->v_dim / SQUARE,
                                              .steps = steps,
                                              .rows = square,
                                              .parts = j->products.squares});
    return finite;
}

/* Rows one after the other that attend to the same keys, a square of them at a time. */
static void sum_apart(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                      const struct range *a)
{
    for (uint32_t i = 0, n; i < r->n; i += n) {
        const struct kv_seen keys = ws->keys[i];
        for (n = 1; i + n < r->n && n < SQUARE; n++)
            if (ws->keys[i + n].lo != keys.lo || ws->keys[i + n].hi != keys.hi)
                break;
        sum_rows(j, ws, a, i, n, keys);
    }
}

static void split(const struct attn_job *j, const struct rows *r, struct workspace *ws,
                  const struct range *a)
{
    const struct kv_seen all = {(r->lo > a->begin ? r->lo : a->begin) - a->begin,
                                a->end - a->begin};
    bool same = true;
    scores(j, r, ws, a);
    for (uint32_t i = 0; i < r->n; i++) {
        ws->keys[i] = attn_weigh_row(j, r, ws, a, i);
        ws->split.o[i] = ws->o + (size_t)i * j->v_dim;
        same &= ws->keys[i].lo == all.lo && ws->keys[i].hi == all.hi;
    }
    if (!sum_rows(j, ws, a, 0, r->n, all) && !same)
        sum_apart(j, r, ws, a);
}

const struct attn_form attn_squares = {tile, open_squares, pack, split};
