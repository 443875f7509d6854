/* bands.c - matrices of numbers whose panels are 0 outside of a few columns: block diagonals, as
 * those of grouped convolutions.
 *
 * The columns are found at load, from the numbers, whatever slices and stacks the matrix is made
 * of. A panel then has these columns alone, and products read only their part of x. A sum that
 * begins with +0 keeps its bits if products with 0 are left out. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/numbers.h"
#include <stdlib.h>

enum { BAND_STEP = LANES }; /* columns: bands begin at its multiples, where there is room */

struct band {
    uint32_t from, end;
};

static bool is_zero(const struct mat_part *p, int64_t row, int64_t k)
{
    return number_at(p->data, p->dtype, row * p->row_stride + k * p->col_stride) == 0;
}

/* Grows b until all columns of a row outside of it are 0. */
static void grow(struct band *b, const struct mat_part *p, int64_t row)
{
    uint32_t k = 0;
    while (k < b->from && is_zero(p, row, k))
        k++;
    b->from = k;
    for (k = (uint32_t)p->cols; k > b->end && is_zero(p, row, k - 1); k--)
        ;
    b->end = k;
}

/* The band of rows [row, row + 16) of the stacked parts, up to the last row. */
static struct band band_of(const struct mat_desc *m, const struct weight *w, size_t row)
{
    struct band b = {w->cols, 0};
    for (size_t i = row; i < row + LANES && i < w->rows; i++) {
        int64_t at = (int64_t)i;
        const struct mat_part *p = cpu_part_of(m, &at);
        grow(&b, p, at);
    }
    b.from = b.from / BAND_STEP * BAND_STEP;
    if (b.end < b.from) /* all are 0 */
        b.from = b.end = 0;
    return b;
}

static bool all_numbers(const struct mat_desc *m)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].source != SOURCE_NUMBERS || !m->parts[i].data)
            return false;
    return true;
}

/* Sums of float16 in pairs, and those on matrix units, depend on the number of columns; pairs of
 * columns are together. */
bool cpu_bands_fit(const struct weight *w)
{
    return w->kind == &kind_plain && !w->squares && !has_row_units(w) && w->cols % 2 == 0;
}

int cpu_bands_find(struct weight *w, const struct mat_desc *m, struct err *e)
{
    const uint32_t most = w->cols - w->cols / 4; /* fewer columns pay */
    if (!cpu_bands_fit(w) || !all_numbers(m) || most < BAND_STEP)
        return 0;
    uint32_t *from = malloc(w->n_panels * sizeof(*from)), width = BAND_STEP;
    if (!from)
        return err_nomem(e);
    for (uint32_t i = 0; i < w->n_panels && width <= most; i++) {
        const struct band b = band_of(m, w, (size_t)i * LANES);
        const uint32_t steps = (b.end - b.from + BAND_STEP - 1) / BAND_STEP;
        width = steps * BAND_STEP > width ? steps * BAND_STEP : width;
        from[i] = b.from;
    }
    if (width > most) {
        free(from);
        return 0;
    }
    for (uint32_t i = 0; i < w->n_panels; i++)
        from[i] = from[i] + width > w->cols ? w->cols - width : from[i];
    w->from = from;
    w->stored = width;
    w->bytes_beside += w->n_panels * sizeof(*from);
    return 0;
}
