/* kv_quads_ref.c - reference of the kernels of kv_quads.h: see base_ref.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/ref.inc.h"
#include "model-server/backend/numbers.h"
#include <string.h>

/* A group with numbers [begin, end) of which some count: those in [lo, hi). */
static void group_to_bytes(struct kv_to_bytes *t, uint32_t g, uint32_t begin, uint32_t end)
{
    const uint32_t lo = t->lo > begin ? t->lo : begin, hi = t->hi < end ? t->hi : end;
    uint32_t most = 0;
    for (uint32_t i = lo; i < hi; i++) {
        const float *scales = kv_scales_of(&t->scaled, i / LANES);
        t->x[i] = scales ? t->x[i] * scales[i % LANES] : t->x[i];
        const uint32_t u = bits_of(t->x[i]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    const float top = float_of(most);
    const bool some = isfinite(top) && top >= 0x1p-100f;
    const float to = some ? QUAD_TOP / top : 0;
    t->scales[g] = some ? top / QUAD_TOP : isfinite(top) ? 0 : NAN;
    t->sums[g] = 0;
    for (uint32_t i = begin; i < end; i++) { /* ascending: dst may be x */
        const int8_t n = some && i >= lo && i < hi ? (int8_t)rintf(t->x[i] * to) : 0;
        t->dst[i] = n;
        t->sums[g] += n;
    }
}

void k_kv_to_bytes_ref(struct kv_to_bytes *t)
{
    for (uint32_t g = 0, begin = 0, end; begin < t->n; g++, begin = end) {
        end = begin + t->group - (g ? 0 : t->lead);
        end = end < t->n ? end : t->n;
        group_to_bytes(t, g, begin, end);
    }
}

/* ---------------------------------------------------------------- pages */

/* A nibble as it is stored: the number + 8. */
static uint8_t nibble(const char *page, size_t at)
{
    return ((const uint8_t *)page)[at / 2] >> at % 2 * 4 & 15;
}

/* Byte `i` of a packed page of keys, of a quad of 16 positions; then where it is there. */
static uint8_t key_byte(const char *page, uint32_t position, uint32_t i)
{
    return nibble(page, kv_key_at(KV_I4, position, kv_quad_dim(i)));
}

static size_t key_place(uint32_t position, uint32_t i)
{
    return (size_t)(i / 4) * STEP_BYTES + (size_t)position * 4 + i % 4;
}

void k_quads_of_keys_ref(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim)
{
    for (uint32_t i = 0; i < n * KV_PAGE; i++)
        for (uint32_t d = 0; d < kv_dims(dim); d++)
            dst[i / KV_PAGE][key_place(i % KV_PAGE, d)] =
                (char)key_byte(pages[i / KV_PAGE], i % KV_PAGE, d);
}

/* The same of values. */
static uint8_t value_byte(const char *page, uint32_t dim, uint32_t position, uint32_t d)
{
    return nibble(page, kv_value_at(KV_I4, dim, position, d));
}

static size_t value_place(uint32_t position, uint32_t d)
{
    return ((size_t)(d / LANES) * 4 + position / 4) * STEP_BYTES + (size_t)d % LANES * 4 +
           position % 4;
}

void k_quads_of_values_ref(char *const *dst, const char *const *pages, uint32_t n, uint32_t dim)
{
    for (uint32_t i = 0; i < n * KV_PAGE; i++)
        for (uint32_t d = 0; d < kv_padded(dim); d++)
            dst[i / KV_PAGE][value_place(i % KV_PAGE, d)] =
                (char)value_byte(pages[i / KV_PAGE], dim, i % KV_PAGE, d);
}

/* ---------------------------------------------------------------- products */

/* Byte `i` of words `stride` words apart. */
static int32_t byte_of(const int32_t *words, size_t stride, uint32_t i)
{
    return ((const int8_t *)(words + i / 4 * stride))[i % 4];
}

void k_scores_quads_ref(const struct kv_quad_scores *t)
{
    for (uint32_t key = 0; key < t->n * KV_PAGE; key++)
        for (uint32_t r = 0; r < t->rows; r++) {
            const char *page = t->pages[key / KV_PAGE];
            const uint32_t position = key % KV_PAGE;
            int32_t sum = 0;
            for (uint32_t i = 0; i < kv_dims(t->head_dim); i++) {
                const int32_t n =
                    t->packed ? page[key_place(position, i)] : key_byte(page, position, i);
                sum += (n - NIBBLE_ZERO) * byte_of(t->q + r, t->rows, i);
            }
            t->s[(size_t)r * KV_SCORES_LD + key] =
                (float)sum * (t->scales[r] * kv_scales_of(&t->scaled, key / KV_PAGE)[position]);
        }
}

static int32_t value_of(const struct kv_quad_values *t, uint32_t i, uint32_t d)
{
    const char *page = t->pages[i / KV_PAGE];
    const int32_t n = t->packed ? page[value_place(i % KV_PAGE, d)]
                                : value_byte(page, t->head_dim, i % KV_PAGE, d);
    return n - NIBBLE_ZERO;
}

BOTH_FORMS void k_values_quads_ref(const struct kv_quad_values *t)
{
    for (uint32_t d = 0; d < kv_padded(t->head_dim); d++)
        for (uint32_t r = 0; r < t->rows; r++) {
            float o = 0;
            for (uint32_t g = 0, i = 0, end; i < t->n * KV_PAGE; g++) {
                int32_t sum = 0;
                end = i + QUAD_GROUP - (g ? 0 : t->lead * KV_PAGE);
                for (end = end < t->n * KV_PAGE ? end : t->n * KV_PAGE; i < end; i++)
                    sum += value_of(t, i, d) * t->p[r * t->ldp + i];
                o = fmaf((float)sum, t->scales[r * QUAD_GROUPS + g], o);
            }
            t->o[r * t->ldo + d] = o;
        }
}
