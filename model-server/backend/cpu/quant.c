/* quant.c - packs weights of 8 and 4 bits from the checkpoint into panels (kernels.h), and reads
 * them. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include <assert.h>
#include <math.h>
#include <string.h>

float *cpu_widen_row(struct device *d, int thread, const struct mat_part *p, int64_t row)
{
    static_assert(THREAD_SCRATCH >= QUANT_MAX_COLS * sizeof(float), "");
    float *f = (float *)cpu_thread_scratch(d, thread);
    const char *at = (const char *)p->data + (size_t)(row * p->row_stride) * dtype_size(p->dtype);
    uint32_t n = (uint32_t)p->cols;
    if (p->col_stride != 1)
        for (uint32_t k = 0; k < n; k++)
            f[k] = number_at(at, p->dtype, k * p->col_stride);
    else if (p->dtype == DT_F16)
        d->kern.widen_f16(f, (const uint16_t *)at, n);
    else if (p->dtype == DT_BF16)
        d->kern.widen_bf16(f, (const uint16_t *)at, n);
    else
        memcpy(f, at, n * sizeof(*f));
    return f;
}

/* ---------------------------------------------------------------- 8 bits */

static size_t byte_panel_bytes(const struct weight *w)
{
    return ((size_t)quads_of(w->cols) * 4 + sizeof(float)) * LANES;
}

static void int8_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                      const struct mat_part *p, int64_t row)
{
    int32_t sum;
    uint8_t *quads = (uint8_t *)panel + (size_t)lane * 4;
    float *scales = (float *)(panel + (size_t)quads_of(w->cols) * STEP_BYTES);
    scales[lane] = d->kern.quantise(quads, STEP_BYTES, cpu_widen_row(d, thread, p, row), w->cols,
                                    0x80808080, &sum);
}

static void int8_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    float scale = row_scales(w, panel)[row % LANES];
    for (uint32_t i = k; i < k + n; i++) {
        uint8_t u = (uint8_t)panel[((size_t)(i / 4) * LANES + row % LANES) * 4 + i % 4];
        dst[i - k] = (float)(u - 128) * scale;
    }
}

const struct weight_kind kind_int8 = {byte_panel_bytes, int8_pack, int8_row, linear_float};
const struct weight_kind kind_w8a8 = {byte_panel_bytes, int8_pack, int8_row, linear_int};

static void fp8_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                     const struct mat_part *p, int64_t row)
{
    uint8_t *quads = (uint8_t *)panel + (size_t)lane * 4;
    float *scales = (float *)(panel + (size_t)quads_of(w->cols) * STEP_BYTES);
    scales[lane] = quantise_e4m3(quads, STEP_BYTES, cpu_widen_row(d, thread, p, row), w->cols);
}

static void fp8_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    float scale = row_scales(w, panel)[row % LANES];
    for (uint32_t i = k; i < k + n; i++)
        dst[i - k] =
            f32_of_e4m3((uint8_t)panel[((size_t)(i / 4) * LANES + row % LANES) * 4 + i % 4]) *
            scale;
}

const struct weight_kind kind_fp8 = {byte_panel_bytes, fp8_pack, fp8_row, linear_float};

/* ---------------------------------------------------------------- 4 bits */

static size_t int4_panel_bytes(const struct weight *w)
{
    return ((size_t)w->cols + INT4_BLOCK_COLS - 1) / INT4_BLOCK_COLS * INT4_BLOCK_BYTES;
}

/* 16-bit scales lose nothing: numbers are rounded to multiples of the stored scale. */
static void int4_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                      const struct mat_part *p, int64_t row)
{
    float *f = cpu_widen_row(d, thread, p, row);
    uint32_t groups = (w->cols + INT4_GROUP - 1) / INT4_GROUP;
    memset(f + w->cols, 0, ((size_t)groups * INT4_GROUP - w->cols) * sizeof(*f));
    for (uint32_t g = 0; g < groups; g++) {
        int8_t q[INT4_GROUP];
        char *block = panel + (size_t)(g / 2) * INT4_BLOCK_BYTES + (size_t)lane * 4;
        const float *at = f + (size_t)g * INT4_GROUP;
        uint16_t scale = bf16_of_f32(
            p->scales ? int4_of_scale(q, at, INT4_GROUP, p->scales[(size_t)row * groups + g])
                      : d->kern.quantise4(q, at));
        memcpy(block + g % 2 * sizeof(scale), &scale, sizeof(scale));
        for (uint32_t i = 0; i < INT4_GROUP / 8; i++) {
            uint32_t low, high;
            memcpy(&low, q + (size_t)i * 8, 4), memcpy(&high, q + (size_t)i * 8 + 4, 4);
            low = (low & 0x0f0f0f0f) ^ 0x08080808; /* of two's complement: plus 8 */
            high = (high & 0x0f0f0f0f) ^ 0x08080808;
            low |= high << 4;
            memcpy(block + (size_t)(1 + g % 2 * 4 + i) * STEP_BYTES, &low, sizeof(low));
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
        uint8_t byte = (uint8_t)block[(1 + in / 8) * STEP_BYTES + lane * 4 + in % 4];
        uint16_t s = ((const uint16_t *)block)[lane * 2 + in / INT4_GROUP];
        dst[i - k] = (float)((in / 4 % 2 ? byte >> 4 : byte & 15) - 8) * f32_of_bf16(s);
    }
}

const struct weight_kind kind_int4 = {int4_panel_bytes, int4_pack, int4_row, linear_int};
