/* kv_avx512bf16.c - the kernels of attention over a cache of bfloat16, in pairs: one instruction
 * multiplies both numbers of a word with those of q, or of the weights, and adds them up. Compiled
 * alone with -mavx512bf16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512bf16

/* As kv_avx512.c. */
enum { ROWS_MAX = 12 };
#define KEY_PAGES(rows)    ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)
#define VALUE_PANELS(rows) ((rows) <= 6 ? 4 : 2)
#include "model-server/backend/cpu/kernels/rows.inc.h"

INLINE v16 dot2(v16 sum, i16 a, i16 b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

/* A word of a row for all lanes. */
INLINE i16 word(const float *p) { return v_bits(v_set(*p)); }

/* ---------------------------------------------------------------- scores */

INLINE void score_pages(const struct kv_scores *t, uint32_t first_page, uint32_t first,
                        const uint32_t rows, const uint32_t pages)
{
    const uint32_t qs = tile_stride(t->rows);
    const char *const *page = t->pages + first_page;
    const float *q = t->q + first;
    float *s = t->s + (size_t)first * KV_SCORES_LD + (size_t)first_page * KV_PAGE;
    const size_t end = (size_t)kv_dims(t->head_dim) / 2 * sizeof(v16);
    v16 acc[12][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] = v_set(0.0f);
    }
    for (size_t at = 0; at < end; at += sizeof(v16), q += qs) {
        i16 key[4];
        UNROLL for (uint32_t p = 0; p < pages; p++)
        {
            __builtin_prefetch(page[p + KV_AHEAD] + at);
            key[p] = i_load(page[p] + at);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const i16 qr = word(q + r);
            UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] = dot2(acc[r][p], key[p], qr);
        }
    }
    UNROLL for (uint32_t p = 0; p < pages; p++)
    {
        UNROLL for (uint32_t r = 0; r < rows; r++)
            v_store(s + r * KV_SCORES_LD + p * KV_PAGE, acc[r][p]);
    }
}

INLINE void score_rows(const struct kv_scores *t, uint32_t first, const uint32_t rows)
{
    const uint32_t most = KEY_PAGES(rows);
    uint32_t page = 0;
    for (; page + most <= t->n; page += most)
        score_pages(t, page, first, rows, most);
    for (; page < t->n; page++)
        score_pages(t, page, first, rows, 1);
}

ROWS_KERNEL(scores_pairs, kv_scores, ROWS_MAX, score_rows)

/* ---------------------------------------------------------------- values */

/* Two positions, of which one may be NULL: zeros. Panels c and c + 1 of the upper and lower halves
 * of words, 32 dimensions, or 16 that are not paired. */
INLINE void pair_panels(i16 *value, const char *even, const char *odd, const uint32_t panels,
                        const bool paired)
{
    if (!paired) {
        const i16 a = even ? i_from_u16((const uint16_t *)(const void *)even) : i_set(0);
        const i16 b = odd ? i_from_u16((const uint16_t *)(const void *)odd) : i_set(0);
        value[0] = i_or(i_shl(a, 16), b);
        return;
    }
    UNROLL for (uint32_t c = 0; c < panels; c += 2)
    {
        const i16 a = even ? i_load(even + (size_t)c * 32) : i_set(0);
        const i16 b = odd ? i_load(odd + (size_t)c * 32) : i_set(0);
        value[c] = _mm512_mask_blend_epi16(0xaaaaaaaa, b, i_shl(a, 16));
        value[c + 1] = _mm512_mask_blend_epi16(0xaaaaaaaa, i_shr(b, 16), a);
    }
}

/* Adds a pair of positions, whose words of weights are p[] of the rows. */
INLINE void add_pair(v16 (*acc)[4], const char *even, const char *odd, const float *p,
                     const uint32_t rows, const uint32_t panels, const bool paired)
{
    i16 value[4];
    pair_panels(value, even, odd, panels, paired);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const i16 pr = word(p + r * KV_SCORES_LD);
        UNROLL for (uint32_t c = 0; c < panels; c++) acc[r][c] = dot2(acc[r][c], value[c], pr);
    }
}

/* `panels` vectors of the head from panel `base` on. */
INLINE void value_panels(const struct kv_values *t, uint32_t base, uint32_t first,
                         const uint32_t rows, const uint32_t panels, const bool paired)
{
    const size_t from = (size_t)base * LANES * sizeof(uint16_t);
    const size_t row_bytes = (size_t)kv_padded(t->head_dim) * sizeof(uint16_t);
    const float *p = t->p + (size_t)first * KV_SCORES_LD;
    float *o = t->o + first * t->ldo + (size_t)base * LANES;
    v16 acc[12][4];
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t c = 0; c < panels; c++) acc[r][c] = v_load(o + r * t->ldo + c * LANES);
    }
    uint32_t key = t->first & ~1u;
    if (key < t->first) { /* a run begins, and below ends, within a pair */
        const char *row = t->pages[key / KV_PAGE] + from + (key % KV_PAGE + 1) * row_bytes;
        add_pair(acc, NULL, row, p + key / 2, rows, panels, paired);
        key += 2;
    }
    const uint32_t whole = t->end & ~1u;
    while (key < whole) {
        const uint32_t page = key / KV_PAGE;
        uint32_t stop = (page + 1) * KV_PAGE;
        const size_t at = from + key % KV_PAGE * row_bytes;
        const char *row = t->pages[page] + at, *ahead = t->pages[page + KV_AHEAD] + at;
        for (stop = stop < whole ? stop : whole; key < stop; key += 2) {
            UNROLL for (size_t b = 0; b < panels * 32; b += 64)
            {
                __builtin_prefetch(ahead + b);
                __builtin_prefetch(ahead + row_bytes + b);
            }
            add_pair(acc, row, row + row_bytes, p + key / 2, rows, panels, paired);
            row += 2 * row_bytes;
            ahead += 2 * row_bytes;
        }
    }
    if (key < t->end)
        add_pair(acc, t->pages[key / KV_PAGE] + from + key % KV_PAGE * row_bytes, NULL, p + key / 2,
                 rows, panels, paired);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        UNROLL for (uint32_t c = 0; c < panels; c++) v_store(o + r * t->ldo + c * LANES, acc[r][c]);
    }
}

INLINE void value_rows(const struct kv_values *t, uint32_t first, const uint32_t rows)
{
    const uint32_t most = VALUE_PANELS(rows), n = kv_padded(t->head_dim) / LANES;
    uint32_t at = 0;
    if (most == 4)
        for (; at + 4 <= n; at += 4)
            value_panels(t, at, first, rows, 4, true);
    for (; at + 2 <= n; at += 2)
        value_panels(t, at, first, rows, 2, true);
    if (at < n)
        value_panels(t, at, first, rows, 1, false);
}

ROWS_KERNEL(values_pairs, kv_values, ROWS_MAX, value_rows)

void k_pair_weights_avx512bf16(float *p, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++) {
        const __m256i half = (__m256i)_mm512_cvtneps_pbh(v_load(p + (size_t)i * KV_PAGE));
        _mm256_storeu_si256((__m256i *)(p + (size_t)i * KV_PAGE / 2), _mm256_rol_epi32(half, 16));
    }
}
