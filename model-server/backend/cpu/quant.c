/* quant.c - weights in 8 and 4 bits: from the checkpoint into panels (kernels.h), and back. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/numbers.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* A row of a part as fp32, in the thread's scratch. */
static const float *widen(struct device *d, int thread, const struct mat_part *p, int64_t row)
{
    static_assert(THREAD_SCRATCH >= QUANT_MAX_COLS * sizeof(float), "");
    float *f = (float *)cpu_thread_scratch(d, thread);
    for (int64_t k = 0; k < p->cols; k++)
        f[k] = number_at(p->data, p->dtype, row * p->row_stride + k * p->col_stride);
    return f;
}

/* ---------------------------------------------------------------- 8 bits */

static size_t int8_panel_bytes(const struct weight *w)
{
    return ((size_t)quads_of(w->cols) * 4 + sizeof(float)) * LANES;
}

static void int8_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                      const struct mat_part *p, int64_t row)
{
    int32_t sum;
    uint8_t *quads = (uint8_t *)panel + (size_t)lane * 4;
    float scale =
        d->kern.quantise((int8_t *)quads, LANES * 4, widen(d, thread, p, row), w->cols, &sum);
    for (uint32_t q = 0; q < quads_of(w->cols); q++)
        for (int i = 0; i < 4; i++)
            quads[q * LANES * 4 + i] ^= 128;
    memcpy(panel + (size_t)quads_of(w->cols) * LANES * 4 + (size_t)lane * sizeof(float), &scale,
           sizeof(scale));
}

static void int8_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    float scale = int8_scales(w, panel)[row % LANES];
    for (uint32_t i = k; i < k + n; i++) {
        uint8_t u = (uint8_t)panel[((size_t)(i / 4) * LANES + row % LANES) * 4 + i % 4];
        dst[i - k] = (float)(u - 128) * scale;
    }
}

const struct weight_format format_int8 = {int8_panel_bytes, int8_pack, int8_row, linear_float};
const struct weight_format format_w8a8 = {int8_panel_bytes, int8_pack, int8_row, linear_int};

/* ---------------------------------------------------------------- 4 bits */

static size_t int4_panel_bytes(const struct weight *w)
{
    return ((size_t)w->cols + INT4_BLOCK_COLS - 1) / INT4_BLOCK_COLS * INT4_BLOCK_BYTES;
}

/* The scale of a group, in bf16: the greatest magnitude becomes -8, so that all 16 numbers serve.
 * Sixteen bits of scale cost nothing: the numbers are rounded to multiples of what is stored. */
static uint16_t int4_group_scale(const float *f, uint32_t n)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(f[i]))
            return bf16_of_f32(NAN);
        top = fabsf(f[i]) > fabsf(top) ? f[i] : top;
    }
    return fabsf(top) < 0x1p-120f ? 0 : bf16_of_f32(top / -8.0f);
}

static void int4_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                      const struct mat_part *p, int64_t row)
{
    const float *f = widen(d, thread, p, row);
    for (uint32_t k = 0; k < w->cols; k += INT4_GROUP) {
        char *block = panel + (size_t)(k / INT4_BLOCK_COLS) * INT4_BLOCK_BYTES;
        uint32_t n = w->cols - k < INT4_GROUP ? w->cols - k : INT4_GROUP,
                 which = k / INT4_GROUP % 2;
        uint16_t s = int4_group_scale(f + k, n);
        float scale = f32_of_bf16(s), to_int = scale == 0 || isnan(scale) ? 0 : 1 / scale;
        memcpy(block + (size_t)lane * 4 + which * 2, &s, sizeof(s));
        uint8_t *bytes =
            (uint8_t *)block + LANES * 4 + (size_t)which * 4 * LANES * 4 + (size_t)lane * 4;
        for (uint32_t i = 0; i < n; i++) {
            float q = to_int == 0 ? 0 : rintf(f[k + i] * to_int);
            uint8_t u = (uint8_t)((int)(q > 7 ? 7 : q < -8 ? -8 : q) + 8);
            bytes[i / 8 * LANES * 4 + i % 4] |= (uint8_t)(i / 4 % 2 ? u << 4 : u);
        }
    }
}

static void int4_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    uint32_t lane = row % LANES;
    for (uint32_t i = k; i < k + n; i++) {
        const char *block = panel + (size_t)(i / INT4_BLOCK_COLS) * INT4_BLOCK_BYTES;
        uint32_t in = i % INT4_BLOCK_COLS;
        uint8_t byte = (uint8_t)block[(1 + in / 8) * LANES * 4 + lane * 4 + in % 4];
        uint16_t s = ((const uint16_t *)block)[lane * 2 + in / INT4_GROUP];
        dst[i - k] = (float)((in / 4 % 2 ? byte >> 4 : byte & 15) - 8) * f32_of_bf16(s);
    }
}

const struct weight_format format_int4 = {int4_panel_bytes, int4_pack, int4_row, linear_int};
