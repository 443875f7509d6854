/* linear_codes.c - products of codes with activations in 8 bits, rounded for each 32 columns
 * (kernels.h).
 *
 * x is rounded once per product. A few rows (a decode step): the packed panels are streamed from
 * memory, for one tile or two. More: columns of a panel are unpacked once, into the L2 cache, for
 * all tiles of a chunk of rows, while the next panel is prefetched. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <string.h>

enum { X_BYTES = 3 << 19 };      /* size of the rounded rows that are multiplied at a time */
enum { GRAIN_NUMBERS = 16384 };  /* rounded in a thread */
enum { SQUARE_ROWS_LEAST = 32 }; /* fewer are as fast in tiles; the bits are the same */
enum { WIDE_COLS = 4096 };       /* columns of a panel that are unpacked at a time */
_Static_assert(WIDE_COLS / CODE_COLS * CODE_WIDE_BYTES <= THREAD_SCRATCH, "an unpacked panel");

struct code_product {
    const struct kernels *kern;
    struct device *d;
    const struct weight *w;
    float *y;
    const float *x, *bias;
    int32_t *packed; /* tiles, [groups][rows][CODE_X_WORDS] each */
    uint32_t rows, n_tiles, groups;
};

static size_t row_words(const struct code_product *p) { return (size_t)p->groups * CODE_X_WORDS; }

const float *code_group_of(float *copy, const float *row, const struct weight *w, uint32_t k)
{
    const uint32_t left = w->cols - k, n = left < CODE_COLS ? left : CODE_COLS;
    if (!w->order && n == CODE_COLS)
        return row + k;
    for (uint32_t i = 0; i < CODE_COLS; i++)
        copy[i] = i >= n ? 0.0f : row[w->order ? w->order[k + i] : k + i];
    return copy;
}

static void round_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct code_product *p = arg;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const struct slice tile = slice_with(p->rows, (uint32_t)r, p->n_tiles);
        int32_t *dst = p->packed + tile.first * row_words(p) + (r - tile.first) * CODE_X_WORDS;
        const float *row = p->x + r * p->w->cols;
        float copy[CODE_COLS];
        for (uint32_t g = 0; g < p->groups; g++, dst += (size_t)tile.n * CODE_X_WORDS)
            p->kern->round_x(dst, code_group_of(copy, row, p->w, g * CODE_COLS), &p->w->codes);
    }
}

/* Factors and bias are applied last. */
static void finish(const struct code_product *p, size_t begin, size_t end)
{
    const uint32_t first = (uint32_t)begin * LANES, n = p->w->rows;
    const uint32_t last = end * LANES < n ? (uint32_t)end * LANES : n;
    for (uint32_t r = 0; p->w->factor && r < p->rows; r++)
        for (uint32_t i = first; i < last; i++)
            p->y[(size_t)r * n + i] *= p->w->factor[i];
    for (uint32_t r = 0; p->bias && r < p->rows; r++)
        p->kern->axpy(p->y + (size_t)r * n + first, p->bias + first, 1.0f, last - first);
}

static struct code_tile tile_of(const struct code_product *p, size_t panel, size_t end)
{
    const struct weight *w = p->w;
    const size_t last = end * LANES < w->rows ? end * LANES : w->rows;
    return (struct code_tile){.y = p->y + panel * LANES,
                              .ldy = w->rows,
                              .x = p->packed,
                              .w = weight_panel(w, panel),
                              .w_bytes = w->panel_bytes,
                              .layout = &w->codes,
                              .rows = p->rows,
                              .n = (uint32_t)(last - panel * LANES),
                              .k = code_cols(w)};
}

/* The packed panels with each tile: a few panels at a time, which stay in the L1 cache. */
static void stream_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct code_product *p = arg;
    const size_t step = p->n_tiles == 1 ? end - begin : 2;
    (void)thread;
    for (size_t panel = begin; panel < end; panel += step)
        for (uint32_t i = 0; i < p->n_tiles; i++) {
            const struct slice rows = slice_of(p->rows, i, p->n_tiles);
            struct code_tile t = tile_of(p, panel, panel + step < end ? panel + step : end);
            t.y += (size_t)rows.first * p->w->rows;
            t.x += rows.first * row_words(p);
            t.rows = rows.n;
            p->kern->tile_codes(&t);
        }
    finish(p, begin, end);
}

/* Columns from k on of a panel, for all tiles. Each prefetches its share of the same columns of
 * the next panel. */
static void wide_panel(const struct code_product *p, char *wide, size_t panel, uint32_t k)
{
    const struct weight *w = p->w;
    const uint32_t left = code_cols(w) - k, cols = left < WIDE_COLS ? left : WIDE_COLS;
    const size_t at = (size_t)k / CODE_BLOCK * w->codes.bytes;
    const size_t bytes = (size_t)(cols + CODE_BLOCK - 1) / CODE_BLOCK * w->codes.bytes;
    const uint32_t groups = cols / CODE_COLS;
    const size_t share = bytes / groups / p->n_tiles / STEP_BYTES * STEP_BYTES + STEP_BYTES;
    p->kern->unpack(wide, weight_panel(w, panel), &w->codes, k, cols);
    for (uint32_t i = 0; i < p->n_tiles; i++) {
        const struct slice rows = slice_of(p->rows, i, p->n_tiles);
        struct code_tile t = tile_of(p, panel, panel + 1);
        t.y += (size_t)rows.first * w->rows;
        t.x += rows.first * row_words(p) + (size_t)k / CODE_COLS * rows.n * CODE_X_WORDS;
        t.w = wide;
        t.rows = rows.n;
        t.k = cols;
        t.add = k > 0;
        t.fetch = weight_panel(w, panel + 1) + at + i * share * groups;
        t.fetch_step = i * share * groups < bytes ? share : 0;
        p->kern->tile_wide(&t);
    }
}

static void wide_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct code_product *p = arg;
    char *wide = cpu_thread_scratch(p->d, thread);
    for (size_t panel = begin; panel < end; panel++)
        for (uint32_t k = 0; k < p->w->cols; k += WIDE_COLS)
            wide_panel(p, wide, panel, k);
    finish(p, begin, end);
}

static void multiply(struct code_product *p)
{
    const bool few = p->rows <= p->kern->few_codes;
    const size_t grain = GRAIN_NUMBERS / p->w->cols;
    const uint32_t mr = few ? p->kern->mr_codes : p->kern->mr_wide;
    p->n_tiles = (p->rows + mr - 1) / mr;
    p->packed = cpu_scratch(p->d, SCRATCH_PACK, p->rows * row_words(p) * sizeof(*p->packed));
    if (!p->packed)
        return;
    pool_run(p->d->pool, round_rows, p, p->rows, grain ? grain : 1);
    pool_run(p->d->pool, few ? stream_panels : wide_panels, p, p->w->n_panels, PANEL_GRAIN);
}

void linear_codes(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                  const float *bias)
{
    const uint32_t groups = code_cols(w) / CODE_COLS, mr = d->kern.mr_wide;
    if (d->squares_codes && rows >= SQUARE_ROWS_LEAST && groups % 2 == 0) {
        linear_code_squares(d, y, x, rows, w, bias);
        return;
    }
    const size_t row = (size_t)groups * CODE_X_WORDS * sizeof(int32_t);
    uint32_t chunk = (uint32_t)(X_BYTES / row) / mr * mr;
    chunk = chunk < 4 * mr ? 4 * mr : chunk;
    const uint32_t chunks = (rows + chunk - 1) / chunk;
    for (uint32_t i = 0; i < chunks; i++) {
        const struct slice part = slice_of(rows, i, chunks);
        multiply(&(struct code_product){.kern = &d->kern,
                                        .d = d,
                                        .w = w,
                                        .y = y + (size_t)part.first * w->rows,
                                        .x = x + (size_t)part.first * w->cols,
                                        .bias = bias,
                                        .rows = part.n,
                                        .groups = groups});
    }
}
