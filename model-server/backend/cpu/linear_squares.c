/* linear_squares.c - products on matrix units. x becomes bfloat16, rounded or in three parts that
 * add up to it, or int8 with a scale for each row. It is laid out in steps of squares (squares.h);
 * panels of bfloat16 and of w8a8 are used as they are.
 *
 * Few rows: four panels at a time are streamed from memory. Many: a group of panels stays in the
 * L2 cache for all rows of a pass, 32 of which are multiplied at a time, while the next group is
 * prefetched. Sums stay in registers over all columns, since loading and storing a square costs
 * as much as several steps.
 *
 * Panels of bytes (INT8, FP8) are widened to squares, a block at a time, before all rows of a pass
 * are multiplied with it: then a step of them takes half of the memory traffic. Scales of rows
 * multiply the sums at the end; of blocks of columns each has sums of its own, which are scaled and
 * added up. Panels of fp32 are split into parts at the same place.
 *
 * A sum adds its columns in ascending order, whatever the pass and the block: the bits of a row
 * depend only on the row. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <string.h>

enum { PASS_ROWS = 512 };                        /* laid out at a time */
enum { TALL = 2, TALL_ROWS = TALL * SQUARE };    /* multiplied at a time */
enum { STREAM_PANELS = 4, STREAM_AHEAD = 2048 }; /* for few rows: prefetch distance in each panel */
enum { GROUP_PANELS = 16 };                      /* of many rows */
/* Of longer panels, whose sums are in memory between blocks. */
enum { BLOCK_STEPS = 128, BLOCK_PANELS = 8 };
/* Sums of a block of columns with a scale of its own. */
enum { PART_BYTES = TALL_ROWS * GROUP_PANELS * SQUARE_STEP_BYTES };
_Static_assert(PASS_ROWS *BLOCK_PANELS *SQUARE_STEP_BYTES + PART_BYTES <= THREAD_SCRATCH,
               "sums of a group");
/* Of bytes. Few rows: what is widened stays in the L1 cache; many: in the L2 cache. */
enum { BYTE_STREAM_STEPS = 8, BYTE_BLOCK_STEPS = 64 };
/* Of fp32, whose squares take six times as much as those bytes. */
enum { SPLIT_STREAM_STEPS = 4, SPLIT_BLOCK_STEPS = 32 };
_Static_assert(BLOCK_MOST / 32 <= BYTE_BLOCK_STEPS, "a block of columns is not divided");
/* Numbers in a step; numbers that become bfloat16 at a time. */
enum { STEP_COLS = SQUARE_STEP_BYTES / 2, COLS_AT_ONCE = 512 };
enum { ALONE = 16384 }; /* numbers that do not pay for a second thread */

struct square_product {
    const struct kernels *kern;
    struct device *d;
    const struct weight *w;
    const struct strided *io;
    uint32_t rows, tall; /* in hand; squares of them */
    uint32_t steps;      /* of a row */
    uint32_t parts;      /* of x, in each step */
    uint32_t square;     /* rows of a square */
    size_t x_step;       /* bytes of a square's rows of x in a step */
    uint32_t whole;      /* of them, that a panel has in full */
    uint32_t block;      /* steps at a time */
    uint32_t group;      /* panels at a time */
    bool i8;
    bool bytes;      /* of bfloat16: panels of bytes, to be widened */
    bool split;      /* of bfloat16: panels of fp32, to be split */
    uint32_t scaled; /* of bytes: steps that share a scale; 0: all */
    char *wide;      /* of bytes and fp32: [threads][wide_bytes] */
    size_t wide_bytes;
    char *packed; /* [tall][steps][parts][square][64] */
    float *scale; /* [rows], of int8, and minus 128 times the sum of the numbers */
    int32_t *correction;
};

/* ---------------------------------------------------------------- x */

/* Copies n bytes into steps that are `step` bytes apart; zeros after the last. */
static void place(char *to, size_t step, const void *bytes, size_t n)
{
    const char *from = bytes;
    for (; n >= SQUARE_STEP_BYTES; n -= SQUARE_STEP_BYTES, to += step) {
        memcpy(to, from, SQUARE_STEP_BYTES);
        from += SQUARE_STEP_BYTES;
    }
    if (n) {
        memset(to, 0, SQUARE_STEP_BYTES);
        memcpy(to, from, n);
    }
}

void square_place_bf16(const struct kernels *kern, const struct square_row *r, const float *src,
                       uint32_t n)
{
    _Alignas(64) uint16_t some[SQUARE_PARTS][COLS_AT_ONCE];
    char *to = r->to;
    for (uint32_t k = 0, m; k < n; k += m, to += COLS_AT_ONCE / STEP_COLS * r->step) {
        m = n - k < COLS_AT_ONCE ? n - k : COLS_AT_ONCE;
        if (r->parts == 1)
            kern->narrow_bf16(some[0], src + k, m);
        else
            kern->split_bf16((uint16_t *const[]){some[0], some[1], some[2]}, src + k, m);
        for (uint32_t i = 0; i < r->parts; i++)
            place(to + i * r->part, r->step, some[i], m * sizeof(**some));
    }
}

/* Where a row of x lies. */
static struct square_row packed_row(const struct square_product *p, size_t row)
{
    return (struct square_row){.to = p->packed + row / SQUARE * p->steps * p->x_step +
                                     row % SQUARE * SQUARE_STEP_BYTES,
                               .step = p->x_step,
                               .part = (size_t)p->square * SQUARE_STEP_BYTES,
                               .parts = p->parts};
}

static void place_i8(const struct square_product *p, int thread, size_t row, const float *src)
{
    const struct square_row r = packed_row(p, row);
    char *all = cpu_thread_scratch(p->d, thread);
    int32_t sum;
    p->scale[row] = p->kern->quantise((uint8_t *)all, 4, src, p->w->cols, 0, &sum);
    p->correction[row] = -128 * sum;
    place(r.to, r.step, all, (size_t)quads_of(p->w->cols) * 4);
}

static void place_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct square_product *p = arg;
    for (size_t r = begin; r < end; r++) {
        const float *src = p->io->x + r * p->io->ldx;
        const struct square_row to = packed_row(p, r);
        if (p->i8)
            place_i8(p, thread, r, src);
        else
            square_place_bf16(p->kern, &to, src, p->w->cols);
    }
}

/* ---------------------------------------------------------------- panels */

static void squares(const struct square_product *p, const struct squares *t)
{
    (p->i8 ? p->kern->squares_i8 : p->kern->squares_bf16)(t);
}

/* The last step of panels that end within it: their bytes, then zeros. */
static void last_step(const struct square_product *p, struct squares t, size_t panel, const char *x)
{
    _Alignas(64) char copy[GROUP_PANELS][SQUARE_BYTES];
    const size_t at = (size_t)p->whole * SQUARE_BYTES;
    const size_t quads = p->i8 ? quads_of(p->w->cols) : (p->w->cols + 1) / 2;
    memset(copy, 0, sizeof(copy));
    for (uint32_t i = 0; i < t.wide; i++)
        memcpy(copy[i], weight_panel(p->w, panel + i) + at, quads * STEP_BYTES - at);
    t.w = t.next = copy[0], t.w_bytes = SQUARE_BYTES, t.fetch = t.ahead = 0;
    t.x = x + p->whole * p->x_step, t.steps = 1, t.add = p->whole > 0;
    squares(p, &t);
}

/* Scales of rows, then bias. Scales of blocks are in the sums already. */
static void finish(const struct square_product *p, float *y, size_t panel, uint32_t outputs)
{
    for (uint32_t i = 0; p->bytes && !p->scaled && i < outputs; i += LANES) {
        const float *scale = row_scales(p->w, weight_panel(p->w, panel + i / LANES));
        for (uint32_t l = 0; l < LANES && i + l < outputs; l++)
            y[i + l] *= scale[l];
    }
    if (p->io->bias)
        p->kern->axpy(y, p->io->bias + panel * LANES, 1.0f, outputs);
}

/* Outputs of panels [panel, panel + wide) from the sums of `rows` rows, with scales and bias. */
static void store(const struct square_product *p, const char *sums, uint32_t row, uint32_t rows,
                  size_t panel, uint32_t wide)
{
    const struct weight *w = p->w;
    const size_t first = panel * LANES, n = (size_t)wide * LANES;
    const uint32_t outputs = (uint32_t)(first + n < w->rows ? n : w->rows - first);
    const float *scales = p->i8 ? row_scales(w, weight_panel(w, panel)) : NULL;
    for (uint32_t r = row; r < row + rows; r++, sums += (size_t)p->group * SQUARE_STEP_BYTES) {
        float *y = p->io->y + r * p->io->ldy + first;
        if (p->i8)
            p->kern->scale_sums(y, (const int32_t *)(const void *)sums, scales, w->panel_bytes,
                                p->scale[r], p->correction[r], outputs);
        else
            memcpy(y, sums, outputs * sizeof(*y));
        finish(p, y, panel, outputs);
    }
}

/* The part of a group that is multiplied at a time: panels [panel, panel + wide), steps [step,
 * step + steps). */
struct square_block {
    size_t panel;
    uint32_t wide, step, steps;
    const char *next; /* the next block, of the same size; NULL: no prefetch */
    int thread;
};

/* Bytes of a panel in a step. */
static size_t step_bytes(const struct square_product *p)
{
    return p->bytes ? SQUARE_BYTES / 2 : p->split ? 2 * SQUARE_BYTES : SQUARE_BYTES;
}

/* True if panels become squares before they are multiplied. */
static bool makes_squares(const struct square_product *p) { return p->bytes || p->split; }

/* Bytes of the squares that a step of such a panel becomes. */
static size_t made_bytes(const struct square_product *p)
{
    return p->split ? (size_t)SQUARE_PARTS * SQUARE_BYTES : SQUARE_BYTES;
}

/* A block of fp32 in parts, with zeros after the last column: [wide][steps][SQUARE_PARTS][1024]. */
static char *split_block(const struct square_product *p, const struct square_block *b)
{
    const uint32_t first = b->step * STEP_COLS, left = p->w->cols - first;
    const uint32_t n = left < b->steps * STEP_COLS ? left : b->steps * STEP_COLS;
    char *all = p->wide + (size_t)b->thread * p->wide_bytes;
    for (uint32_t i = 0; i < b->wide; i++)
        p->kern->square_f32(all + i * b->steps * made_bytes(p),
                            (const float *)(const void *)weight_panel(p->w, b->panel + i) +
                                (size_t)first * LANES,
                            n);
    return all;
}

/* A block of bytes in bfloat16, with zeros after the last column: [wide][steps][1024]. */
static char *widen_block(const struct square_product *p, const struct square_block *b)
{
    enum { QUADS = STEP_COLS / 4 };
    const uint32_t first = b->step * QUADS, left = quads_of(p->w->cols) - first;
    const uint32_t n = left < b->steps * QUADS ? left : b->steps * QUADS;
    char *all = p->wide + (size_t)b->thread * p->wide_bytes, *to = all;
    for (uint32_t i = 0; i < b->wide; i++, to += (size_t)b->steps * SQUARE_BYTES) {
        const char *from = weight_panel(p->w, b->panel + i) + (size_t)first * STEP_BYTES;
        (p->w->kind == &kind_fp8 ? p->kern->square_fp8 : p->kern->square_int8)(to, from, n);
        memset(to + (size_t)n * 2 * STEP_BYTES, 0,
               (size_t)b->steps * SQUARE_BYTES - (size_t)n * 2 * STEP_BYTES);
    }
    return all;
}

/* A block whose columns have several scales: t->sums have them. */
static void scaled_squares(const struct square_product *p, struct squares t,
                           const struct square_block *b)
{
    char *sums = t.sums, *part = cpu_thread_scratch(p->d, b->thread) + THREAD_SCRATCH - PART_BYTES;
    const uint32_t all = t.steps, rows = t.tall * t.rows;
    const char *scales = (const char *)row_scales(p->w, weight_panel(p->w, b->panel)) +
                         (size_t)b->step / p->scaled * STEP_BYTES;
    bool add = t.add;
    t.sums = part, t.add = false;
    for (uint32_t i = 0; i < all; i += t.steps, add = true, scales += STEP_BYTES) {
        t.steps = all - i < p->scaled ? all - i : p->scaled;
        squares(p, &t);
        p->kern->scale_squares(&(struct square_scales){.to = (float *)(void *)sums,
                                                       .sums = (const float *)(const void *)part,
                                                       .bytes = t.sums_bytes,
                                                       .scales = scales,
                                                       .scale_bytes = p->w->panel_bytes,
                                                       .rows = rows,
                                                       .wide = t.wide,
                                                       .add = add});
        t.x += t.steps * p->x_step;
        t.w += (size_t)t.steps * SQUARE_BYTES;
        t.next += t.steps * t.fetch;
    }
}

/* All rows with a block, after whose last step sums become outputs. */
static void run_block(const struct square_product *p, char *sums, const struct square_block *b)
{
    const struct weight *w = p->w;
    const uint32_t turns = (p->tall + TALL - 1) / TALL;
    const size_t step = step_bytes(p), share = (step / 64 + turns - 1) / turns * 64;
    const size_t all = b->steps * step;
    const bool stream = turns == 1 && !makes_squares(p);
    const char *from = weight_panel(w, b->panel) + b->step * step;
    struct squares t = {.sums_bytes = (size_t)p->group * SQUARE_STEP_BYTES,
                        .x_bytes = p->steps * p->x_step,
                        .rows = p->square,
                        .parts = p->parts,
                        .w = p->bytes   ? widen_block(p, b)
                             : p->split ? split_block(p, b)
                                        : from,
                        .w_bytes = makes_squares(p) ? b->steps * made_bytes(p) : w->panel_bytes,
                        .wide = b->wide,
                        .steps = b->steps,
                        .split = p->split,
                        .add = b->step > 0,
                        .ahead = stream ? STREAM_AHEAD : 0,
                        .next_bytes = w->panel_bytes};
    for (uint32_t i = 0; i < turns; i++) {
        const size_t fetched = i * share * b->steps;
        const uint32_t row = i * TALL_ROWS, left = p->rows - row;
        const bool fetch = stream || (b->next && fetched < all);
        t.sums = p->whole > p->block ? sums + row * t.sums_bytes : sums;
        t.tall = p->tall - i * TALL < TALL ? p->tall - i * TALL : TALL;
        t.x = p->packed + (size_t)i * TALL * t.x_bytes + b->step * p->x_step;
        t.fetch = fetch ? share : 0;
        t.next = (b->next ? b->next : from) + (fetch ? fetched : 0);
        if (p->scaled)
            scaled_squares(p, t, b);
        else if (t.steps)
            squares(p, &t);
        if (b->step + b->steps < p->whole)
            continue;
        if (p->whole < p->steps)
            last_step(p, t, b->panel, p->packed + (size_t)i * TALL * t.x_bytes);
        store(p, t.sums, row, left < TALL_ROWS ? left : TALL_ROWS, b->panel, b->wide);
    }
}

/* All rows with the panels [panel, panel + wide). Another group of the same width may follow. */
static void run_group(const struct square_product *p, int thread, size_t panel, uint32_t wide,
                      bool more)
{
    struct square_block b = {.panel = panel, .wide = wide, .thread = thread};
    do {
        const char *at = weight_panel(p->w, panel) + b.step * step_bytes(p);
        const bool last = p->whole - b.step <= p->block;
        b.steps = last ? p->whole - b.step : p->block;
        b.next = !last  ? at + b.steps * step_bytes(p)
                 : more ? weight_panel(p->w, panel + wide)
                        : NULL;
        run_block(p, cpu_thread_scratch(p->d, thread), &b);
        b.step += b.steps;
    } while (b.step < p->whole);
}

/* Up to 16 rows with panels of bytes, which are widened on the way. */
static void stream_bytes(const struct square_product *p, int thread, size_t panel, uint32_t wide,
                         bool more)
{
    const struct weight *w = p->w;
    const char *at = weight_panel(w, panel);
    char *sums = cpu_thread_scratch(p->d, thread);
    const struct byte_squares t = {.of = {.sums = sums,
                                          .sums_bytes = (size_t)p->group * SQUARE_STEP_BYTES,
                                          .x = p->packed,
                                          .x_bytes = p->steps * p->x_step,
                                          .w = at,
                                          .w_bytes = w->panel_bytes,
                                          .tall = 1,
                                          .wide = wide,
                                          .steps = p->steps,
                                          .rows = p->square,
                                          .parts = p->parts,
                                          .fetch = step_bytes(p),
                                          .ahead = STREAM_AHEAD,
                                          .next = more ? weight_panel(w, panel + wide) : at,
                                          .next_bytes = w->panel_bytes},
                                   .quads = quads_of(w->cols),
                                   .scaled = p->scaled,
                                   .scales = (const char *)row_scales(w, at)};
    (w->kind == &kind_fp8 ? p->kern->squares_fp8 : p->kern->squares_int8)(&t);
    store(p, sums, 0, p->rows, panel, wide);
}

static void run_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct square_product *p = arg;
    for (size_t panel = begin, wide; panel < end; panel += wide) {
        wide = end - panel < p->group ? end - panel : p->group;
        const bool more = panel + wide + p->group <= end;
        if (p->bytes && p->tall == 1)
            stream_bytes(p, thread, panel, (uint32_t)wide, more);
        else
            run_group(p, thread, panel, (uint32_t)wide, more);
    }
}

/* Chooses the number of panels and steps: a block of panels must fit the L2 cache with 32 rows of
 * x, and there must be enough groups for all threads. */
static void choose_sizes(struct square_product *p)
{
    const uint32_t each = p->w->n_panels / (uint32_t)pool_threads(p->d->pool);
    const bool few = p->tall <= TALL;
    const uint32_t longest = p->split ? SPLIT_BLOCK_STEPS : BLOCK_STEPS;
    p->block = few ? UINT32_MAX : BLOCK_STEPS;
    if (p->split)
        p->block = few ? SPLIT_STREAM_STEPS : SPLIT_BLOCK_STEPS;
    else if (p->bytes)
        p->block = !few                            ? BYTE_BLOCK_STEPS
                   : p->scaled > BYTE_STREAM_STEPS ? p->scaled
                                                   : BYTE_STREAM_STEPS;
    p->group = few                      ? STREAM_PANELS
               : p->whole > p->block    ? BLOCK_PANELS
               : p->whole > longest / 2 ? GROUP_PANELS / 2
                                        : GROUP_PANELS;
    while (p->group > STREAM_PANELS && p->group > each)
        p->group /= 2;
    p->wide_bytes = makes_squares(p) ? p->block * p->group * made_bytes(p) : 0;
}

static void multiply(struct square_product *p)
{
    const struct weight *w = p->w;
    const size_t x_bytes = (size_t)p->tall * p->steps * p->x_step;
    choose_sizes(p);
    const size_t wide_bytes = (size_t)pool_threads(p->d->pool) * p->wide_bytes;
    p->packed =
        cpu_scratch(p->d, SCRATCH_PACK, x_bytes + wide_bytes + (size_t)2 * p->rows * sizeof(float));
    if (!p->packed)
        return;
    p->wide = p->packed + x_bytes;
    p->scale = (float *)(void *)(p->wide + wide_bytes);
    p->correction = (int32_t *)(void *)(p->scale + p->rows);
    const size_t alone = ALONE / w->cols;
    pool_run(p->d->pool, place_rows, p, p->rows, alone ? alone : 1);
    pool_run(p->d->pool, run_panels, p, w->n_panels, p->group);
}

void linear_squares(struct device *d, const struct strided *io, uint32_t rows,
                    const struct weight *w)
{
    const bool i8 = w->kind == &kind_w8a8, bytes = !i8 && w->kind != &kind_plain;
    const bool split = w->kind == &kind_plain && w->dtype == DT_F32;
    const uint32_t step_cols = SQUARE_STEP_BYTES / (i8 ? 1 : 2), parts = i8 ? 1 : w->squares;
    const uint32_t passes = (rows + PASS_ROWS - 1) / PASS_ROWS;
    for (uint32_t i = 0; i < passes; i++) {
        const struct slice pass = slice_of(rows, i, passes);
        const struct strided part = {.y = io->y + pass.first * io->ldy,
                                     .x = io->x + pass.first * io->ldx,
                                     .bias = io->bias,
                                     .ldy = io->ldy,
                                     .ldx = io->ldx};
        const uint32_t square = pass.n < SQUARE ? pass.n : SQUARE;
        multiply(&(struct square_product){
            .kern = &d->kern,
            .d = d,
            .w = w,
            .io = &part,
            .rows = pass.n,
            .tall = (pass.n + SQUARE - 1) / SQUARE,
            .steps = (w->cols + step_cols - 1) / step_cols,
            .whole = (w->cols + (bytes || split ? step_cols - 1 : 0)) / step_cols,
            .parts = parts,
            .square = square,
            .x_step = (size_t)parts * square * SQUARE_STEP_BYTES,
            .i8 = i8,
            .bytes = bytes,
            .split = split,
            .scaled = bytes ? w->block / STEP_COLS : 0});
    }
}
