/* linear_int.c - products of 8-bit weights with activations in 8 bits, a scale for each row.
 *
 * x is quantised once per product, into tiles of rows. One tile (a decode step): the panels are
 * streamed from memory. Several (prefill): a pair of panels at a time for all tiles, while the
 * next pair is prefetched. Sums stay in registers over all columns: 8-bit panels of a pair fit
 * the L2 cache. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <string.h>

enum { ROW_CHUNK = 240 };       /* rows quantised at a time: bounds the scratch memory */
enum { GRAIN_NUMBERS = 16384 }; /* quantised in a thread */
enum { SQUARE_ROWS_LEAST = 5 }; /* fewer are as fast in tiles; the bits are the same */

struct int_product {
    const struct kernels *kern;
    struct device *d;
    const struct weight *w;
    float *y;
    const float *x, *bias;
    int32_t *packed; /* tiles, row_words for each row */
    uint32_t rows, n_tiles;
    bool fits; /* fits_w8a8() pays */
};

enum { PANELS_AT_ONCE = 2 }; /* of several tiles */

static size_t row_words(const struct int_product *p) { return quads_of(p->w->cols) + 2; }

static void quantise_rows(void *arg, int thread, size_t begin, size_t end)
{
    enum { ZERO = 128 }; /* added to stored weights */
    const struct int_product *p = arg;
    const uint32_t cols = p->w->cols, quads = quads_of(cols);
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const struct slice tile = slice_with(p->rows, (uint32_t)r, p->n_tiles);
        int32_t *dst = p->packed + tile.first * row_words(p) + (r - tile.first), sum;
        const float scale = p->kern->quantise((uint8_t *)dst, tile.n * sizeof(*dst),
                                              p->x + r * cols, cols, 0, &sum);
        memcpy(&dst[(size_t)quads * tile.n], &scale, sizeof(scale));
        dst[(size_t)(quads + 1) * tile.n] = -ZERO * sum;
    }
}

static void run_tile(const struct int_product *p, uint32_t tile, size_t panel, size_t end,
                     const uint8_t *fits)
{
    const struct weight *w = p->w;
    const struct slice rows = slice_of(p->rows, tile, p->n_tiles);
    size_t last = end * LANES < w->rows ? end * LANES : w->rows;
    struct int_tile t = {.y = p->y + (size_t)rows.first * w->rows + panel * LANES,
                         .ldy = w->rows,
                         .x = p->packed + rows.first * row_words(p),
                         .w = weight_panel(w, panel),
                         .w_bytes = w->panel_bytes,
                         .rows = rows.n,
                         .n = (uint32_t)(last - panel * LANES),
                         .k = w->cols,
                         .fits = fits};
    if (p->n_tiles > 1) { /* a share of the next pair: memory is read continuously */
        t.fetch_step = (STEP_BYTES + p->n_tiles - 1) / p->n_tiles;
        t.fetch = (const char *)t.w + PANELS_AT_ONCE * w->panel_bytes +
                  tile * (w->panel_bytes / p->n_tiles);
    }
    p->kern->tile_w8a8(&t);
}

static void run_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct int_product *p = arg;
    size_t step = p->n_tiles == 1 ? end - begin : PANELS_AT_ONCE;
    uint8_t fits[PANELS_AT_ONCE * INT_FIT_BYTES];
    (void)thread;
    for (size_t panel = begin; panel < end; panel += step) {
        const size_t to = panel + step < end ? panel + step : end;
        for (size_t i = panel; p->fits && i < to; i++)
            p->kern->fits_w8a8(fits + (i - panel) * INT_FIT_BYTES, weight_panel(p->w, i),
                               p->w->cols);
        for (uint32_t i = 0; i < p->n_tiles; i++)
            run_tile(p, i, panel, to, p->fits ? fits : NULL);
    }
    uint32_t first = (uint32_t)begin * LANES;
    uint32_t last = end * LANES < p->w->rows ? (uint32_t)end * LANES : p->w->rows;
    for (uint32_t r = 0; p->bias && r < p->rows; r++)
        p->kern->axpy(p->y + (size_t)r * p->w->rows + first, p->bias + first, 1.0f, last - first);
}

static void multiply(struct int_product *p)
{
    const struct weight *w = p->w;
    p->packed = cpu_scratch(p->d, SCRATCH_PACK, p->rows * row_words(p) * sizeof(*p->packed));
    if (!p->packed)
        return;
    size_t grain = GRAIN_NUMBERS / w->cols;
    pool_run(p->d->pool, quantise_rows, p, p->rows, grain ? grain : 1);
    pool_run(p->d->pool, run_panels, p, w->n_panels, PANEL_GRAIN);
}

void linear_int(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                const float *bias)
{
    const uint32_t mr = d->kern.mr_w8a8;
    if (d->squares_i8 && rows >= SQUARE_ROWS_LEAST) {
        linear_squares(d, &(struct strided){y, x, bias, w->rows, w->cols}, rows, w);
        return;
    }
    const uint32_t chunks = (rows + ROW_CHUNK - 1) / ROW_CHUNK;
    for (uint32_t i = 0; i < chunks; i++) {
        const struct slice part = slice_of(rows, i, chunks);
        const uint32_t tiles = (part.n + mr - 1) / mr, least = d->kern.fit_w8a8;
        multiply(&(struct int_product){.kern = &d->kern,
                                       .d = d,
                                       .w = w,
                                       .y = y + (size_t)part.first * w->rows,
                                       .x = x + (size_t)part.first * w->cols,
                                       .bias = bias,
                                       .rows = part.n,
                                       .n_tiles = tiles,
                                       .fits = least && tiles >= least && w->cols <= INT_FIT_COLS});
    }
}
