/* half.c - chooses the fastest permitted form of product on this CPU. The name of an instruction
 * set does not determine its speed: vdpbf16ps has twice the rate of fp32 multiply-adds on some
 * CPUs and half of it on others. So a block of a product that stays in the L1 cache is timed in
 * each form. */
#include "model-server/backend/cpu/cpu.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { K = 256, ROUNDS = 7, TILES = 60 }; /* a round takes at most about 100 us */
enum { PANELS = 2 };
/* Required speed-up for a loss of accuracy, or for another order of sums. The rates differ by
 * about 2 or more, so noise decides nothing. */
static const double WORTH = 1.3;

/* Zeroed memory, large enough for every form. */
struct arena {
    _Alignas(64) char w[PANELS][sizeof(float) * K * LANES];
    _Alignas(64) char x[sizeof(uint16_t) * SQUARE_PARTS * K * 2 * SQUARE];
    _Alignas(64) char y[sizeof(float) * 2 * SQUARE * PANELS * LANES];
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef void form_fn(const struct kernels *kern, struct arena *a);

static struct tile block_of(struct arena *a)
{
    return (struct tile){.y = (float *)(void *)a->y,
                         .ldy = (size_t)PANELS * LANES,
                         .x = (float *)(void *)a->x,
                         .w = a->w,
                         .w_bytes = sizeof(a->w[0]),
                         .rows = TILE_ROWS,
                         .n = PANELS * LANES,
                         .k = K};
}
static void in_fp32(const struct kernels *kern, struct arena *a)
{
    const struct tile t = block_of(a);
    kern->tile_bf16(&t);
}
static void in_fp32_of_f16(const struct kernels *kern, struct arena *a)
{
    const struct tile t = block_of(a);
    kern->tile_f16(&t);
}
static void in_f16(const struct kernels *kern, struct arena *a)
{
    const struct tile t = block_of(a);
    kern->tile_f16x2(&t);
}
static void in_pairs_of_bf16(const struct kernels *kern, struct arena *a)
{
    const struct tile t = block_of(a);
    kern->tile_bf16x2(&t);
}
static void in_tiles_of_8_bits(const struct kernels *kern, struct arena *a)
{
    kern->tile_w8a8(&(struct int_tile){.y = (float *)(void *)a->y,
                                       .ldy = (size_t)PANELS * LANES,
                                       .x = (int32_t *)(void *)a->x,
                                       .w = a->w,
                                       .w_bytes = sizeof(a->w[0]),
                                       .rows = kern->mr_w8a8,
                                       .n = PANELS * LANES,
                                       .k = K});
}
static struct squares squares_of(struct arena *a, uint32_t step_cols, uint32_t parts)
{
    return (struct squares){.sums = a->y,
                            .sums_bytes = sizeof(float) * PANELS * LANES,
                            .x = a->x,
                            .x_bytes = (size_t)K / step_cols * parts * SQUARE_BYTES,
                            .rows = SQUARE,
                            .parts = parts,
                            .w = a->w[0],
                            .w_bytes = sizeof(a->w[0]),
                            .tall = 2,
                            .wide = PANELS,
                            .steps = K / step_cols};
}
static void in_squares(const struct kernels *kern, struct arena *a)
{
    const struct squares t = squares_of(a, SQUARE_STEP_BYTES / 2, 1);
    kern->squares_bf16(&t);
}
static void in_squares_of_parts(const struct kernels *kern, struct arena *a)
{
    const struct squares t = squares_of(a, SQUARE_STEP_BYTES / 2, SQUARE_PARTS);
    kern->squares_bf16(&t);
}
/* Of the layout that costs squares most: offsets, and terms for each 32 columns. */
static const struct code_layout in_measure = {.groups = CODE_BLOCK / CODE_COLS, .less = 1};
static void in_tiles_of_codes(const struct kernels *kern, struct arena *a)
{
    kern->tile_wide(&(struct code_tile){.y = (float *)(void *)a->y,
                                        .ldy = LANES,
                                        .x = (int32_t *)(void *)a->x,
                                        .w = a->w,
                                        .layout = &in_measure,
                                        .rows = kern->mr_wide,
                                        .n = LANES,
                                        .k = K});
}
static void in_squares_of_codes(const struct kernels *kern, struct arena *a)
{
    kern->squares_codes(&(struct code_squares){.sums = (float *)(void *)a->y,
                                               .x = a->x,
                                               .w = a->w[0],
                                               .layout = &in_measure,
                                               .tall = 1,
                                               .wide = 1,
                                               .steps = K / CODE_COLS});
}
static void in_squares_of_8_bits(const struct kernels *kern, struct arena *a)
{
    const struct squares t = squares_of(a, SQUARE_STEP_BYTES, 1);
    kern->squares_i8(&t);
}

/* Time per row, in the fastest round. */
static double time_of(form_fn *form, const struct kernels *kern, struct arena *a, uint32_t rows)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        const double start = seconds();
        for (int j = 0; j < TILES; j++)
            form(kern, a);
        const double took = seconds() - start;
        best = took < best ? took : best;
    }
    return best / rows;
}

/* Products of bfloat16 weights that round x. */
static void measure_half(struct device *d, struct arena *a)
{
    const struct kernels *kern = &d->kern;
    const bool pairs = d->features & CPU_AVX512_BF16, squares = d->features & CPU_AMX_BF16;
    if (!pairs && !squares)
        return;
    const double exact = time_of(in_fp32, kern, a, TILE_ROWS) / WORTH;
    const double paired = pairs ? time_of(in_pairs_of_bf16, kern, a, TILE_ROWS) : exact;
    const double squared = squares ? time_of(in_squares, kern, a, 2 * SQUARE) : exact;
    d->squares = squared < exact && squared <= paired ? 1 : 0;
    d->half = !d->squares && paired < exact;
}

/* The same, exact. */
static void measure_exact(struct device *d, struct arena *a)
{
    if (d->features & CPU_AMX_BF16 &&
        time_of(in_squares_of_parts, &d->kern, a, 2 * SQUARE) * WORTH <
            time_of(in_fp32, &d->kern, a, TILE_ROWS))
        d->squares = SQUARE_PARTS;
}

void measure_products(struct device *d, enum arith asked)
{
    const struct kernels *kern = &d->kern;
    struct arena *a = aligned_alloc(64, sizeof(*a));
    if (!a)
        return;
    memset(a, 0, sizeof(*a));
    if (asked == ARITH_HALF)
        measure_half(d, a);
    else
        measure_exact(d, a);
    if (asked == ARITH_HALF && d->features & CPU_AVX512_FP16)
        d->half_f16 = time_of(in_f16, kern, a, TILE_ROWS) * WORTH <
                      time_of(in_fp32_of_f16, kern, a, TILE_ROWS);
    if (d->features & CPU_AMX_INT8) /* the same bits */
        d->squares_i8 = time_of(in_squares_of_8_bits, kern, a, 2 * SQUARE) <
                        time_of(in_tiles_of_8_bits, kern, a, kern->mr_w8a8);
    if (d->features & CPU_AVX512 && d->features & CPU_AMX_BF16) /* the same bits */
        d->squares_codes = time_of(in_squares_of_codes, kern, a, SQUARE) <
                           time_of(in_tiles_of_codes, kern, a, kern->mr_wide);
    free(a);
}
