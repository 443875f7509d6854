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

/* A step has two columns of keys in one word of each lane, and two keys. */
#define STEP_COLUMNS(type) 1
#define STEP_KEYS          2

INLINE v16 sum_add(v16 sum, v16 a, v16 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)v_bits(a), (__m512bh)v_bits(b));
}

INLINE v16 key_column(const char *step, const enum kv_dtype type, const int which)
{
    (void)type, (void)which;
    return i_float(i_load(step));
}

/* Two positions, of which one may be NULL: zeros. Panels c and c + 1 of the upper and lower halves
 * of words, 32 dimensions, or 16 that are not paired. */
INLINE void step_values(v16 *value, const char *even, const char *odd, const uint32_t skip,
                        const uint32_t panels, const bool paired, const enum kv_dtype type)
{
    (void)skip, (void)type;
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

#include "model-server/backend/cpu/kernels/kv_loops.inc.h"

ROWS_KERNEL(scores_pairs, kv_scores, ROWS_MAX, score_rows, KV_BF16)
ROWS_KERNEL(values_pairs, kv_values, ROWS_MAX, value_rows, KV_BF16)

void k_pair_weights_avx512bf16(float *p, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++) {
        const __m256i half = (__m256i)_mm512_cvtneps_pbh(v_load(p + (size_t)i * KV_PAGE));
        _mm256_storeu_si256((__m256i *)(p + (size_t)i * KV_PAGE / 2), _mm256_rol_epi32(half, 16));
    }
}
