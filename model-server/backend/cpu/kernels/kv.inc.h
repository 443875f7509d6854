/* kv.inc.h - the kernels of attention in vectors of 16 lanes, once for all instruction
 * sets: see simd.inc.h. The including file defines the number of rows at a time. For each
 * number of rows it defines the pages of keys, and the vectors of values (1, 2 or 4): ROWS_MAX,
 * KEY_PAGES(rows), VALUE_PANELS(rows). */
#include "model-server/backend/cpu/kernels/rows.inc.h"

/* ---------------------------------------------------------------- scores */

/* Number of dimensions in 64 bytes of a page of keys. */
#define STEP_DIMS(type) ((uint32_t)(4 * LANES / kv_dtype_bytes(type, LANES)))

INLINE v16 key_column(const char *step, const enum kv_dtype type, const int which)
{
    if (type == KV_F32)
        return v_load((const float *)step);
    if (type == KV_F16)
        return v_from_f16((const uint16_t *)step + which * LANES);
    if (type == KV_I8)
        return v_from_i8((const int8_t *)step + which * LANES);
    if (type == KV_FP8)
        return v_from_fp8((const uint8_t *)step + which * LANES);
    if (type == KV_I4)
        return v_from_i4((const uint8_t *)step + which / 2 * LANES, which & 1);
    i16 pair = i_load(step);
    return i_float(which ? i_and(pair, i_set(0xffff0000)) : i_shl(pair, 16));
}

INLINE void add_column(v16 (*acc)[4], const char *const *page, size_t at, const float *q,
                       const uint32_t rows, const uint32_t pages, const enum kv_dtype type,
                       const int which)
{
    v16 key[4];
    UNROLL for (uint32_t p = 0; p < pages; p++) key[p] = key_column(page[p] + at, type, which);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        v16 qr = v_set(q[r]);
        UNROLL for (uint32_t p = 0; p < pages; p++) acc[r][p] = v_fma(key[p], qr, acc[r][p]);
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
        UNROLL for (uint32_t c = 0; c < dims; c++)
        {
            add_column(acc, page, at, q, rows, pages, type, (int)c);
            q += qs;
        }
    }
    UNROLL for (uint32_t p = 0; p < pages; p++)
    {
        v16 scale =
            kv_dtype_scaled(type) ? v_load(kv_scales(page[p], type, t->head_dim)) : v_set(0.0f);
        UNROLL for (uint32_t r = 0; r < rows; r++)
            v_store(s + r * KV_SCORES_LD + p * KV_PAGE,
                    kv_dtype_scaled(type) ? v_mul(acc[r][p], scale) : acc[r][p]);
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

/* Panel `base + which` of a row of values; `row` points to panel `base`, which is even or
 * alone. */
INLINE v16 value_panel(const char *row, const enum kv_dtype type, const uint32_t which,
                       const bool paired)
{
    if (type == KV_F32)
        return v_load((const float *)row + which * LANES);
    if (type == KV_F16)
        return v_from_f16((const uint16_t *)row + which * LANES);
    if (type == KV_I8)
        return v_from_i8((const int8_t *)row + which * LANES);
    if (type == KV_FP8)
        return v_from_fp8((const uint8_t *)row + which * LANES);
    if (type == KV_I4)
        return paired ? v_from_i4((const uint8_t *)row + which / 2 * LANES, which & 1)
                      : v_from_i4_alone((const uint8_t *)row);
    if (!paired)
        return i_float(i_shl(i_from_u16((const uint16_t *)row), 16));
    i16 pair = i_load(row + (which & ~1u) * 32);
    return i_float(which & 1 ? i_and(pair, i_set(0xffff0000)) : i_shl(pair, 16));
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
    for (uint32_t key = t->first; key < t->end;) {
        uint32_t page = key / KV_PAGE, stop = (page + 1) * KV_PAGE;
        const size_t at = from + key % KV_PAGE * row_bytes;
        const char *row = t->pages[page] + at, *ahead = t->pages[page + KV_AHEAD] + at;
        for (stop = stop < t->end ? stop : t->end; key < stop; key++) {
            UNROLL for (size_t b = 0; b < panels * width; b += 64) __builtin_prefetch(ahead + b);
            v16 value[4];
            UNROLL for (uint32_t c = 0; c < panels; c++) value[c] =
                value_panel(row, type, skip + c, paired);
            UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                v16 pr = v_set(p[r * KV_SCORES_LD + key]);
                UNROLL for (uint32_t c = 0; c < panels; c++) acc[r][c] =
                    v_fma(value[c], pr, acc[r][c]);
            }
            row += row_bytes;
            ahead += row_bytes;
        }
    }
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

/* ---------------------------------------------------------------- every type */

#define KV_KERNELS(name, type)                                                                     \
    ROWS_KERNEL(scores_##name, kv_scores, ROWS_MAX, score_rows, type)                              \
    ROWS_KERNEL(values_##name, kv_values, ROWS_MAX, value_rows, type)
KV_KERNELS(f32, KV_F32)
KV_KERNELS(f16, KV_F16)
KV_KERNELS(bf16, KV_BF16)
KV_KERNELS(i8, KV_I8)
KV_KERNELS(fp8, KV_FP8)
KV_KERNELS(i4, KV_I4)

/* ---------------------------------------------------------------- scales */

void ISA(weigh)(float *p, uint32_t rows, const char *const *pages, uint32_t n, size_t scales)
{
    for (uint32_t j = 0; j < n; j++) {
        v16 scale = v_load((const float *)(const void *)(pages[j] + scales));
        float *at = p + (size_t)j * KV_PAGE;
        for (uint32_t r = 0; r < rows; r++, at += KV_SCORES_LD)
            v_store(at, v_mul(v_load(at), scale));
    }
}
