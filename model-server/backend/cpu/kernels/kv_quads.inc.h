/* kv_quads.inc.h - the kernels of kv_quads.h, once for all instruction sets (see simd.inc.h). The
 * including file includes a vector_*.inc.h and defines
 *   i_quads()      four rows of 16 bytes as 16 quads
 *   dot_quads()    sum + n x for quads of n, 0 to 15, and of x, -127 to 127
 * and how many sums do: ROWS_MAX rows, KEY_PAGES(rows), VALUE_PANELS(rows), both at most 4. */
#include "model-server/backend/cpu/kernels/rows.inc.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- to bytes */

/* Numbers [at, at + 16) of the row, times their scales; 0 outside of [lo, hi). */
INLINE v16 counted(const struct kv_to_bytes *t, uint32_t at)
{
    const float *scales = kv_scales_of(&t->scaled, at / LANES);
    const v16 v = scales ? v_mul(v_load(t->x + at), v_load(scales)) : v_load(t->x + at);
    float all[LANES];
    if (at >= t->lo && at + LANES <= t->hi)
        return v;
    v_store(all, v);
    for (uint32_t i = 0; i < LANES; i++)
        all[i] = at + i >= t->lo && at + i < t->hi ? all[i] : 0;
    return v_load(all);
}

/* A group with numbers [begin, end), which are vectors of which at least one counts. */
INLINE void group_to_bytes(const struct kv_to_bytes *t, uint32_t g, uint32_t begin, uint32_t end)
{
    i16 most = i_set(0), sum = i_set(0);
    for (uint32_t at = begin; at < end; at += LANES) { /* as integers: NaN is the greatest */
        const v16 v = counted(t, at);
        v_store(t->x + at, v);
        most = i_max(most, i_and(v_bits(v), i_set(0x7fffffff)));
    }
    const float top = float_of((uint32_t)i_top(most));
    const bool some = isfinite(top) && top >= 0x1p-100f;
    const v16 to = v_set(some ? QUAD_TOP / top : 0);
    t->scales[g] = some ? top / QUAD_TOP : isfinite(top) ? 0 : NAN;
    for (uint32_t at = begin; at < end; at += LANES) { /* in place: dst is never ahead of x */
        const i16 n = some ? v_to_int(v_mul(v_load(t->x + at), to)) : i_set(0);
        i_store_s8(t->dst + at, n);
        sum = i_add(sum, n);
    }
    t->sums[g] = i_sum(sum);
}

void ISA(kv_to_bytes)(struct kv_to_bytes *t)
{
    for (uint32_t g = 0, begin = 0, end; begin < t->n; g++, begin = end) {
        end = begin + t->group - (g ? 0 : t->lead);
        end = end < t->n ? end : t->n;
        if (end > t->lo && begin < t->hi) {
            group_to_bytes(t, g, begin, end);
            continue;
        }
        memset(t->dst + begin, 0, end - begin);
        t->scales[g] = 0, t->sums[g] = 0;
    }
}

/* ---------------------------------------------------------------- quads of pages */

INLINE i16 nibbles(i16 pairs, const int high)
{
    return i_and(high ? i_shr(pairs, 4) : pairs, i_set(0x0f0f0f0f));
}

/* Panel `c` of positions 4 k .. 4 k + 3 of a page of values, of which one byte has two panels if
 * they are `paired`. */
INLINE i16 value_nibbles(const char *page, uint32_t k, uint32_t c, uint32_t dim, const bool paired)
{
    const size_t row = kv_padded(dim) / 2;
    char alone[4][LANES];
    page += 4 * k * row + (size_t)(c & ~1u) * LANES / 2;
    if (paired)
        return nibbles(i_quads(page, row), c & 1);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t d = 0; d < LANES / 2; d++) {
            const uint8_t two = (uint8_t)page[i * row + d];
            alone[i][d] = (char)(two & 15), alone[i][d + LANES / 2] = (char)(two >> 4);
        }
    return i_quads(alone[0], LANES);
}

void ISA(quads_of_keys)(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t at = 0; at < (size_t)kv_dims(dim) / 8 * STEP_BYTES; at += STEP_BYTES) {
            const i16 two = i_quads(pages[i] + at, LANES);
            __builtin_prefetch(pages[i + KV_AHEAD] + at);
            i_store(dst[i] + 2 * at, nibbles(two, 0));
            i_store(dst[i] + 2 * at + STEP_BYTES, nibbles(two, 1));
        }
}

/* What `panels` panels from `c` on have of page `ahead`. */
INLINE void fetch_values(const char *ahead, uint32_t c, const uint32_t panels)
{
    const size_t each = kv_dtype_bytes(KV_I4, (size_t)KV_PAGE * LANES);
    for (size_t b = 0; b < panels * each; b += 64)
        __builtin_prefetch(ahead + c * each + b);
}

void ISA(quads_of_values)(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim)
{
    const uint32_t panels = kv_padded(dim) / LANES;
    for (uint32_t i = 0; i < n; i++) {
        fetch_values(pages[i + KV_AHEAD], 0, panels);
        for (uint32_t at = 0; at < 4 * panels; at++)
            i_store(dst[i] + (size_t)at * STEP_BYTES,
                    value_nibbles(pages[i], at % 4, at / 4, dim, (at / 4 | 1u) < panels));
    }
}

/* ---------------------------------------------------------------- scores */

/* `pages` pages from `page` on. Of pages that are not packed, 64 bytes have two quads of 16
 * keys. */
INLINE void score_pages(const struct kv_quad_scores *t, uint32_t page, uint32_t first,
                        const uint32_t rows, const uint32_t pages, const bool packed)
{
    const uint32_t each = packed ? 1 : 2, steps = kv_dims(t->head_dim) / 4 / each;
    const char *const *at = t->pages + page;
    const int32_t *q = t->q + first;
    i16 acc[ROWS_MAX][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] =
            i_set((uint32_t)(-NIBBLE_ZERO * t->sums[first + r]));
    }
    for (size_t k = 0; k < (size_t)steps * STEP_BYTES; k += STEP_BYTES) {
        i16 keys[4];
        UNROLL for (uint32_t p = 0; p < pages; p++)
        {
            if (!packed)
                __builtin_prefetch(at[p + KV_AHEAD] + k);
            keys[p] = packed ? i_load(at[p] + k) : i_quads(at[p] + k, LANES);
        }
        UNROLL for (uint32_t h = 0; h < each; h++, q += t->rows)
        {
            i16 n[4];
            UNROLL for (uint32_t p = 0; p < pages; p++) n[p] =
                packed ? keys[p] : nibbles(keys[p], (int)h);
            UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                const i16 x = i_set((uint32_t)q[r]);
                UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] =
                    dot_quads(acc[r][p], n[p], x);
            }
        }
    }
    UNROLL for (uint32_t p = 0; p < pages; p++)
    {
        const v16 scale = v_load(kv_scales_of(&t->scaled, page + p));
        float *s = t->s + (size_t)first * KV_SCORES_LD + (size_t)(page + p) * KV_PAGE;
        UNROLL for (uint32_t r = 0; r < rows; r++)
            v_store(s + r * KV_SCORES_LD,
                    v_mul(v_from_int(acc[r][p]), v_mul(v_set(t->scales[first + r]), scale)));
    }
}

INLINE void score_rows(const struct kv_quad_scores *t, uint32_t first, const uint32_t rows,
                       const bool packed)
{
    const uint32_t most = KEY_PAGES(rows);
    uint32_t page = 0;
    for (; page + most <= t->n; page += most)
        score_pages(t, page, first, rows, most, packed);
    if (most > 1)
        for (; page < t->n; page++)
            score_pages(t, page, first, rows, 1, packed);
}

/* ---------------------------------------------------------------- values */

/* Adds positions of a page, whose weights are at p. */
INLINE void add_page(const struct kv_quad_values *t, i16 (*acc)[4], const char *page,
                     const int8_t *p, const uint32_t c, const uint32_t rows, const uint32_t panels,
                     const bool paired, const bool packed)
{
    for (uint32_t k = 0; k < 4; k++) {
        i16 n[4];
        UNROLL for (uint32_t i = 0; i < panels; i++) n[i] =
            packed ? i_load(page + ((size_t)(c + i) * 4 + k) * STEP_BYTES)
                   : value_nibbles(page, k, c + i, t->head_dim, paired);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            int32_t word;
            memcpy(&word, p + r * t->ldp + (size_t)4 * k, sizeof(word));
            const i16 x = i_set((uint32_t)word);
            UNROLL for (uint32_t i = 0; i < panels; i++) acc[r][i] = dot_quads(acc[r][i], n[i], x);
        }
    }
}

/* `panels` vectors of the head from panel `c` on. */
INLINE void sum_panels(const struct kv_quad_values *t, const uint32_t c, uint32_t first,
                       const uint32_t rows, const uint32_t panels, const bool paired,
                       const bool packed)
{
    const int8_t *p = t->p + first * t->ldp;
    float *o = t->o + first * t->ldo + (size_t)c * LANES;
    for (uint32_t g = 0, j = 0, end; j < t->n; g++) {
        const float *scales = t->scales + (size_t)first * QUAD_GROUPS + g;
        const int32_t *sums = t->sums + (size_t)first * QUAD_GROUPS + g;
        i16 acc[ROWS_MAX][4];
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            UNROLL for (uint32_t i = 0; i < panels; i++) acc[r][i] =
                i_set((uint32_t)(-NIBBLE_ZERO * sums[r * QUAD_GROUPS]));
        }
        end = j + QUAD_GROUP / KV_PAGE - (g ? 0 : t->lead);
        for (end = end < t->n ? end : t->n; j < end; j++, p += KV_PAGE) {
            if (!packed)
                fetch_values(t->pages[j + KV_AHEAD], c, panels);
            add_page(t, acc, t->pages[j], p, c, rows, panels, paired, packed);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const v16 scale = v_set(scales[r * QUAD_GROUPS]);
            UNROLL for (uint32_t i = 0; i < panels; i++)
            {
                float *to = o + r * t->ldo + (size_t)i * LANES;
                v_store(to, v_fma(v_from_int(acc[r][i]), scale, g ? v_load(to) : v_set(0.0f)));
            }
        }
    }
}

INLINE void sum_rows(const struct kv_quad_values *t, uint32_t first, const uint32_t rows,
                     const bool packed)
{
    const uint32_t most = VALUE_PANELS(rows), n = kv_padded(t->head_dim) / LANES;
    uint32_t c = 0;
    if (most == 4)
        for (; c + 4 <= n; c += 4)
            sum_panels(t, c, first, rows, 4, true, packed);
    if (most >= 2)
        for (; c + 2 <= n; c += 2)
            sum_panels(t, c, first, rows, 2, true, packed);
    for (; c < n; c++)
        sum_panels(t, c, first, rows, 1, (c | 1u) < n, packed);
}

/* ---------------------------------------------------------------- packed or not */

#define QUAD_KERNEL(op, tile, some_rows)                                                           \
    EACH_ROWS(op##_stored, tile, ROWS_MAX, some_rows, false)                                       \
    EACH_ROWS(op##_packed, tile, ROWS_MAX, some_rows, true)                                        \
    void ISA(op)(const struct tile *t) { (t->packed ? op##_packed : op##_stored)(t); }
QUAD_KERNEL(scores_quads, kv_quad_scores, score_rows)
QUAD_KERNEL(values_quads, kv_quad_values, sum_rows)
