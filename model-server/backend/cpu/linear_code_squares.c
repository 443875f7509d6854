/* linear_code_squares.c - products of codes with activations in 8 bits on matrix units: the bits of
 * linear_codes(), see code_squares.h.
 *
 * x is rounded once, to records. A part of the columns is multiplied at a time, whose records of
 * all rows fit the L2 cache. In a part two panels at a time are unpacked, a few groups of columns
 * at a time: these stay in the L1 cache for all rows. The sums of some hundred panels lie together
 * until the last part. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <string.h>

enum { PASS_ROWS = 512 };  /* records of x at a time */
enum { PART_COLS = 1024 }; /* of all rows of a pass: about 1.2 MB */
enum { BLOCK_COLS = 256 }; /* of two panels: 20 KiB of records */
enum { WIDE = 2 };         /* panels at a time */
enum { STORE_AHEAD = 4 };  /* rows of y that are prefetched: their addresses are far apart */
enum { SET_PANELS = 256 }; /* whose sums are kept: 8 MB */
/* Two panels' records are in a thread's scratch memory. */
enum { RECORD_BYTES = BLOCK_COLS / CODE_COLS * (CODE_COLS * LANES * 2 + 4 * CODE_WORDS) };
_Static_assert(WIDE *RECORD_BYTES <= THREAD_SCRATCH, "records of a block");

struct code_square_product {
    struct device *d;
    const struct weight *w;
    float *y;
    const float *x, *bias;
    float *sums;         /* of a set of panels, by twos: [tall][2][16][16] */
    char *packed;        /* [blocks of columns][tall][records of a block] */
    size_t set;          /* its first panel */
    uint32_t rows, tall; /* squares of them */
    uint32_t part;       /* its first column */
    size_t group;        /* bytes of 32 columns of 16 rows: one record, or two */
};

/* The records of a square's rows from column k on; a block may be shorter than the others. */
static char *records_of(const struct code_square_product *p, uint32_t tall, uint32_t k)
{
    const uint32_t block = k / BLOCK_COLS * BLOCK_COLS, left = code_cols(p->w) - block;
    const uint32_t cols = left < BLOCK_COLS ? left : BLOCK_COLS;
    const size_t before = (size_t)block / CODE_COLS * p->tall + (size_t)tall * (cols / CODE_COLS) +
                          (k - block) / CODE_COLS;
    return p->packed + before * p->group;
}

/* 32 columns of a row to its record. Rows after the last one are zero. */
static void round_group(const struct code_square_product *p, char *record, uint32_t row, uint32_t k)
{
    static const float none[CODE_COLS];
    const float *src = p->x + (size_t)row * p->w->cols;
    float copy[CODE_COLS];
    p->d->kern.square_x(record, row >= p->rows ? none : code_group_of(copy, src, p->w, k),
                        &p->w->codes, row % SQUARE);
}

/* One record after the other, so that it is written while it is in the cache. */
static void round_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct code_square_product *p = arg;
    (void)thread;
    for (size_t tall = begin; tall < end; tall++)
        for (uint32_t k = 0; k < code_cols(p->w); k += CODE_COLS)
            for (uint32_t i = 0; i < SQUARE; i++)
                round_group(p, records_of(p, (uint32_t)tall, k), (uint32_t)tall * SQUARE + i, k);
}

/* The outputs of a panel, which the last one may not have in full. */
struct outputs {
    uint32_t first, n;
};

static struct outputs outputs_of(const struct weight *w, size_t panel)
{
    const uint32_t first = (uint32_t)panel * LANES, left = w->rows - first;
    return (struct outputs){first, left < LANES ? left : LANES};
}

/* A constant size is copied by vectors. */
static void copy_outputs(float *to, const float *from, uint32_t n)
{
    if (n == LANES)
        memcpy(to, from, LANES * sizeof(*to));
    else
        memcpy(to, from, n * sizeof(*to));
}

/* Of the two panels from an even one on, or of one alone. */
static float *sums_of(const struct code_square_product *p, size_t panel)
{
    return p->sums + (panel - p->set) * p->tall * SQUARE * LANES;
}

/* Factors and bias are applied last. */
static void finish_outputs(const struct code_square_product *p, float *y, struct outputs o)
{
    for (uint32_t i = 0; p->w->factor && i < o.n; i++)
        y[i] *= p->w->factor[o.first + i];
    if (p->bias)
        p->d->kern.axpy(y, p->bias + o.first, 1.0f, o.n);
}

static void store_row(const struct code_square_product *p, uint32_t row, size_t begin, size_t end)
{
    for (size_t panel = begin; panel < end; panel++) {
        const struct outputs o = outputs_of(p->w, panel);
        const size_t first = panel - (panel - p->set) % WIDE;
        const uint32_t i = (uint32_t)(panel - first), wide = end - first < WIDE ? 1 : WIDE;
        float *y = p->y + (size_t)row * p->w->rows + o.first;
        copy_outputs(y,
                     sums_of(p, first) +
                         ((size_t)(row / SQUARE * wide + i) * SQUARE + row % SQUARE) * LANES,
                     o.n);
        finish_outputs(p, y, o);
    }
}

/* Of some panels, from a column on. */
struct block {
    size_t panel;
    uint32_t k;
};

/* Multiplies a block of `wide` panels with all rows, while the next one is prefetched. */
static void multiply_block(const struct code_square_product *p, char *records, uint32_t wide,
                           struct block at, struct block next)
{
    const struct weight *w = p->w;
    const struct kernels *kern = &p->d->kern;
    const uint32_t left = code_cols(w) - at.k, cols = left < BLOCK_COLS ? left : BLOCK_COLS;
    for (uint32_t i = 0; i < wide; i++)
        kern->square_w(records + i * (cols / CODE_COLS * p->group), weight_panel(w, at.panel + i),
                       &w->codes, at.k, cols);
    const size_t bytes = (size_t)cols * w->codes.bytes / CODE_BLOCK;
    kern->squares_codes(&(struct code_squares){
        .sums = sums_of(p, at.panel),
        .x = records_of(p, 0, at.k),
        .w = records,
        .layout = &w->codes,
        .tall = p->tall,
        .wide = wide,
        .steps = cols / term_columns(&w->codes),
        .add = at.k > 0,
        .fetch = weight_panel(w, next.panel) + (size_t)(next.k / CODE_BLOCK) * w->codes.bytes,
        .fetch_step = (bytes / p->tall + STEP_BYTES) / STEP_BYTES * STEP_BYTES,
        .fetch_panel = w->panel_bytes,
    });
}

static void run_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct code_square_product *p = arg;
    const uint32_t cols = code_cols(p->w);
    const uint32_t last = cols - p->part < PART_COLS ? cols : p->part + PART_COLS;
    begin += p->set, end += p->set;
    for (size_t panel = begin; panel < end; panel += WIDE) {
        const uint32_t wide = end - panel < WIDE ? (uint32_t)(end - panel) : WIDE;
        for (uint32_t k = p->part; k < last; k += BLOCK_COLS) {
            const bool more = k + BLOCK_COLS < last;
            multiply_block(p, cpu_thread_scratch(p->d, thread), wide, (struct block){panel, k},
                           more ? (struct block){panel, k + BLOCK_COLS}
                                : (struct block){panel + WIDE, p->part});
        }
    }
    for (uint32_t r = 0; r < p->rows && last == cols; r++) {
        const uint32_t soon = r + STORE_AHEAD < p->rows ? r + STORE_AHEAD : r;
        const float *y = p->y + (size_t)soon * p->w->rows;
        for (size_t panel = begin; panel < end; panel++)
            __builtin_prefetch(y + panel * LANES, 1);
        store_row(p, r, begin, end);
    }
}

static void multiply(struct code_square_product *p)
{
    const uint32_t cols = code_cols(p->w), panels = p->w->n_panels;
    const size_t set = panels < SET_PANELS ? panels : SET_PANELS;
    const size_t sum_bytes = set * p->tall * SQUARE * LANES * sizeof(float);
    p->group = record_bytes(&p->w->codes) * (CODE_COLS / term_columns(&p->w->codes));
    char *scratch = cpu_scratch(p->d, SCRATCH_PACK,
                                sum_bytes + (size_t)p->tall * (cols / CODE_COLS) * p->group);
    if (!scratch)
        return;
    p->sums = (float *)(void *)scratch, p->packed = scratch + sum_bytes;
    pool_run(p->d->pool, round_rows, p, p->tall, 1);
    for (p->set = 0; p->set < panels; p->set += SET_PANELS)
        for (p->part = 0; p->part < cols; p->part += PART_COLS)
            pool_run(p->d->pool, run_panels, p,
                     panels - p->set < SET_PANELS ? panels - p->set : SET_PANELS, PANEL_GRAIN);
}

void linear_code_squares(struct device *d, float *y, const float *x, uint32_t rows,
                         const struct weight *w, const float *bias)
{
    const uint32_t passes = (rows + PASS_ROWS - 1) / PASS_ROWS;
    for (uint32_t i = 0; i < passes; i++) {
        const struct slice pass = slice_of(rows, i, passes);
        multiply(&(struct code_square_product){.d = d,
                                               .w = w,
                                               .y = y + (size_t)pass.first * w->rows,
                                               .x = x + (size_t)pass.first * w->cols,
                                               .bias = bias,
                                               .rows = pass.n,
                                               .tall = (pass.n + SQUARE - 1) / SQUARE});
    }
}
