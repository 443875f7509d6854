/* kv_avx512bf16.c - the kernels of attention in pairs of bfloat16, over a cache of it or of numbers
 * that it represents: one instruction multiplies both numbers of a word with those of q, or of the
 * weights, and adds them up. Compiled alone with -mavx512bf16. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/host/vector_avx512.inc.h"

#define ISA(op) k_##op##_avx512bf16

/* As kv_avx512.c. */
enum { ROWS_MAX = 12 };
#define KEY_PAGES(rows)    ((rows) <= 6 ? 4 : (rows) <= 8 ? 3 : 2)
#define VALUE_PANELS(rows) ((rows) <= 6 ? 4 : 2)

/* A word of each lane has two columns of keys, and a step two keys. */
#define STEP_COLUMNS(type) (STEP_DIMS(type) / 2)
#define STEP_KEYS          2

INLINE v16 sum_add(v16 sum, v16 a, v16 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)v_bits(a), (__m512bh)v_bits(b));
}

/* Numbers that bfloat16 represents, in the lower and upper halves of words. */
INLINE v16 words(v16 lower, v16 upper)
{
    return i_float(i_and_or(v_bits(upper), i_set(0xffff0000), i_shr(v_bits(lower), 16)));
}

INLINE v16 key_column(const char *step, const enum kv_dtype type, const int which)
{
    const char *at = step + (size_t)which * 2 * kv_dtype_bytes(type, LANES);
    if (type == KV_I8)
        return words(v_from_i8((const int8_t *)at), v_from_i8((const int8_t *)at + LANES));
    if (type == KV_FP8)
        return words(v_from_fp8((const uint8_t *)at), v_from_fp8((const uint8_t *)at + LANES));
    if (type == KV_I4)
        return words(v_from_i4((const uint8_t *)at, 0), v_from_i4((const uint8_t *)at, 1));
    return i_float(i_load(at));
}

/* Panel c of the 32 dimensions at `row`, or of 16 that are not paired; zeros of NULL. */
INLINE v16 panel_of(const char *row, const uint32_t c, const bool paired, const enum kv_dtype type)
{
    if (!row)
        return v_set(0.0f);
    if (type == KV_I8)
        return v_from_i8((const int8_t *)row + (size_t)c * LANES);
    if (type == KV_FP8)
        return v_from_fp8((const uint8_t *)row + (size_t)c * LANES);
    return paired ? v_from_i4((const uint8_t *)row + (size_t)(c / 2) * LANES, c & 1)
                  : v_from_i4_alone((const uint8_t *)row);
}

/* Two positions of bfloat16, of which one may be NULL: panels c and c + 1 of the upper and lower
 * halves of words, 32 dimensions, or 16 that are not paired. */
INLINE void step_bf16(v16 *value, const char *even, const char *odd, const uint32_t panels,
                      const bool paired)
{
    if (!paired) {
        const i16 a = even ? i_from_u16((const uint16_t *)(const void *)even) : i_set(0);
        const i16 b = odd ? i_from_u16((const uint16_t *)(const void *)odd) : i_set(0);
        value[0] = i_float(i_or(i_shl(a, 16), b));
        return;
    }
    UNROLL for (uint32_t c = 0; c < panels; c += 2)
    {
        const i16 a = even ? i_load(even + (size_t)c * 32) : i_set(0);
        const i16 b = odd ? i_load(odd + (size_t)c * 32) : i_set(0);
        value[c] = i_float(_mm512_mask_blend_epi16(0xaaaaaaaa, b, i_shl(a, 16)));
        value[c + 1] = i_float(_mm512_mask_blend_epi16(0xaaaaaaaa, i_shr(b, 16), a));
    }
}

INLINE void step_values(v16 *value, const char *even, const char *odd, const uint32_t skip,
                        const uint32_t panels, const bool paired, const enum kv_dtype type)
{
    (void)skip; /* no block has one panel of two */
    if (type == KV_BF16)
        step_bf16(value, even, odd, panels, paired);
    else
        UNROLL for (uint32_t c = 0; c < panels; c++) value[c] =
            words(panel_of(odd, c, paired, type), panel_of(even, c, paired, type));
}

#include "model-server/backend/cpu/kernels/kv_loops.inc.h"

#define PAIR_KERNELS_OF(name, type)                                                                \
    ROWS_KERNEL(scores_##name, kv_scores, ROWS_MAX, score_rows, type)                              \
    ROWS_KERNEL(values_##name, kv_values, ROWS_MAX, value_rows, type)
PAIR_KERNELS_OF(pairs_bf16, KV_BF16)
PAIR_KERNELS_OF(pairs_i8, KV_I8)
PAIR_KERNELS_OF(pairs_fp8, KV_FP8)
PAIR_KERNELS_OF(pairs_i4, KV_I4)

void k_pair_weights_avx512bf16(float *p, uint32_t pages, const struct kv_scaled *scaled)
{
    for (uint32_t i = 0; i < pages; i++) {
        const float *scales = kv_scales_of(scaled, i);
        v16 w = v_load(p + (size_t)i * KV_PAGE);
        w = scales ? v_mul(w, v_load(scales)) : w;
        const __m256i half = (__m256i)_mm512_cvtneps_pbh(w);
        _mm256_storeu_si256((__m256i *)(p + (size_t)i * KV_PAGE / 2), _mm256_rol_epi32(half, 16));
    }
}
