/* kernels_kv_ref.c - reference of the kernels of attention and its cache: see kernels_ref.c. */
#include "model-server/backend/cpu/kernels.h"
#include "model-server/backend/cpu/mathf.h"

static float number_in(const char *page, enum kv_dtype t, size_t at)
{
    switch (t) {
    case KV_F32:
        return ((const float *)(const void *)page)[at];
    case KV_F16:
        return f32_of_f16(((const uint16_t *)(const void *)page)[at]);
    case KV_BF16:
        return f32_of_bf16(((const uint16_t *)(const void *)page)[at]);
    case KV_I8:
        return ((const int8_t *)page)[at];
    case KV_FP8:
        return f32_of_fp8(((const uint8_t *)page)[at]);
    case KV_I4:
        return (float)(((const uint8_t *)page)[at / 2] >> at % 2 * 4 & 15) - 8;
    case KV_N:
        break;
    }
    __builtin_unreachable();
}

static void scores(const struct kv_scores *t, enum kv_dtype type)
{
    uint32_t qs = tile_stride(t->rows);
    for (uint32_t key = 0; key < t->n * KV_PAGE; key++) {
        const char *page = t->pages[key / KV_PAGE];
        uint32_t i = key % KV_PAGE;
        for (uint32_t r = 0; r < t->rows; r++) {
            float acc = 0.0f;
            for (uint32_t d = 0; d < kv_dims(t->head_dim); d++)
                acc = fmaf(number_in(page, type, kv_key_at(type, i, d)), t->q[(size_t)d * qs + r],
                           acc);
            if (kv_dtype_scaled(type))
                acc *= kv_scales(page, type, t->head_dim)[i];
            t->s[(size_t)r * KV_SCORES_LD + key] = acc;
        }
    }
}

void k_scores_f32_ref(const struct kv_scores *t) { scores(t, KV_F32); }
void k_scores_f16_ref(const struct kv_scores *t) { scores(t, KV_F16); }
void k_scores_bf16_ref(const struct kv_scores *t) { scores(t, KV_BF16); }
void k_scores_i8_ref(const struct kv_scores *t) { scores(t, KV_I8); }
void k_scores_fp8_ref(const struct kv_scores *t) { scores(t, KV_FP8); }
void k_scores_i4_ref(const struct kv_scores *t) { scores(t, KV_I4); }

static void values(const struct kv_values *t, enum kv_dtype type)
{
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t d = 0; d < kv_padded(t->head_dim); d++) {
            float acc = t->o[r * t->ldo + d];
            for (uint32_t i = t->first; i < t->end; i++) {
                size_t at = kv_value_at(type, t->head_dim, i % KV_PAGE, d);
                acc = fmaf(number_in(t->pages[i / KV_PAGE], type, at),
                           t->p[(size_t)r * KV_SCORES_LD + i], acc);
            }
            t->o[r * t->ldo + d] = acc;
        }
}

void k_values_f32_ref(const struct kv_values *t) { values(t, KV_F32); }
void k_values_f16_ref(const struct kv_values *t) { values(t, KV_F16); }
void k_values_bf16_ref(const struct kv_values *t) { values(t, KV_BF16); }
void k_values_i8_ref(const struct kv_values *t) { values(t, KV_I8); }
void k_values_fp8_ref(const struct kv_values *t) { values(t, KV_FP8); }
void k_values_i4_ref(const struct kv_values *t) { values(t, KV_I4); }

float k_quantise_fp8_ref(uint8_t *dst, const float *src, uint32_t n)
{
    uint32_t top = 0; /* magnitudes as bits: NaN is above infinity */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(src[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    float most = float_of(top), scale = 0, to = 0;
    if (top >= 0x7f800000)
        scale = NAN;
    else if (most >= 0x1p-120f)
        scale = most / FP8_TOP, to = FP8_TOP / most;
    for (uint32_t i = 0; i < n; i++)
        dst[i] = to > 0 ? fp8_of_f32(src[i] * to) : 0;
    return scale;
}

void k_weigh_ref(float *p, uint32_t rows, const char *const *pages, uint32_t n, size_t scales)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n * KV_PAGE; i++)
            p[(size_t)r * KV_SCORES_LD + i] *=
                ((const float *)(const void *)(pages[i / KV_PAGE] + scales))[i % KV_PAGE];
}
