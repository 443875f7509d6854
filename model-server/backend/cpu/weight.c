/* weight.c - packs matrices from the checkpoint into panels (layout: kernels.h). */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- packing */

struct packing {
    struct device *d;
    struct weight *w;
    const struct mat_desc *m;
    atomic_uint top; /* of float16 in pairs: the bits of the greatest magnitude */
};

/* The greatest magnitude of float16 numbers in lines of 64 bytes, as bits. */
static unsigned top_of_lines(const uint16_t *p, size_t bytes)
{
    enum { LINE = STEP_BYTES / sizeof(*p) };
    uint16_t top[LINE] = {0}, most = 0;
    for (size_t i = 0; i < bytes / sizeof(*p); i += LINE)
        for (int l = 0; l < LINE; l++) {
            const uint16_t mag = p[i + (size_t)l] & 0x7fff;
            top[l] = mag > top[l] ? mag : top[l];
        }
    for (int l = 0; l < LINE; l++)
        most = top[l] > most ? top[l] : most;
    return most;
}

static void note_top(struct packing *job, size_t begin, size_t end)
{
    const struct weight *w = job->w;
    const char *panels = weight_panel(w, begin);
    const unsigned top =
        top_of_lines((const uint16_t *)(const void *)panels, (end - begin) * w->panel_bytes);
    unsigned seen = atomic_load(&job->top);
    while (top > seen && !atomic_compare_exchange_weak(&job->top, &seen, top))
        ;
}

const struct mat_part *cpu_part_of(const struct mat_desc *m, int64_t *row)
{
    const struct mat_part *p = m->parts;
    for (; *row >= p->rows; p++)
        *row -= p->rows;
    return p;
}

/* 16-bit rows whose columns are contiguous and need no conversion: the common case of a load. */
static void pack_row_16(uint16_t *panel, const uint16_t *src, uint32_t cols, int lane, bool pairs)
{
    if (!pairs) {
        for (uint32_t k = 0; k < cols; k++)
            panel[k * LANES + lane] = src[k];
        return;
    }
    uint32_t k = 0;
    for (uint32_t pair; k + 1 < cols; k += 2) {
        memcpy(&pair, src + k, sizeof(pair));
        memcpy(panel + (size_t)k * LANES + (size_t)2 * lane, &pair, sizeof(pair));
    }
    if (k < cols)
        panel[k * LANES + 2 * lane] = src[k];
}

static void pack_row_any(char *panel, const struct mat_part *p, int64_t row, int lane,
                         enum dtype to, bool pairs)
{
    for (int64_t k = 0; k < p->cols; k++) {
        float f = number_at(p->data, p->dtype, row * p->row_stride + k * p->col_stride);
        if (to == DT_F32)
            ((float *)panel)[k * LANES + lane] = f;
        else
            ((uint16_t *)panel)[pairs ? (k & ~(int64_t)1) * LANES + (int64_t)2 * lane + (k & 1)
                                      : k * LANES + lane] =
                to == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
    }
}

static size_t float_panel_bytes(const struct weight *w)
{
    return ((size_t)w->stored + 1) / 2 * 2 * LANES * dtype_size(w->dtype);
}

static void float_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                       const struct mat_part *p, int64_t row)
{
    (void)d, (void)thread;
    if (w->dtype != DT_F32 && p->dtype == w->dtype && p->col_stride == 1)
        pack_row_16((uint16_t *)panel, (const uint16_t *)p->data + row * p->row_stride,
                    (uint32_t)p->cols, lane, in_pairs(w));
    else
        pack_row_any(panel, p, row, lane, w->dtype, in_pairs(w));
}

static void float_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    const uint32_t lane = row % LANES, from = panel_from(w, row / LANES);
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t i = k + j - from; /* wraps before the first column */
        int64_t at = in_pairs(w) ? (int64_t)(i & ~1u) * LANES + (int64_t)2 * lane + (i & 1)
                                 : (int64_t)i * LANES + lane;
        dst[j] = i < w->stored ? number_at(panel, w->dtype, at) : 0;
    }
}

const struct weight_kind kind_plain = {float_panel_bytes, float_pack, float_row, linear_float};

/* Columns [from, from + n) of a part, which are numbers. */
static struct mat_part columns_of(const struct mat_part *p, uint32_t from, uint32_t n)
{
    struct mat_part cut = *p;
    cut.data = (const char *)p->data + from * p->col_stride * (int64_t)dtype_size(p->dtype);
    cut.cols = n;
    return cut;
}

/* The thread that packs a panel will also multiply with it: see pool_run(). */
static void pack_panels(void *arg, int thread, size_t begin, size_t end)
{
    struct packing *job = arg;
    struct weight *w = job->w;
    for (size_t i = begin * LANES; i < end * LANES && i < w->rows; i++) {
        int64_t row = (int64_t)i;
        const struct mat_part *p = cpu_part_of(job->m, &row);
        char *panel = w->data + i / LANES * w->panel_bytes;
        const struct mat_part cut = w->from ? columns_of(p, w->from[i / LANES], w->stored) : *p;
        if (i % LANES == 0 && cpu_pack_panel(w, panel, &cut, row))
            i += LANES - 1;
        else
            w->kind->pack(job->d, thread, w, panel, (int)(i % LANES), &cut, row);
    }
    if (has_row_units(w))
        note_top(job, begin, end);
}

/* ---------------------------------------------------------------- loading */

static int check_shape(const struct mat_desc *m, int64_t *rows, struct err *e)
{
    *rows = 0;
    for (int i = 0; i < m->n_parts; i++) {
        const struct mat_part *p = &m->parts[i];
        if (p->rows < 0 || p->cols < 1 || p->cols != m->parts[0].cols)
            return err_set(e, ERR_VALIDATION, "part %d of a weight is %lld x %lld", i,
                           (long long)p->rows, (long long)p->cols);
        if (p->rows > INT32_MAX || p->cols > INT32_MAX || (*rows += p->rows) > INT32_MAX - LANES)
            return err_set(e, ERR_VALIDATION, "a weight of more than 2^31 rows or columns");
    }
    if (!*rows)
        return err_set(e, ERR_VALIDATION, "a weight without rows");
    if (m->quant && m->parts[0].cols > QUANT_MAX_COLS)
        return err_set(e, ERR_VALIDATION, "a weight of %lld columns: at most %d are quantised",
                       (long long)m->parts[0].cols, QUANT_MAX_COLS);
    return 0;
}

static bool are_e4m3(const struct mat_desc *m)
{
    return m->parts[0].source == SOURCE_CODES && m->parts[0].codes->format.element == ELEMENT_E4M3;
}

static const struct weight_kind *kind_of(const struct mat_desc *m)
{
    static const struct weight_kind *const kinds[QUANT_N] = {&kind_plain, &kind_int8, &kind_w8a8,
                                                             &kind_int4, &kind_fp8};
    if (are_e4m3(m))
        return &kind_fp8;
    if (m->parts[0].source == SOURCE_CODES)
        return m->arith == ARITH_INT8 ? &kind_codes8 : &kind_codes;
    return kinds[m->quant];
}

/* The kernel of products in fp32. */
static void (*tile_of(const struct device *d, const struct weight *w))(const struct tile *)
{
    if (w->kind->widen)
        return d->kern.tile_f32;
    if (w->kind == &kind_int8)
        return d->kern.tile_int8;
    if (w->kind == &kind_fp8)
        return d->kern.tile_fp8;
    if (w->half)
        return w->dtype == DT_F16 ? d->kern.tile_f16x2 : d->kern.tile_bf16x2;
    return w->dtype == DT_F32   ? d->kern.tile_f32
           : w->dtype == DT_F16 ? d->kern.tile_f16
                                : d->kern.tile_bf16;
}

void cpu_weight_choose(const struct device *d, struct weight *w)
{
    const bool plain = w->kind == &kind_plain;
    w->half = plain && ((d->half && w->dtype == DT_BF16) || (d->half_f16 && w->dtype == DT_F16));
    const bool bytes = w->kind == &kind_int8 || w->kind == &kind_fp8;
    w->squares = bytes || (plain && w->dtype == DT_BF16) ? d->squares : 0;
    if (plain && w->dtype == DT_F32 && w->whole && d->squares)
        w->squares = SQUARE_PARTS;
    w->tile = tile_of(d, w);
}

static const char *storage_name(const struct mat_desc *m)
{
    const struct mat_part *p = m->parts;
    return p->source == SOURCE_CODES ? p->codes->format.name
           : m->quant                ? quant_name(m->quant)
                                     : dtype_name(m->dtype);
}

/* Copies the order of the columns, if they were sorted. */
static int keep_order(struct weight *w, const struct mat_codes *c, struct err *e)
{
    const size_t bytes = w->cols * sizeof(*w->order);
    if (!c->format.ordered)
        return 0;
    if (!(w->order = malloc(bytes)))
        return err_nomem(e);
    memcpy(w->order, c->order, bytes);
    w->bytes_beside = bytes;
    return 0;
}

/* Room for a factor of each row. */
static int add_factors(struct weight *w, struct err *e)
{
    const size_t n = (size_t)w->n_panels * LANES;
    if (!(w->factor = malloc(n * sizeof(*w->factor))))
        return err_nomem(e);
    w->bytes_beside += n * sizeof(*w->factor);
    for (size_t i = 0; i < n; i++)
        w->factor[i] = 1.0f;
    return 0;
}

/* Copies the factors of the rows, if any part has them. */
static int keep_factors(struct weight *w, const struct mat_desc *m, struct err *e)
{
    bool any = false;
    for (int i = 0; i < m->n_parts; i++)
        any |= m->parts[i].codes->format.factors;
    if (!any)
        return 0;
    if (add_factors(w, e))
        return -1;
    for (size_t i = 0; i < w->rows; i++) {
        int64_t row = (int64_t)i;
        const struct mat_part *p = cpu_part_of(m, &row);
        w->factor[i] = p->codes->format.factors ? p->codes->factor[row] : 1.0f;
    }
    return 0;
}

/* The layout of codes, and what is beside the panels. */
static int prepare_codes(struct weight *w, const struct mat_desc *m, struct err *e)
{
    if (m->parts[0].source == SOURCE_CODES) {
        code_layout_make(&w->codes, m->parts, m->n_parts);
        return keep_order(w, m->parts[0].codes, e) ? -1 : keep_factors(w, m, e);
    }
    const struct mat_codes like = {.format = formats[FORMAT_Q4_0]};
    code_layout_make(&w->codes, &(struct mat_part){.codes = &like}, 1);
    return add_factors(w, e);
}

struct weight *cpu_weight_load(struct device *d, const struct mat_desc *m, struct err *e)
{
    int64_t rows;
    if (check_shape(m, &rows, e))
        return NULL;
    struct weight *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e), NULL;
    w->kind = kind_of(m);
    w->dtype = m->dtype;
    w->whole = m->whole;
    cpu_weight_choose(d, w);
    w->rows = (uint32_t)rows;
    w->cols = w->stored = (uint32_t)m->parts[0].cols;
    w->n_panels = (w->rows + LANES - 1) / LANES;
    if (are_e4m3(m))
        cpu_blocks_make(w, m);
    if (has_codes(w) ? prepare_codes(w, m, e) : cpu_bands_find(w, m, e)) {
        cpu_weight_free(d, w);
        return NULL;
    }
    w->panel_bytes = w->kind->panel_bytes(w);
    if (__builtin_mul_overflow(w->panel_bytes, (size_t)w->n_panels, &w->bytes) ||
        !(w->data = cpu_map(w->bytes))) {
        err_set(e, ERR_SYSTEM,
                "no memory for a weight of %u x %u %s, %zu bytes (--quantize, --num-shard)",
                w->rows, w->cols, storage_name(m), w->bytes);
        cpu_weight_free(d, w);
        return NULL;
    }
    struct packing job = {.d = d, .w = w, .m = m};
    pool_run(d->pool, pack_panels, &job, w->n_panels, PANEL_GRAIN);
    w->top = f32_of_f16((uint16_t)atomic_load(&job.top));
    return w;
}

static bool takes_e4m3(const struct format *f)
{
    return f->scale == SCALE_F32 && (!f->block || block_fits(f->block));
}

enum take cpu_weight_takes(const struct format *f, enum arith a)
{
    if (f->scale == SCALE_BF16) /* --quantize int4 */
        return a == ARITH_INT8 ? TAKE_NATIVE : TAKE_NO;
    if (f->element == ELEMENT_E4M3)
        return a == ARITH_INT8 ? TAKE_NO : takes_e4m3(f) ? TAKE_NATIVE : TAKE_WIDEN;
    if (!f->block)
        return TAKE_NATIVE;
    const bool fits = f->group && CODE_COLS % f->group == 0 && f->group >= CODE_LANES &&
                      f->block >= CODE_LANES && CODE_BLOCK % f->block == 0 && f->bits <= 8 &&
                      f->scale == SCALE_F16;
    return fits && (!f->rounded || a == ARITH_INT8) ? TAKE_NATIVE : TAKE_WIDEN;
}

void cpu_weight_free(struct device *d, struct weight *w)
{
    (void)d;
    if (!w)
        return;
    if (!w->mapped) {
        cpu_unmap(w->data, w->bytes);
        free(w->from);
        free(w->order);
        free(w->factor);
    }
    free(w);
}

uint64_t cpu_weight_bytes(const struct weight *w) { return w->bytes + w->bytes_beside; }

float *cpu_vector_load(struct device *d, const struct mat_part *v, float plus, struct err *e)
{
    int64_t n = v->rows * v->cols;
    float *out = cpu_alloc(d, (size_t)n * sizeof(float) + 64, e);
    for (int64_t i = 0; out && i < n; i++) {
        int64_t at = i / v->cols * v->row_stride + i % v->cols * v->col_stride;
        out[i] = number_at(v->data, v->dtype, at) + plus;
    }
    return out;
}
