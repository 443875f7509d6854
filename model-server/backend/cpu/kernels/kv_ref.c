/* kv_ref.c - reference of the kernels of attention and its cache: see base_ref.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/ref.inc.h"
#include "model-server/backend/mathf.h"
#include <string.h>

INLINE float number_in(const char *page, enum kv_dtype t, size_t at)
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

INLINE void scores_of_key(const struct kv_scores *t, enum kv_dtype type, uint32_t key)
{
    const char *page = t->pages[key / KV_PAGE];
    const uint32_t i = key % KV_PAGE, qs = tile_stride(t->rows);
    float sums[TILE_ROWS] = {0};
    for (uint32_t d = 0; d < kv_dims(t->head_dim); d++) {
        const float k = number_in(page, type, kv_key_at(type, i, d));
        for (uint32_t r = 0; r < t->rows; r++)
            sums[r] = fmaf(k, t->q[(size_t)d * qs + r], sums[r]);
    }
    const float *scales = kv_dtype_scaled(type) ? kv_scales(page, type, t->head_dim)
                                                : kv_scales_of(&t->scaled, key / KV_PAGE);
    for (uint32_t r = 0; r < t->rows; r++)
        t->s[(size_t)r * KV_SCORES_LD + key] = scales ? sums[r] * scales[i] : sums[r];
}

BOTH_FORMS static void scores(const struct kv_scores *t, enum kv_dtype type)
{
    for (uint32_t key = 0; key < t->n * KV_PAGE; key++)
        scores_of_key(t, type, key);
}

void k_scores_f32_ref(const struct kv_scores *t) { scores(t, KV_F32); }
void k_scores_f16_ref(const struct kv_scores *t) { scores(t, KV_F16); }
void k_scores_bf16_ref(const struct kv_scores *t) { scores(t, KV_BF16); }
void k_scores_i8_ref(const struct kv_scores *t) { scores(t, KV_I8); }
void k_scores_fp8_ref(const struct kv_scores *t) { scores(t, KV_FP8); }
void k_scores_i4_ref(const struct kv_scores *t) { scores(t, KV_I4); }

BOTH_FORMS static void values(const struct kv_values *t, enum kv_dtype type)
{
    for (uint32_t i = t->first; i < t->end; i++)
        for (uint32_t d = 0; d < kv_padded(t->head_dim); d++) {
            const size_t at = kv_value_at(type, t->head_dim, i % KV_PAGE, d);
            const float v = number_in(t->pages[i / KV_PAGE], type, at);
            for (uint32_t r = 0; r < t->rows; r++) {
                float *o = &t->o[r * t->ldo + d];
                *o = fmaf(v, t->p[(size_t)r * KV_SCORES_LD + i], *o);
            }
        }
}

void k_values_f32_ref(const struct kv_values *t) { values(t, KV_F32); }
void k_values_f16_ref(const struct kv_values *t) { values(t, KV_F16); }
void k_values_bf16_ref(const struct kv_values *t) { values(t, KV_BF16); }
void k_values_i8_ref(const struct kv_values *t) { values(t, KV_I8); }
void k_values_fp8_ref(const struct kv_values *t) { values(t, KV_FP8); }
void k_values_i4_ref(const struct kv_values *t) { values(t, KV_I4); }

/* ---------------------------------------------------------------- pages as pages of bfloat16 */

void k_widen_keys_ref(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim,
                      enum kv_dtype t)
{
    for (uint32_t i = 0; i < n * KV_PAGE; i++)
        for (uint32_t d = 0; d < kv_dims(dim); d++)
            ((uint16_t *)(void *)dst[i / KV_PAGE])[kv_key_at(KV_BF16, i % KV_PAGE, d)] =
                bf16_of_f32(number_in(pages[i / KV_PAGE], t, kv_key_at(t, i % KV_PAGE, d)));
}

void k_widen_values_ref(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim,
                        enum kv_dtype t)
{
    for (uint32_t i = 0; i < n * KV_PAGE; i++)
        for (uint32_t d = 0; d < kv_padded(dim); d++)
            ((uint16_t *)(void *)dst[i / KV_PAGE])[kv_value_at(KV_BF16, dim, i % KV_PAGE, d)] =
                bf16_of_f32(number_in(pages[i / KV_PAGE], t, kv_value_at(t, dim, i % KV_PAGE, d)));
}

/* ---------------------------------------------------------------- pairs of bfloat16 */

/* The upper product first. */
INLINE float add_pair(float sum, uint32_t a, uint32_t b)
{
    for (int half = 2; half--;)
        sum = no_subnormal(fmaf(no_subnormal(f32_of_bf16((uint16_t)(a >> 16 * half))),
                                no_subnormal(f32_of_bf16((uint16_t)(b >> 16 * half))), sum));
    return sum;
}

/* Row r of words. */
INLINE const uint32_t *words_of(const float *rows, size_t at)
{
    return (const uint32_t *)(const void *)(rows + at);
}

/* Two numbers of a page, which bfloat16 represents; -1: zero. */
INLINE uint32_t word_in(const char *page, enum kv_dtype t, int64_t upper, int64_t lower)
{
    const uint32_t a = upper < 0 ? 0 : bf16_of_f32(number_in(page, t, (size_t)upper));
    const uint32_t b = lower < 0 ? 0 : bf16_of_f32(number_in(page, t, (size_t)lower));
    return a << 16 | b;
}

BOTH_FORMS static void scores_in_pairs(const struct kv_scores *t, enum kv_dtype type)
{
    const uint32_t qs = tile_stride(t->rows);
    for (uint32_t key = 0; key < t->n * KV_PAGE; key++) {
        const char *page = t->pages[key / KV_PAGE];
        const uint32_t i = key % KV_PAGE;
        const float *scales = kv_dtype_scaled(type) ? kv_scales(page, type, t->head_dim)
                                                    : kv_scales_of(&t->scaled, key / KV_PAGE);
        for (uint32_t r = 0; r < t->rows; r++) {
            float sum = 0.0f;
            for (uint32_t d = 0; d < kv_dims(t->head_dim); d += 2)
                sum = add_pair(sum,
                               word_in(page, type, (int64_t)kv_key_at(type, i, d + 1),
                                       (int64_t)kv_key_at(type, i, d)),
                               words_of(t->q, (size_t)(d / 2) * qs)[r]);
            t->s[(size_t)r * KV_SCORES_LD + key] = scales ? sum * scales[i] : sum;
        }
    }
}

void k_scores_pairs_bf16_ref(const struct kv_scores *t) { scores_in_pairs(t, KV_BF16); }
void k_scores_pairs_i8_ref(const struct kv_scores *t) { scores_in_pairs(t, KV_I8); }
void k_scores_pairs_fp8_ref(const struct kv_scores *t) { scores_in_pairs(t, KV_FP8); }
void k_scores_pairs_i4_ref(const struct kv_scores *t) { scores_in_pairs(t, KV_I4); }

/* Where dimension d of position i is, if its value is added: else -1. */
static int64_t value_at(const struct kv_values *t, enum kv_dtype type, uint32_t i, uint32_t d)
{
    const bool in = i >= t->first && i < t->end;
    return in ? (int64_t)kv_value_at(type, t->head_dim, i % KV_PAGE, d) : -1;
}

BOTH_FORMS static void values_in_pairs(const struct kv_values *t, enum kv_dtype type)
{
    for (uint32_t i = t->first & ~1u; i < t->end; i += 2)
        for (uint32_t d = 0; d < kv_padded(t->head_dim); d++) {
            const char *page = t->pages[i / KV_PAGE];
            const uint32_t v =
                word_in(page, type, value_at(t, type, i, d), value_at(t, type, i + 1, d));
            for (uint32_t r = 0; r < t->rows; r++) {
                float *o = &t->o[r * t->ldo + d];
                *o = add_pair(*o, v, words_of(t->p, (size_t)r * KV_SCORES_LD)[i / 2]);
            }
        }
}

void k_values_pairs_bf16_ref(const struct kv_values *t) { values_in_pairs(t, KV_BF16); }
void k_values_pairs_i8_ref(const struct kv_values *t) { values_in_pairs(t, KV_I8); }
void k_values_pairs_fp8_ref(const struct kv_values *t) { values_in_pairs(t, KV_FP8); }
void k_values_pairs_i4_ref(const struct kv_values *t) { values_in_pairs(t, KV_I4); }

void k_pair_weights_ref(float *p, uint32_t pages, const struct kv_scaled *scaled)
{
    for (uint32_t i = 0; i < pages * KV_PAGE; i += 2) {
        const float *scales = kv_scales_of(scaled, i / KV_PAGE);
        uint32_t word = 0;
        for (uint32_t k = i; k < i + 2; k++)
            word =
                word << 16 | bf16_of_f32(no_subnormal(scales ? p[k] * scales[k % KV_PAGE] : p[k]));
        memcpy(p + i / 2, &word, sizeof(word));
    }
}

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

/* Position of the list in column c of a step, or -1. */
static int64_t position_in(const struct kv_columns *a, uint32_t step, uint32_t c)
{
    const int64_t half = (int64_t)2 * step + c % 2 - a->lead, i = half * KV_PAGE + c / 2;
    return i >= a->first && i < a->end ? i : -1;
}

/* Dimensions [first, first + n) as panels at dst. */
static bool lay_values(char *dst, const struct kv_square_values *t, uint32_t first, uint32_t n)
{
    bool finite = true;
    for (uint32_t d = 0; d < n; d++)
        for (uint32_t c = 0; c < 32 * t->at.steps; c++) {
            const int64_t i = position_in(&t->at, c / 32, c % 32);
            uint16_t v = 0;
            if (i >= 0)
                v = ((const uint16_t *)(const void *)t->pages[i / KV_PAGE])[kv_value_at(
                    KV_BF16, t->dims, i % KV_PAGE, first + d)];
            finite &= (v & 0x7f80) != 0x7f80;
            char *panel = dst + (size_t)(d / LANES) * t->at.steps * SQUARE_BYTES;
            ((uint16_t *)(void *)panel)[((size_t)(c / 2) * LANES + d % LANES) * 2 + c % 2] = v;
        }
    return finite;
}

bool k_square_values_ref(const struct kv_square_values *t)
{
    return lay_values(t->dst, t, 0, t->dims);
}

static void square_weights_of_row(const struct kv_square_weights *t, uint32_t row)
{
    const struct kv_seen seen = row < t->rows ? t->seen[row] : (struct kv_seen){0, 0};
    const struct kv_columns a = {t->lead, t->steps, seen.lo, seen.hi};
    const size_t step = (size_t)t->parts * t->square * SQUARE_STEP_BYTES;
    char *dst = t->dst + (size_t)(row / t->square) * t->steps * step +
                (size_t)(row % t->square) * SQUARE_STEP_BYTES;
    for (uint32_t c = 0; c < 32 * t->steps; c++) {
        const int64_t i = position_in(&a, c / 32, c % 32);
        const float w = i < 0 ? 0 : t->src[(size_t)row * KV_SCORES_LD + (size_t)i];
        uint16_t part[SQUARE_PARTS];
        char *to = dst + c / 32 * step;
        if (t->parts == 1)
            part[0] = bf16_of_f32(w);
        else
            k_split_bf16_ref((uint16_t *const[]){&part[0], &part[1], &part[2]}, &w, 1);
        for (uint32_t p = 0; p < t->parts; p++)
            memcpy(to + (size_t)p * t->square * SQUARE_STEP_BYTES + c % 32 * sizeof(*part),
                   &part[p], sizeof(*part));
    }
}

void k_square_weights_ref(const struct kv_square_weights *t)
{
    for (uint32_t row = 0; row < (t->rows + t->square - 1) / t->square * t->square; row++)
        square_weights_of_row(t, row);
}

/* A panel after the other. */
bool k_square_sum_ref(const struct kv_square_sum *t)
{
    _Alignas(64) char panel[KV_SPLIT / 32 * SQUARE_BYTES];
    bool finite = true;
    for (uint32_t d = 0; d < t->values.dims; d += LANES) {
        finite &= lay_values(panel, &t->values, d, LANES);
        k_squares_bf16_ref(&(struct squares){.sums = t->sums + d,
                                             .sums_bytes = t->ld * sizeof(float),
                                             .x = t->x,
                                             .w = panel,
                                             .tall = 1,
                                             .wide = 1,
                                             .steps = t->values.at.steps,
                                             .rows = t->rows,
                                             .parts = t->parts});
    }
    return finite;
}
