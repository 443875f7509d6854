/* kv.inc.h - the kernels of attention in vectors of 16 lanes, once for all instruction sets: see
 * simd.inc.h and kv_loops.inc.h. Keys and values become fp32, one key at a time. */

#define STEP_COLUMNS(type) STEP_DIMS(type)
#define STEP_KEYS          1

INLINE v16 sum_add(v16 sum, v16 a, v16 b) { return v_fma(a, b, sum); }

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

INLINE void step_values(v16 *value, const char *row, const char *next, const uint32_t skip,
                        const uint32_t panels, const bool paired, const enum kv_dtype type)
{
    (void)next;
    UNROLL for (uint32_t c = 0; c < panels; c++) value[c] =
        value_panel(row, type, skip + c, paired);
}

#include "model-server/backend/cpu/kernels/kv_loops.inc.h"

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

/* ---------------------------------------------------------------- pages as pages of bfloat16 */

/* Numbers that bfloat16 represents, in the lower and upper halves of words. */
INLINE i16 words(v16 lower, v16 upper)
{
    return i_and_or(v_bits(upper), i_set(0xffff0000), i_shr(v_bits(lower), 16));
}

INLINE void widen_keys(char *dst, const char *page, const char *ahead, uint32_t dim,
                       const enum kv_dtype type)
{
    const size_t end = (size_t)kv_dims(dim) / STEP_DIMS(type) * 64;
    for (size_t at = 0; at < end; at += 64) {
        __builtin_prefetch(ahead + at);
        UNROLL for (int c = 0; c < (int)STEP_DIMS(type); c += 2, dst += 64)
            i_store(dst, words(key_column(page + at, type, c), key_column(page + at, type, c + 1)));
    }
}

INLINE void widen_values(char *dst, const char *page, const char *ahead, uint32_t dim,
                         const enum kv_dtype type)
{
    const uint32_t panels = kv_padded(dim) / LANES;
    const size_t width = kv_dtype_bytes(type, LANES);
    for (size_t at = 0; at < KV_PAGE * panels * width; at += 64)
        __builtin_prefetch(ahead + at);
    for (uint32_t key = 0; key < KV_PAGE; key++) {
        for (uint32_t p = 0; p + 2 <= panels; p += 2, page += 2 * width, dst += 64)
            i_store(dst, words(value_panel(page, type, 0, true), value_panel(page, type, 1, true)));
        if (panels % 2) {
            i_store_u16((uint16_t *)dst, i_shr(v_bits(value_panel(page, type, 0, false)), 16));
            page += width, dst += 32;
        }
    }
}

#define WIDEN_KERNEL(op)                                                                           \
    void ISA(op)(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim,             \
                 enum kv_dtype t)                                                                  \
    {                                                                                              \
        for (uint32_t i = 0; i < n; i++)                                                           \
            if (t == KV_I8)                                                                        \
                op(dst[i], pages[i], pages[i + KV_AHEAD], dim, KV_I8);                             \
            else if (t == KV_FP8)                                                                  \
                op(dst[i], pages[i], pages[i + KV_AHEAD], dim, KV_FP8);                            \
            else                                                                                   \
                op(dst[i], pages[i], pages[i + KV_AHEAD], dim, KV_I4);                             \
    }
WIDEN_KERNEL(widen_keys)
WIDEN_KERNEL(widen_values)

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
