/* int_ref.c - reference of the kernels of quantised weights: plain C, see
 * base_ref.c. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdlib.h>

void k_tile_int8_ref(const struct tile *t)
{
    uint32_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *w = (const uint8_t *)t->w + i / LANES * t->w_bytes;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add ? *y : 0.0f;
            for (uint32_t k = 0; k < t->k; k++) {
                int stored = w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4];
                acc = fmaf((float)(stored - 128), t->x[(size_t)k * xs + r], acc);
            }
            *y = acc;
        }
    }
}

static float add_times(float y, float sum, float factor, bool add)
{
    return add ? fmaf(sum, factor, y) : sum * factor;
}

void k_tile_fp8_ref(const struct tile *t)
{
    uint32_t xs = tile_stride(t->rows);
    for (uint32_t i = 0; i < t->n; i++) {
        const size_t at = i / LANES * t->w_bytes;
        const uint8_t *w = (const uint8_t *)t->w + at;
        const float *factors =
            t->factors ? (const float *)(const void *)((const char *)t->factors + at) : NULL;
        for (uint32_t r = 0; r < t->rows; r++) {
            float *y = &t->y[r * t->ldy + i], acc = t->add && !t->factors ? *y : 0.0f;
            for (uint32_t k = 0; k < t->k; k++) {
                float wk = f32_of_e4m3(w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4]);
                acc = fmaf(wk, t->x[(size_t)k * xs + r], acc);
            }
            *y = factors ? add_times(*y, acc, factors[i % LANES], t->add) : acc;
        }
    }
}

/* One row's numbers in a group of a tile of activations: every `step`th word. */
struct x_group {
    const int32_t *quads;
    uint32_t step;
    float scale;
};

static struct x_group x_group(const int32_t *x, uint32_t step, uint32_t quads)
{
    return (struct x_group){x, step, float_of((uint32_t)x[(size_t)quads * step])};
}

static int x_at(const struct x_group *x, uint32_t k)
{
    return ((const int8_t *)&x->quads[(size_t)(k / 4) * x->step])[k % 4];
}

void k_tile_w8a8_ref(const struct int_tile *t)
{
    uint32_t quads = quads_of(t->k);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *w = (const uint8_t *)t->w + i / LANES * t->w_bytes;
        float scale = ((const float *)(w + (size_t)quads * STEP_BYTES))[i % LANES];
        for (uint32_t r = 0; r < t->rows; r++) {
            struct x_group x = x_group(t->x + r, t->rows, quads);
            int32_t sum = 0;
            for (uint32_t k = 0; k < t->k; k++)
                sum += (w[((size_t)(k / 4) * LANES + i % LANES) * 4 + k % 4] - 128) * x_at(&x, k);
            t->y[r * t->ldy + i] = (float)sum * (scale * x.scale);
        }
    }
}

/* True if two quads of each row, at w and STEP_BYTES behind it, fit. */
static bool two_steps_fit(const uint8_t *w)
{
    for (uint32_t at = 0; at < STEP_BYTES; at += 2) {
        const uint8_t *const next = w + STEP_BYTES;
        if (abs(w[at] - 128) + abs(w[at + 1] - 128) + abs(next[at] - 128) +
                abs(next[at + 1] - 128) >
            INT_FIT_MOST)
            return false;
    }
    return true;
}

void k_fits_w8a8_ref(uint8_t *fits, const void *panel, uint32_t k)
{
    const uint8_t *w = panel;
    memset(fits, 0, INT_FIT_BYTES);
    for (uint32_t b = 0; (b + 1) * INT_FIT_STEPS <= quads_of(k); b++) {
        bool fit = true;
        for (uint32_t i = 0; i < INT_FIT_STEPS; i += 2)
            fit &= two_steps_fit(w + (size_t)(b * INT_FIT_STEPS + i) * STEP_BYTES);
        fits[b / 8] |= (uint8_t)(fit << b % 8);
    }
}
