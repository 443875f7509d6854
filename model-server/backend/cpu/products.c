/* products.c - chooses the fastest permitted form of product on this CPU.
 *
 * Forms that differ in rounding or in the order of sums are chosen by the CPU alone: all ranks,
 * and a shard that replaces another, must compute the same bits however busy the machine is.
 * Forms with the same bits are timed, with a block of a product that stays in the L1 cache. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/cpu/kv_page.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { K = 256, ROUNDS = 7, TILES = 60 }; /* a round takes at most about 100 us */
enum { PANELS = 2 };

/* Zeroed memory, large enough for every form. */
struct arena {
    _Alignas(64) char w[PANELS][sizeof(float) * K * LANES];
    _Alignas(64) char x[sizeof(int32_t) * K * 2 * SQUARE];
    _Alignas(64) char y[sizeof(float) * 2 * SQUARE * PANELS * LANES];
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef void form_fn(const struct kernels *kern, struct arena *a);

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
    kern->squares_i8(&(struct squares){.sums = a->y,
                                       .sums_bytes = sizeof(float) * PANELS * LANES,
                                       .x = a->x,
                                       .x_bytes = (size_t)K / SQUARE_STEP_BYTES * SQUARE_BYTES,
                                       .rows = SQUARE,
                                       .parts = 1,
                                       .w = a->w[0],
                                       .w_bytes = sizeof(a->w[0]),
                                       .tall = 2,
                                       .wide = PANELS,
                                       .steps = K / SQUARE_STEP_BYTES});
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

/* AMD's CPUs issue vdpbf16ps, with its two products a lane, as often as vfmadd; Intel's a quarter
 * as often or less. */
static bool pairs_are_fast(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

/* Products of 16-bit weights and of attention, exact or with x, q and the weights of attention
 * rounded. Exact ones on AMX take several passes. */
static void choose_plain(struct device *d, bool rounds)
{
    const bool amx = d->features & CPU_AMX_BF16;
    const bool pairs = !amx && d->features & CPU_AVX512_BF16 && pairs_are_fast();
    const struct kv_products exact = {.squares = amx ? SQUARE_PARTS : 0};
    const struct kv_products half = {.squares = amx, .pairs = pairs};
    d->kv[true] = half, d->kv[true].quads = true; /* the same bits on every CPU */
    d->kv[false] = rounds ? half : exact;
    d->squares = d->kv[false].squares;
    d->half = d->kv[false].pairs;
    d->half_f16 = rounds && d->features & (CPU_AVX512_FP16 | CPU_NEON_FP16);
}

/* Of two forms with the same bits. */
static void measure_squares(struct device *d, struct arena *a)
{
    const struct kernels *kern = &d->kern;
    if (d->features & CPU_AMX_INT8)
        d->squares_i8 = time_of(in_squares_of_8_bits, kern, a, 2 * SQUARE) <
                        time_of(in_tiles_of_8_bits, kern, a, kern->mr_w8a8);
    if (d->features & CPU_AVX512 && d->features & CPU_AMX_BF16)
        d->squares_codes = time_of(in_squares_of_codes, kern, a, SQUARE) <
                           time_of(in_tiles_of_codes, kern, a, kern->mr_wide);
}

uint32_t cpu_head_step(const struct device *d)
{
    return d->kv[false].squares == 1 ? 32 : d->kv[false].pairs ? 1 : 0;
}

struct kv_products cpu_kv_products(const struct device *d, enum kv_dtype type, bool rounds)
{
    struct kv_products p = {0};
    if (!kv_dtype_in_bf16(type))
        return p;
    p = d->kv[rounds];
    p.squares = type == KV_BF16 ? p.squares : 0;
    p.quads &= type == KV_I4;
    p.pairs &= !p.quads;
    return p;
}

/* More cores share a memory that is not as much faster. Matrix units are, several times. */
uint32_t cpu_tile_rows(const struct device *d)
{
    enum { ROWS_LEAST = 128, ROWS_MOST = 512, ROWS_OF_THREAD = 64, ROWS_OF_UNIT = 128 };
    const bool unit = d->features & CPU_AMX_BF16;
    const uint32_t n = (uint32_t)pool_threads(d->pool) * (unit ? ROWS_OF_UNIT : ROWS_OF_THREAD);
    return n < ROWS_LEAST ? ROWS_LEAST : n < ROWS_MOST ? n : ROWS_MOST;
}

uint32_t cpu_head_size(const struct device *d, enum dtype weights, uint32_t head_dim,
                       enum kv_dtype *kv)
{
    const uint32_t step = cpu_head_step(d);
    (void)weights;
    if (!step)
        return 0;
    *kv = KV_BF16;
    return (head_dim + step - 1) / step * step;
}

void choose_products(struct device *d, enum arith asked)
{
    choose_plain(d, asked == ARITH_HALF);
    struct arena *a = aligned_alloc(64, sizeof(*a));
    if (!a)
        return;
    memset(a, 0, sizeof(*a));
    measure_squares(d, a);
    free(a);
}
