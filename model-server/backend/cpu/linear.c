/* linear.c - products with packed weights, in fp32.
 *
 * x is packed into tiles of rows that fill the registers together with the panels. One tile (a
 * decode step): the panels are streamed from memory. Several (prefill): two panels and a block of
 * columns at a time, for all tiles of a chunk of rows, while the next pair is prefetched. Weights
 * are widened to fp32 in registers, directly before the multiply-adds. If the device multiplies
 * pairs of bfloat16, x is narrowed instead (weight.half). Codes need more work: they are widened
 * into memory that stays in the cache, for all tiles of a chunk. docs/results/cpu-kernels.md has
 * measurements of the sizes below. */
#include "model-server/backend/cpu/linear.h"
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <math.h>
#include <string.h>

/* A block of columns of a pair of panels stays in the L2 cache, beside the next one; x comes from
 * the last cache, far more slowly than it is used. */
enum { PAIR_BYTES = 256 << 10 };
enum { PASS_TILES = 48 };                   /* packed at a time: bounds the scratch memory */
enum { AHEAD = 1024 };                      /* bytes prefetched in each of the streams */
enum { LEAST_TILES = 8, BLOCK_TILES = 12 }; /* of a thread's block of rows */
enum { PACK_COLS = 256 };                   /* an item of the packing */
enum { PACK_ALONE = 16384 };                /* numbers that do not pay for a second thread */
enum { WIDE_PANELS = 4, WIDE_COLS = 64 };   /* widened for one tile: half of the L1 cache */
_Static_assert(PAIR_BYTES / (2 * STEP_BYTES) % BLOCK_MOST == 0, "no scale is divided");
_Static_assert(PAIR_BYTES <= (size_t)THREAD_SCRATCH, "a pair of panels, widened");

static const float *tile_x(const struct float_product *p, uint32_t tile)
{
    return p->packed + (size_t)tile * packed_cols(p->w, p->x_cols) * TILE_ROWS;
}

/* Outputs of panels from `panel` on. */
static float *panel_y(const struct float_product *p, size_t panel)
{
    return p->y + (panel - p->first_panel) * LANES;
}

/* Elements of a tile of x of some rows before the first column of a panel. */
static size_t before_panel(const struct weight *w, size_t panel, uint32_t rows)
{
    return (size_t)packed_cols(w, panel_from(w, panel)) * tile_stride(rows);
}

/* A power of two to scale a row, so that no sum of F16_FLUSH products with numbers up to `top`
 * overflows float16, nor two of them, nor the row itself: all stay below 2^15. */
static float f16_unit(const struct kernels *kern, const float *row, uint32_t n, float top)
{
    int exponent;
    const float most = kern->row_top(row, n) * fmaxf(top * F16_FLUSH, 0.5f);
    if (!isfinite(most) || most < 0x1p-60f)
        return 1.0f;
    (void)frexpf(most, &exponent); /* most < 2^exponent */
    return ldexpf(1.0f, 14 - exponent);
}

/* PACK_COLS columns at most, as pairs; an odd last one is paired with zero. units: of the rows, of
 * float16; NULL: bfloat16. */
static void pack_pairs(const struct kernels *kern, float *dst, const float *const *src,
                       uint32_t rows, uint32_t n, const float *units)
{
    _Alignas(64) uint16_t half[PACK_COLS + 1];
    _Alignas(64) float scaled[PACK_COLS];
    if (!units) {
        kern->pack_bf16x2(dst, src, rows, n);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(scaled, src[r], n * sizeof(*scaled));
        kern->soft_cap(scaled, n, units[r], 0.0f);
        kern->narrow_f16(half, scaled, n);
        half[n] = 0;
        for (uint32_t k = 0; k < n; k += 2)
            memcpy(dst + (size_t)(k / 2) * tile_stride(rows) + r, half + k, sizeof(*dst));
    }
}

/* Items are blocks of columns of a tile. */
static void pack_x(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    (void)thread;
    const uint32_t cols = p->x_cols, blocks = (cols + PACK_COLS - 1) / PACK_COLS;
    for (size_t item = begin; item < end; item++) {
        uint32_t tile = (uint32_t)(item / blocks), k = (uint32_t)(item % blocks) * PACK_COLS;
        const struct slice rows = slice_of(p->rows, tile, p->n_tiles);
        const float *src[TILE_ROWS];
        for (uint32_t r = 0; r < rows.n; r++)
            src[r] = p->x + (size_t)(rows.first + r) * p->ldx + k;
        float *dst = (float *)tile_x(p, tile) + (size_t)packed_cols(p->w, k) * tile_stride(rows.n);
        uint32_t n = cols - k < PACK_COLS ? cols - k : PACK_COLS;
        if (p->w->half)
            pack_pairs(p->kern, dst, src, rows.n, n, p->units ? p->units + rows.first : NULL);
        else
            p->kern->pack(dst, src, rows.n, n, 1.0f);
    }
}

void linear_pack(struct float_product *p)
{
    pack_x(p, 0, 0, (size_t)p->n_tiles * ((p->x_cols + PACK_COLS - 1) / PACK_COLS));
}

/* Bytes of n columns of a panel. */
static size_t column_bytes(const struct weight *w, size_t n)
{
    const bool bytes = w->kind == &kind_int8 || w->kind == &kind_fp8;
    return n * (bytes ? LANES : LANES * dtype_size(w->dtype));
}

/* The bias of a panel, if products of plain numbers add it to their sums: not if something else
 * comes first. */
static const float *tile_bias(const struct float_product *p, size_t panel)
{
    const bool plain = p->w->kind == &kind_plain && !p->units;
    return p->bias && plain ? p->bias + panel * LANES : NULL;
}

/* Scales and bias are applied last, so that divisions of a chain do not matter. */
static void finish(const struct float_product *p, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; (has_row_scales(p->w) || p->w->factor) && i < n; i += LANES) {
        const float *s = p->w->factor ? p->w->factor + first + i
                                      : row_scales(p->w, weight_panel(p->w, (first + i) / LANES));
        for (uint32_t r = 0; r < p->rows; r++)
            for (uint32_t l = 0; l < LANES && i + l < n; l++)
                p->y[(size_t)r * p->ldy + first + i + l] *= s[l];
    }
    for (uint32_t r = 0; p->units && r < p->rows; r++)
        if (p->units[r] != 1.0f)
            p->kern->soft_cap(p->y + (size_t)r * p->ldy + first, n, 1.0f / p->units[r], 0.0f);
    for (uint32_t r = 0; p->bias && !tile_bias(p, 0) && r < p->rows; r++)
        p->kern->axpy(p->y + (size_t)r * p->ldy + first, p->bias + first, 1.0f, n);
}

/* Outputs of panels [begin, end). */
static uint32_t n_outputs(const struct weight *w, size_t begin, size_t end)
{
    size_t last = end * LANES < w->rows ? end * LANES : w->rows;
    return (uint32_t)(last - begin * LANES);
}

/* Columns [k, k + n) of panels [begin, end), [panel][n][16]. */
static void widen(const struct float_product *p, float *to, size_t begin, size_t end, uint32_t k,
                  uint32_t n)
{
    const struct weight *w = p->w;
    for (size_t i = begin; i < end; i++, to += (size_t)n * LANES)
        w->kind->widen(p->kern, to, w, weight_panel(w, i), k, n);
}

/* Panels of codes, a few columns at a time: the chains continue where the last ones ended. */
static void stream_codes(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    const struct weight *w = p->w;
    const float *x = p->packed ? p->packed : p->x;
    float *wide = (float *)(void *)cpu_thread_scratch(p->d, thread);
    for (size_t i = begin, next; i < end; i = next) {
        next = i + WIDE_PANELS < end ? i + WIDE_PANELS : end;
        for (uint32_t k = 0; k < w->cols; k += WIDE_COLS) {
            const uint32_t n = w->cols - k < WIDE_COLS ? w->cols - k : WIDE_COLS;
            widen(p, wide, i, next, k, n);
            p->kern->tile_f32(&(struct tile){.y = p->y + i * LANES,
                                             .ldy = w->rows,
                                             .x = x + (size_t)k * tile_stride(p->rows),
                                             .w = wide,
                                             .w_bytes = (size_t)n * STEP_BYTES,
                                             .rows = p->rows,
                                             .n = n_outputs(w, i, next),
                                             .k = n,
                                             .add = k > 0});
        }
    }
    finish(p, (uint32_t)begin * LANES, n_outputs(w, begin, end));
}

/* The same for one row, without a buffer of widened columns. */
static void dot_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    const struct weight *w = p->w;
    const uint32_t first = (uint32_t)begin * LANES, n = n_outputs(w, begin, end);
    (void)thread;
    p->kern->dot_codes(p->y + first, p->x, weight_panel(w, begin), w->panel_bytes, &w->codes, n,
                       w->cols);
    finish(p, first, n);
}

/* The columns of a tile, from k on, of panels from `panel` on, by blocks: the sum of each is
 * multiplied with its scale and added to y. */
static void run_scaled(const struct weight *w, struct tile t, size_t panel, uint32_t k)
{
    const uint32_t cols = t.k;
    t.factors = row_scales(w, weight_panel(w, panel)) + (size_t)k / w->block * LANES;
    for (uint32_t i = 0; i < cols; i += t.k) {
        t.k = cols - i < w->block ? cols - i : w->block;
        w->tile(&t);
        t.add = true;
        t.x += (size_t)t.k * tile_stride(t.rows);
        t.w = (const char *)t.w + column_bytes(w, t.k);
        t.factors += LANES;
        t.next += t.pace ? (ptrdiff_t)(column_bytes(w, t.k) / STEP_BYTES * t.pace) -
                               (ptrdiff_t)column_bytes(w, t.k)
                         : 0;
    }
}

/* Not a copy of `t`: its fields have just been stored one by one, and a copy by wider loads waits
 * until all stores of the tile before are in the cache. */
static void run_tile(const struct weight *w, const struct tile *t, size_t panel, uint32_t k)
{
    if (w->block)
        run_scaled(w, *t, panel, k);
    else
        w->tile(t);
}

/* With blocks a few panels at a time, so that their columns are read in order; with bands those of
 * the same columns. */
static void stream_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    const struct weight *w = p->w;
    const size_t step = w->block ? WIDE_PANELS : end - begin;
    const size_t bytes = column_bytes(w, w->block); /* what follows a block are the next ones */
    const size_t further = !w->block ? 0 : bytes < AHEAD ? AHEAD : bytes;
    (void)thread;
    for (size_t i = begin, next; i < end; i = next) {
        next = panels_alike(w, i, i + step < end ? i + step : end);
        run_tile(w,
                 &(struct tile){.y = p->y + i * LANES,
                                .ldy = w->rows,
                                .x = (p->packed ? p->packed : p->x) + before_panel(w, i, p->rows),
                                .w = weight_panel(w, i),
                                .w_bytes = w->panel_bytes,
                                .rows = p->rows,
                                .n = n_outputs(w, i, next),
                                .k = w->stored,
                                .bias = tile_bias(p, i),
                                .ahead = AHEAD,
                                .next = (ptrdiff_t)further},
                 i, 0);
    }
    finish(p, (uint32_t)begin * LANES, n_outputs(w, begin, end));
}

/* Columns of a pair of panels that are multiplied at a time. */
static uint32_t block_cols(const struct weight *w)
{
    return PAIR_BYTES / 2 / (w->kind->widen ? STEP_BYTES : (uint32_t)column_bytes(w, 1));
}

/* Each tile continues the sums in y and prefetches its share of the next pair; codes are
 * prefetched while they are widened. */
static void run_block(const struct float_product *p, const struct row_block *b)
{
    const struct weight *w = p->w;
    size_t steps = column_bytes(w, b->cols) / STEP_BYTES;
    struct tile t = {.ldy = p->ldy,
                     .w = weight_panel(w, b->panel) + column_bytes(w, b->k),
                     .w_bytes = w->panel_bytes,
                     .n = n_outputs(w, b->panel, b->end),
                     .k = b->cols,
                     .add = b->k > 0,
                     .bias = b->k + b->cols == w->stored ? tile_bias(p, b->panel) : NULL,
                     .ahead = UINT32_MAX,
                     .pace = (STEP_BYTES + p->n_tiles - 1) / p->n_tiles};
    if (w->kind->widen) {
        widen(p, b->wide, b->panel, b->end, b->k, b->cols);
        t.w = b->wide;
        t.w_bytes = (size_t)b->cols * STEP_BYTES;
    }
    for (uint32_t i = 0; i < p->n_tiles; i++) {
        const struct slice rows = slice_of(p->rows, i, p->n_tiles);
        t.rows = rows.n;
        t.x = tile_x(p, i) + before_panel(w, b->panel, t.rows) +
              (size_t)packed_cols(w, b->k - p->first_col) * tile_stride(t.rows);
        t.y = panel_y(p, b->panel) + (size_t)rows.first * p->ldy;
        t.next = w->kind->widen ? 0 : b->next + (ptrdiff_t)(i * steps * t.pace);
        run_tile(w, &t, b->panel, b->k);
    }
}

void linear_columns(const struct float_product *p, struct row_block *b, size_t begin, size_t end)
{
    const struct weight *w = p->w;
    for (b->panel = begin; b->panel < end; b->panel = b->end) {
        b->end = panels_alike(w, b->panel, b->panel + 2 < end ? b->panel + 2 : end);
        /* after the last: the next columns of the first pair */
        b->next = b->end < end ? (ptrdiff_t)((b->end - b->panel) * w->panel_bytes)
                               : (ptrdiff_t)column_bytes(w, b->cols) -
                                     (ptrdiff_t)((b->panel - begin) * w->panel_bytes);
        run_block(p, b);
    }
}

void linear_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    const struct weight *w = p->w;
    const uint32_t most = block_cols(w);
    struct row_block b = {.wide = (float *)(void *)cpu_thread_scratch(p->d, thread)};
    for (b.k = 0; b.k < w->stored; b.k += b.cols) {
        b.cols = w->stored - b.k < most ? w->stored - b.k : most;
        linear_columns(p, &b, begin, end);
    }
    finish(p, (uint32_t)begin * LANES, n_outputs(w, begin, end));
}

/* Blocks of rows for threads that multiply them with all panels; 0: too few rows, too many weights,
 * or x of a block does not fit a thread's memory. */
static uint32_t row_blocks(const struct float_product *p)
{
    const uint32_t threads = (uint32_t)pool_threads(p->d->pool);
    const size_t tile = (size_t)packed_cols(p->w, p->w->cols) * TILE_ROWS * sizeof(float);
    const size_t fit = THREAD_SCRATCH / tile, most = fit < BLOCK_TILES ? fit : BLOCK_TILES;
    if (p->w->kind->widen || has_row_units(p->w) || p->w->bytes > LINEAR_MOST_BYTES ||
        most < LEAST_TILES || p->n_tiles < threads * LEAST_TILES)
        return 0; /* units of rows are found before packing */
    return linear_blocks(threads, p->n_tiles, (uint32_t)most);
}

/* Items are blocks of rows: x of one is packed into memory that stays in the L2 cache. */
static void multiply_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    const struct weight *w = p->w;
    for (size_t i = begin; i < end; i++) {
        const struct slice rows = slice_of(p->rows, (uint32_t)i, p->n_blocks);
        struct float_product b = *p;
        b.x += (size_t)rows.first * w->cols, b.y += (size_t)rows.first * w->rows;
        b.rows = rows.n, b.n_tiles = (rows.n + p->kern->mr - 1) / p->kern->mr;
        b.packed = (float *)(void *)cpu_thread_scratch(p->d, thread);
        linear_pack(&b);
        linear_panels(&b, thread, 0, w->n_panels);
    }
}

static void find_units(void *arg, int thread, size_t begin, size_t end)
{
    const struct float_product *p = arg;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        p->units[r] = f16_unit(p->kern, p->x + r * p->w->cols, p->w->cols, p->w->top);
}

/* Rows of x that do not pay for a second thread. */
static size_t alone_rows(const struct weight *w)
{
    const size_t rows = PACK_ALONE / w->cols;
    return rows ? rows : 1;
}

static void multiply(struct float_product *p)
{
    const struct weight *w = p->w;
    struct pool *pool = p->d->pool;
    if ((p->n_blocks = row_blocks(p))) {
        pool_run(pool, multiply_rows, p, p->n_blocks, 1);
        return;
    }
    if (p->rows > 1 || w->half) {
        uint32_t blocks = (w->cols + PACK_COLS - 1) / PACK_COLS;
        size_t row = packed_cols(w, w->cols), alone = PACK_ALONE / PACK_COLS * p->n_tiles / p->rows;
        const size_t packed = p->n_tiles * row * TILE_ROWS;
        p->packed = cpu_scratch(p->d, SCRATCH_PACK, (packed + p->rows) * sizeof(float));
        if (!p->packed)
            return;
        if (has_row_units(w)) {
            p->units = p->packed + packed;
            pool_run(pool, find_units, p, p->rows, alone_rows(w));
        }
        pool_run(pool, pack_x, p, (size_t)p->n_tiles * blocks, alone ? alone : 1);
    }
    const bool dot = p->rows == 1 && w->kind == &kind_codes;
    range_fn *stream = dot ? dot_panels : w->kind->widen ? stream_codes : stream_panels;
    pool_run(pool, p->n_tiles == 1 ? stream : linear_panels, p, w->n_panels, PANEL_GRAIN);
}

struct order_job {
    const struct weight *w;
    const float *x;
    float *out;
};

static void order_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct order_job *j = arg;
    const uint32_t cols = j->w->cols;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        for (uint32_t k = 0; k < cols; k++)
            j->out[r * cols + k] = j->x[r * cols + j->w->order[k]];
}

/* x with its columns in the order of w's; NULL: out of memory. */
static const float *in_order(struct device *d, const float *x, uint32_t rows,
                             const struct weight *w)
{
    struct order_job j = {w, x, NULL};
    j.out = cpu_scratch(d, SCRATCH_ORDER, (size_t)rows * w->cols * sizeof(float));
    if (j.out)
        pool_run(d->pool, order_rows, &j, rows, alone_rows(w));
    return j.out;
}

void linear_float(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                  const float *bias)
{
    const uint32_t mr = d->kern.mr;
    if (w->order && !(x = in_order(d, x, rows, w)))
        return;
    if (w->squares) {
        linear_squares(d, &(struct strided){y, x, bias, w->rows, w->cols}, rows, w);
        return;
    }
    uint32_t tiles = (rows + mr - 1) / mr, passes = (tiles + PASS_TILES - 1) / PASS_TILES;
    for (uint32_t i = 0; i < passes; i++) {
        const struct slice part = slice_of(rows, i, passes);
        multiply(&(struct float_product){.kern = &d->kern,
                                         .d = d,
                                         .w = w,
                                         .y = y + (size_t)part.first * w->rows,
                                         .x = x + (size_t)part.first * w->cols,
                                         .bias = bias,
                                         .ldx = w->cols,
                                         .ldy = w->rows,
                                         .x_cols = w->cols,
                                         .rows = part.n,
                                         .n_tiles = (part.n + mr - 1) / mr});
    }
}

void cpu_linear(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                const float *bias)
{
    if (d->observer && rows)
        d->observer(d->observer_arg, w, x, rows);
    w->kind->linear(d, y, x, rows, w, bias);
}

void cpu_observe(struct device *d,
                 void (*fn)(void *arg, const struct weight *w, const float *x, uint32_t rows),
                 void *arg)
{
    d->observer = fn;
    d->observer_arg = arg;
}

/* ---------------------------------------------------------------- a matrix for each head */

struct heads_job {
    struct device *d;
    float *y;
    const float *x;
    struct weight *const *w;
    uint32_t rows, n, tiles;
};

/* A tile of rows of one head: x is packed, then multiplied with the whole matrix. The chains are
 * those of linear(). */
static void head_tile(const struct heads_job *j, int thread, uint32_t head, uint32_t tile)
{
    const struct weight *w = j->w[head];
    const struct kernels *kern = &j->d->kern;
    const struct slice part = slice_of(j->rows, tile, j->tiles);
    const uint32_t first = part.first, rows = part.n;
    float *packed = (float *)(void *)cpu_thread_scratch(j->d, thread);
    const bool f16 = has_row_units(w);
    const float *src[TILE_ROWS];
    float units[TILE_ROWS];
    for (uint32_t r = 0; f16 && r < rows; r++)
        units[r] =
            f16_unit(kern, j->x + ((size_t)(first + r) * j->n + head) * w->cols, w->cols, w->top);
    for (uint32_t k = 0; k < w->cols; k += PACK_COLS) {
        const uint32_t n = w->cols - k < PACK_COLS ? w->cols - k : PACK_COLS;
        float *dst = packed + (size_t)packed_cols(w, k) * tile_stride(rows);
        for (uint32_t r = 0; r < rows; r++)
            src[r] = j->x + ((size_t)(first + r) * j->n + head) * w->cols + k;
        if (w->half)
            pack_pairs(kern, dst, src, rows, n, f16 ? units : NULL);
        else
            kern->pack(dst, src, rows, n, 1.0f);
    }
    for (size_t i = 0, next; i < w->n_panels; i = next) {
        next = panels_alike(w, i, w->n_panels);
        w->tile(&(struct tile){.y = j->y + ((size_t)first * j->n + head) * w->rows + i * LANES,
                               .ldy = (size_t)j->n * w->rows,
                               .x = packed + before_panel(w, i, rows),
                               .w = weight_panel(w, i),
                               .w_bytes = w->panel_bytes,
                               .rows = rows,
                               .n = n_outputs(w, i, next),
                               .k = w->stored,
                               .ahead = AHEAD});
    }
    for (uint32_t r = 0; f16 && r < rows; r++)
        kern->soft_cap(j->y + ((size_t)(first + r) * j->n + head) * w->rows, w->rows,
                       1.0f / units[r], 0.0f);
}

static void head_tiles(void *arg, int thread, size_t begin, size_t end)
{
    const struct heads_job *j = arg;
    for (size_t i = begin; i < end; i++)
        head_tile(j, thread, (uint32_t)(i / j->tiles), (uint32_t)(i % j->tiles));
}

_Static_assert(sizeof(float) * LINEAR_HEADS_COLS * TILE_ROWS <= THREAD_SCRATCH, "a packed tile");

void cpu_linear_heads(struct device *d, float *y, const float *x, uint32_t rows,
                      struct weight *const *w, uint32_t n)
{
    const uint32_t mr = d->kern.mr;
    if (!rows || !n)
        return;
    if (w[0]->cols > LINEAR_HEADS_COLS) {
        err_set(&d->fault, ERR_VALIDATION, "%u columns for each head: too many", w[0]->cols);
        return;
    }
    for (uint32_t i = 0; w[0]->squares && i < n; i++)
        linear_squares(d,
                       &(struct strided){y + (size_t)i * w[0]->rows, x + (size_t)i * w[0]->cols,
                                         NULL, (size_t)n * w[0]->rows, (size_t)n * w[0]->cols},
                       rows, w[i]);
    if (w[0]->squares)
        return;
    struct heads_job j = {d, y, x, w, rows, n, (rows + mr - 1) / mr};
    pool_run(d->pool, head_tiles, &j, (size_t)n * j.tiles, 1);
}
