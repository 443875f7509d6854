/* quant.c - packs weights of 8 and 4 bits from the checkpoint into panels (kernels.h), and reads
 * them. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* A row of a part as fp32, in the thread's scratch memory. */
static float *cpu_widen_row(struct device *d, int thread, const struct mat_part *p, int64_t row)
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

static uint32_t blocks_of(const struct weight *w)
{
    return w->block ? (w->cols + w->block - 1) / w->block : 1;
}

static size_t byte_panel_bytes(const struct weight *w)
{
    return ((size_t)quads_of(w->cols) * 4 + blocks_of(w) * sizeof(float)) * LANES;
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

/* Columns [k, k + n) of a lane, in e4m3. False: some of them are NaN, and become zero. */
static bool place_e4m3(char *panel, int lane, uint32_t k, uint32_t n, const uint8_t *codes)
{
    enum { NOT_A_NUMBER = 0x7f };
    bool numbers = true;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_nan = (codes[i] & NOT_A_NUMBER) == NOT_A_NUMBER;
        panel[((size_t)((k + i) / 4) * LANES + (size_t)lane) * 4 + (k + i) % 4] =
            (char)(is_nan ? 0 : codes[i]);
        numbers &= !is_nan;
    }
    return numbers;
}

/* Stored codes. A block of the matrix lies within one of the part, whose scale it has. */
static void fp8_place(const struct weight *w, char *panel, int lane, const struct mat_codes *c,
                      int64_t row)
{
    const uint8_t *codes = c->codes + (size_t)row * w->cols;
    const float *from = c->scales + (size_t)row * format_blocks(&c->format, w->cols);
    float *scales = (float *)(panel + (size_t)quads_of(w->cols) * STEP_BYTES) + lane;
    const uint32_t block = w->block ? w->block : w->cols;
    for (uint32_t k = 0; k < w->cols; k += block, scales += LANES) {
        const uint32_t n = w->cols - k < block ? w->cols - k : block;
        const bool numbers = place_e4m3(panel, lane, k, n, codes + k);
        *scales = numbers ? from[c->format.block ? k / c->format.block : 0] : NAN;
    }
}

void cpu_blocks_make(struct weight *w, const struct mat_desc *m)
{
    for (int i = 0; i < m->n_parts; i++) {
        const uint32_t block = m->parts[i].codes->format.block;
        w->block = block && (!w->block || block < w->block) ? block : w->block;
    }
}

static void fp8_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                     const struct mat_part *p, int64_t row)
{
    if (p->source == SOURCE_CODES) {
        fp8_place(w, panel, lane, p->codes, row);
        return;
    }
    uint8_t *quads = (uint8_t *)panel + (size_t)lane * 4;
    float *scales = (float *)(panel + (size_t)quads_of(w->cols) * STEP_BYTES);
    scales[lane] = quantise_e4m3(quads, STEP_BYTES, cpu_widen_row(d, thread, p, row), w->cols);
}

static void fp8_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    const float *scales = row_scales(w, panel) + row % LANES;
    for (uint32_t i = k; i < k + n; i++)
        dst[i - k] =
            f32_of_e4m3((uint8_t)panel[((size_t)(i / 4) * LANES + row % LANES) * 4 + i % 4]) *
            scales[w->block ? (size_t)(i / w->block) * LANES : 0];
}

const struct weight_kind kind_fp8 = {byte_panel_bytes, fp8_pack, fp8_row, linear_float};

/* ---------------------------------------------------------------- 4 bits */

/* The power of two that brings the scales of a row into the range of half precision, in which
 * panels of codes have them. Scales of bfloat16 divided by it lose nothing, unless they are less
 * than 2^-31 of the row's greatest. */
static float unit_of(float scale)
{
    enum { TOP = 15, LEAST = -100 }; /* 2^15 is representable */
    int exponent;
    frexpf(scale, &exponent);
    return isfinite(scale) ? ldexpf(1.0f, (exponent > LEAST ? exponent : LEAST) - TOP) : 1.0f;
}

/* The greatest finite one of the scales that a checkpoint has. */
static float top_scale(const uint16_t *scales, uint32_t n)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float s = fabsf(f32_of_bf16(scales[i]));
        top = isfinite(s) && s > top ? s : top;
    }
    return top;
}

/* A row becomes codes with the scales of quantise4(). The row's unit is its factor. */
static void int4_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                      const struct mat_part *p, int64_t row)
{
    float *f = cpu_widen_row(d, thread, p, row);
    const uint32_t groups = (w->cols + INT4_GROUP - 1) / INT4_GROUP;
    const uint16_t *scales = p->scales ? p->scales + (size_t)row * groups : NULL;
    const float unit =
        unit_of(scales ? top_scale(scales, groups) : d->kern.row_top(f, w->cols) / INT4_LEAST_TOP);
    w->factor[(size_t)(panel - w->data) / w->panel_bytes * LANES + (size_t)lane] = unit;
    memset(f + w->cols, 0, ((size_t)groups * INT4_GROUP - w->cols) * sizeof(*f));
    for (uint32_t g = 0; g < groups; g++, f += INT4_GROUP) {
        int8_t q[INT4_GROUP];
        const float scale =
            scales ? int4_of_scale(q, f, INT4_GROUP, scales[g]) : d->kern.quantise4(q, f);
        code_pack_signed(&w->codes, panel, (uint32_t)lane, g * INT4_GROUP, q, scale / unit);
    }
}

const struct weight_kind kind_int4 = {.panel_bytes = code_panel_bytes,
                                      .pack = int4_pack,
                                      .row = code_row,
                                      .linear = linear_codes,
                                      .widen = code_widen};
