/* kv_loops.inc.h - the loops of attention over pages of the cache, for every form of its numbers:
 * rows of queries by pages of keys, rows of weights by panels of values, with all sums of a block
 * in registers. The including file defines how many rows a block has at most: ROWS_MAX. It defines
 * for each number of rows the pages of keys, KEY_PAGES(rows), and the vectors of values,
 * VALUE_PANELS(rows): 1, 2 or 4. And it defines the form:
 *
 *   STEP_COLUMNS(type)  columns of 64 bytes of a page of keys, each for one number of q
 *   key_column()        one of them
 *   STEP_KEYS           keys whose values are multiplied at a time: 1 or 2
 *   step_values()       the values of one step, of which the first or the last key may be absent
 *   sum_add(sum, a, b)  sum + a b */
#include "model-server/backend/cpu/kernels/rows.inc.h"

/* ---------------------------------------------------------------- scores */

/* Number of dimensions in 64 bytes of a page of keys. */
#define STEP_DIMS(type) ((uint32_t)(4 * LANES / kv_dtype_bytes(type, LANES)))

INLINE void add_column(v16 (*acc)[4], const char *const *page, size_t at, const float *q,
                       const uint32_t rows, const uint32_t pages, const enum kv_dtype type,
                       const int which)
{
    v16 key[4];
    UNROLL for (uint32_t p = 0; p < pages; p++) key[p] = key_column(page[p] + at, type, which);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        v16 qr = v_set(q[r]);
        UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] = sum_add(acc[r][p], key[p], qr);
    }
}

INLINE void score_pages(const struct kv_scores *t, uint32_t first_page, uint32_t first,
                        const uint32_t rows, const uint32_t pages, const enum kv_dtype type)
{
    const uint32_t qs = tile_stride(t->rows), dims = STEP_DIMS(type);
    const char *const *page = t->pages + first_page;
    const float *q = t->q + first;
    float *s = t->s + (size_t)first * KV_SCORES_LD + (size_t)first_page * KV_PAGE;
    v16 acc[12][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] = v_set(0.0f);
    }
    const size_t end = (size_t)kv_dims(t->head_dim) / dims * 64;
    for (size_t at = 0; at < end; at += 64) {
        UNROLL for (uint32_t p = 0; p < pages; p++) __builtin_prefetch(page[p + KV_AHEAD] + at);
        UNROLL for (uint32_t c = 0; c < STEP_COLUMNS(type); c++)
        {
            add_column(acc, page, at, q, rows, pages, type, (int)c);
            q += qs;
        }
    }
    UNROLL for (uint32_t p = 0; p < pages; p++)
    {
        float *to = s + p * KV_PAGE;
        const float *scales = kv_dtype_scaled(type) ? kv_scales(page[p], type, t->head_dim)
                                                    : kv_scales_of(&t->scaled, first_page + p);
        if (scales) {
            const v16 scale = v_load(scales);
            UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][p] = v_mul(acc[r][p], scale);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) v_store(to + r * KV_SCORES_LD, acc[r][p]);
    }
}

INLINE void score_rows(const struct kv_scores *t, uint32_t first, const uint32_t rows,
                       const enum kv_dtype type)
{
    const uint32_t most = KEY_PAGES(rows);
    uint32_t page = 0;
    for (; page + most <= t->n; page += most)
        score_pages(t, page, first, rows, most, type);
    if (most > 1)
        for (; page < t->n; page++)
            score_pages(t, page, first, rows, 1, type);
}

/* ---------------------------------------------------------------- values */

/* Adds the keys of a step, whose weights, or words of weights, are p[] of the rows. */
INLINE void add_keys(v16 (*acc)[4], const char *row, const char *next, const float *p,
                     const uint32_t rows, const uint32_t skip, const uint32_t panels,
                     const bool paired, const enum kv_dtype type)
{
    v16 value[4];
    step_values(value, row, next, skip, panels, paired, type);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const v16 pr = v_set(p[r * KV_SCORES_LD]);
        UNROLL for (uint32_t c = 0; c < panels; c++) acc[r][c] = sum_add(acc[r][c], value[c], pr);
    }
}

/* `panels` vectors of the head from panel `base` + `skip` on. */
INLINE void value_panels(const struct kv_values *t, uint32_t base, const uint32_t skip,
                         uint32_t first, const uint32_t rows, const uint32_t panels,
                         const bool paired, const enum kv_dtype type)
{
    const size_t width = kv_dtype_bytes(type, LANES), from = base * width;
    const size_t row_bytes = kv_dtype_bytes(type, kv_padded(t->head_dim));
    const float *p = t->p + (size_t)first * KV_SCORES_LD;
    float *o = t->o + first * t->ldo + (size_t)(base + skip) * LANES;
    v16 acc[12][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t c = 0; c < panels; c++) acc[r][c] = v_load(o + r * t->ldo + c * LANES);
    }
    uint32_t key = t->first / STEP_KEYS * STEP_KEYS;
    if (STEP_KEYS > 1 && key < t->first) { /* a run begins, and below ends, within a step */
        const char *row = t->pages[key / KV_PAGE] + from + (key % KV_PAGE + 1) * row_bytes;
        add_keys(acc, NULL, row, p + key / STEP_KEYS, rows, skip, panels, paired, type);
        key += STEP_KEYS;
    }
    const uint32_t whole = t->end / STEP_KEYS * STEP_KEYS;
    while (key < whole) {
        uint32_t page = key / KV_PAGE, stop = (page + 1) * KV_PAGE;
        const size_t at = from + key % KV_PAGE * row_bytes;
        const char *row = t->pages[page] + at, *ahead = t->pages[page + KV_AHEAD] + at;
        for (stop = stop < whole ? stop : whole; key < stop; key += STEP_KEYS) {
            UNROLL for (size_t b = 0; b < panels * width; b += 64)
            {
                UNROLL for (size_t k = 0; k < STEP_KEYS; k++)
                    __builtin_prefetch(ahead + k * row_bytes + b);
            }
            add_keys(acc, row, row + row_bytes, p + key / STEP_KEYS, rows, skip, panels, paired,
                     type);
            row += STEP_KEYS * row_bytes;
            ahead += STEP_KEYS * row_bytes;
        }
    }
    if (STEP_KEYS > 1 && key < t->end)
        add_keys(acc, t->pages[key / KV_PAGE] + from + key % KV_PAGE * row_bytes, NULL,
                 p + key / STEP_KEYS, rows, skip, panels, paired, type);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t c = 0; c < panels; c++) v_store(o + r * t->ldo + c * LANES, acc[r][c]);
    }
}

INLINE void value_rows(const struct kv_values *t, uint32_t first, const uint32_t rows,
                       const enum kv_dtype type)
{
    const uint32_t most = VALUE_PANELS(rows), n = kv_padded(t->head_dim) / LANES;
    uint32_t at = 0;
    if (most == 4)
        for (; at + 4 <= n; at += 4)
            value_panels(t, at, 0, first, rows, 4, true, type);
    if (most >= 2)
        for (; at + 2 <= n; at += 2)
            value_panels(t, at, 0, first, rows, 2, true, type);
    if (most == 1)
        for (; at + 2 <= n; at += 2) {
            value_panels(t, at, 0, first, rows, 1, true, type);
            value_panels(t, at, 1, first, rows, 1, true, type);
        }
    if (at < n)
        value_panels(t, at, 0, first, rows, 1, false, type);
}
