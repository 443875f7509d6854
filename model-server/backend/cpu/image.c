/* image.c - packed matrices as bytes, and back: struct weight_image of backend.h.
 *
 * Panels are the same for every instruction set (kernels.h), except float16, which is interleaved
 * if it is multiplied in pairs. So the layout is a version number and that choice. A change to
 * the panels of any kind of matrix must increment the number: tests/check/test_image.c has
 * checksums of packed bytes and fails until both are changed. */
#include "model-server/backend/cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A new one if panels, or the choice of what becomes which kind of panel, change: older files are
 * not read then. */
enum { PANEL_LAYOUT = 6 };

struct head {
    uint32_t kind, dtype, rows, cols;
    uint64_t panel_bytes;
    float top;
    uint32_t pairs, block, stored;
    struct {
        uint32_t upper, scales, groups, offset, by, less, codes, bytes;
        float zero;
        int32_t table; /* a row of formats[] with this table, -1: none */
    } codes;
    uint32_t whole; /* mat_desc.whole; 0 in files from before it */
};
_Static_assert(sizeof(struct head) <= WEIGHT_HEAD, "the head has room");

/* Their indices are part of the layout. */
static const struct weight_kind *const kinds[] = {&kind_plain, &kind_int8,  &kind_w8a8,  &kind_int4,
                                                  &kind_fp8,   &kind_codes, &kind_codes8};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
enum { PANELS, COLUMNS, FACTOR }; /* the pieces; COLUMNS: `order`, or of numbers `from` */

void cpu_weight_layout(const struct device *d, char *out, size_t max)
{
    snprintf(out, max, "cpu panels %d of %d%s, heads by %u", PANEL_LAYOUT, LANES,
             d->half_f16 ? ", float16 in pairs" : "", cpu_head_step(d));
}

static bool table_row(const uint8_t *table, int32_t *row)
{
    for (*row = table ? FORMAT_N - 1 : -1; *row >= 0; --*row)
        if (formats[*row].table == table)
            break;
    return !table || *row >= 0;
}

static size_t columns_bytes(const struct weight *w)
{
    return w->from ? w->n_panels * sizeof(*w->from) : w->order ? w->cols * sizeof(*w->order) : 0;
}

bool cpu_weight_image(const struct weight *w, struct weight_image *out)
{
    struct head h = {.dtype = w->dtype,
                     .rows = w->rows,
                     .cols = w->cols,
                     .panel_bytes = w->panel_bytes,
                     .top = w->top,
                     .pairs = in_pairs(w),
                     .block = w->block,
                     .stored = w->stored,
                     .whole = w->whole};
    while (h.kind < KINDS && kinds[h.kind] != w->kind)
        h.kind++;
    const struct code_layout *l = &w->codes;
    h.codes.upper = l->upper, h.codes.scales = l->scales, h.codes.groups = l->groups;
    h.codes.offset = l->offset, h.codes.by = l->by, h.codes.less = l->less;
    h.codes.codes = l->codes, h.codes.bytes = l->bytes, h.codes.zero = l->zero;
    if (h.kind == KINDS || !table_row(l->table, &h.codes.table))
        return false;
    *out = (struct weight_image){
        .piece = {[PANELS] = {w->data, w->bytes},
                  [COLUMNS] = {w->from ? w->from : w->order, columns_bytes(w)},
                  [FACTOR] = {w->factor,
                              w->factor ? (size_t)w->n_panels * LANES * sizeof(*w->factor) : 0}}};
    memcpy(out->head, &h, sizeof(h));
    return true;
}

/* Reads the layout of a block of codes; false if it is inconsistent. */
static bool read_codes(struct code_layout *l, const struct head *h)
{
    *l = (struct code_layout){.upper = h->codes.upper,
                              .scales = h->codes.scales,
                              .groups = h->codes.groups,
                              .offset = h->codes.offset,
                              .by = h->codes.by,
                              .less = h->codes.less,
                              .zero = h->codes.zero};
    if ((l->upper > 2 && l->upper != 4) || !l->scales || CODE_LANES % l->scales ||
        (l->groups != 0 && l->groups != 8 && l->groups != 16) || h->codes.table >= FORMAT_N ||
        h->codes.table < -1)
        return false;
    l->table = h->codes.table < 0 ? NULL : formats[h->codes.table].table;
    code_layout_place(l);
    return (h->codes.table < 0 || (l->table && !l->offset && !l->less)) &&
           l->offset == h->codes.offset && l->by == h->codes.by && l->less == h->codes.less &&
           l->codes == h->codes.codes && l->bytes == h->codes.bytes;
}

static bool columns_fit(const struct weight *w)
{
    bool fits = true;
    for (uint32_t i = 0; w->order && i < w->cols; i++)
        fits &= w->order[i] < w->cols;
    fits &= !w->from || cpu_bands_fit(w);
    for (uint32_t i = 0; w->from && i < w->n_panels; i++)
        fits &= w->from[i] <= w->cols - w->stored && w->from[i] % 2 == 0;
    return fits;
}

/* Sizes must equal those that this program would compute, so that no product reads outside the
 * pieces. */
static bool fill(const struct device *d, struct weight *w, const struct head *h,
                 const struct weight_image *in)
{
    if (h->kind >= KINDS || h->dtype >= DT_N || !h->rows || h->rows > INT32_MAX - LANES ||
        !h->cols || h->cols > INT32_MAX)
        return false;
    w->kind = kinds[h->kind];
    w->dtype = (enum dtype)h->dtype;
    w->rows = h->rows;
    w->cols = h->cols;
    w->stored = h->stored;
    w->n_panels = (w->rows + LANES - 1) / LANES;
    w->top = h->top;
    w->whole = h->whole != 0;
    cpu_weight_choose(d, w);
    w->block = h->block;
    if (w->block && (w->kind != &kind_fp8 || !block_fits(w->block)))
        return false;
    if (in_pairs(w) != h->pairs || (has_codes(w) && !read_codes(&w->codes, h)))
        return false;
    w->panel_bytes = w->kind->panel_bytes(w);
    const uint64_t columns = in->piece[COLUMNS].bytes, factor = in->piece[FACTOR].bytes;
    uint32_t *const of = columns ? (uint32_t *)(uintptr_t)in->piece[COLUMNS].data : NULL;
    const bool bands = of && w->kind == &kind_plain;
    w->from = bands ? of : NULL;
    w->order = bands ? NULL : of;
    if (w->panel_bytes != h->panel_bytes ||
        __builtin_mul_overflow(w->panel_bytes, (size_t)w->n_panels, &w->bytes) ||
        w->bytes != in->piece[PANELS].bytes || (columns && columns != columns_bytes(w)) ||
        !w->stored || w->stored > w->cols || (!bands && w->stored != w->cols) ||
        (factor && factor != (size_t)w->n_panels * LANES * sizeof(*w->factor)))
        return false;
    w->data = (char *)(uintptr_t)in->piece[PANELS].data;
    w->factor = factor ? (float *)(uintptr_t)in->piece[FACTOR].data : NULL;
    w->bytes_beside = columns + factor;
    return columns_fit(w);
}

struct weight *cpu_weight_mapped(struct device *d, const struct weight_image *in, struct err *e)
{
    struct head h;
    struct weight *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e), NULL;
    memcpy(&h, in->head, sizeof(h));
    w->mapped = true;
    if (fill(d, w, &h, in))
        return w;
    free(w);
    err_set(e, ERR_VALIDATION, "a packed matrix of %u x %u is not laid out as this program's",
            h.rows, h.cols);
    return NULL;
}
