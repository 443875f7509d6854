/* fourier.c - the discrete Fourier transform over the tokens of texts: products with cosines and
 * sines, which are made for some tiles of tokens at a time. Each number is two chains over the
 * tokens in ascending order, whatever the tile, the thread and the rest of the batch. */
#include "model-server/backend/cpu/cpu.h"
#include "model-server/backend/slice.h"
#include <math.h>
#include <string.h>

enum { CHUNK_TILES = 8 };     /* tiles of results that share a panel of x */
enum { TOKENS_BLOCK = 2048 }; /* of x that are a panel of real and one of imaginary parts */
_Static_assert(2 * TOKENS_BLOCK * STEP_BYTES <= THREAD_SCRATCH, "both panels");

struct fourier {
    struct device *d;
    float *y;       /* [tokens, n] */
    const float *x; /* [tokens, 2 half] */
    uint32_t n, half;
    const struct span *s;
    uint32_t tiles, tile, some; /* of the span; the chunk [tile, tile + some) */
    float *turns;               /* cosines [span], then sines of 2 pi i / span */
    float *factors;             /* of the chunk: cosines [tiles][span][TILE_ROWS], then sines */
};

static float *factors_of(const struct fourier *f, bool sines, uint32_t tile)
{
    return f->factors + ((size_t)(sines ? CHUNK_TILES : 0) + tile) * f->s->n * TILE_ROWS;
}

/* Items are tiles of the chunk: the factors of all tokens, transposed as x of the tile kernels. */
static void fill_factors(void *arg, int thread, size_t begin, size_t end)
{
    const struct fourier *f = arg;
    const uint32_t all = f->s->n;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const struct slice rows = slice_of(all, f->tile + (uint32_t)i, f->tiles);
        const uint32_t stride = tile_stride(rows.n);
        float *to[2] = {factors_of(f, false, (uint32_t)i), factors_of(f, true, (uint32_t)i)};
        for (uint32_t r = 0; r < rows.n; r++)
            for (uint32_t t = 0, at = 0; t < all; t++) {
                to[0][(size_t)t * stride + r] = f->turns[at];
                to[1][(size_t)t * stride + r] = f->turns[all + at];
                at += rows.first + r;
                at -= at >= all ? all : 0;
            }
    }
}

/* Numbers [k, k + n) of `tokens` rows as a panel. */
static void pack_panel(float *to, const float *x, size_t stride, uint32_t tokens, uint32_t n)
{
    for (uint32_t t = 0; t < tokens; t++, to += LANES, x += stride) {
        memcpy(to, x, n * sizeof(*to));
        memset(to + n, 0, (LANES - n) * sizeof(*to));
    }
}

/* Sums of the two parts for all tiles of the chunk. */
struct sums {
    _Alignas(64) float of[2][CHUNK_TILES * TILE_ROWS][LANES];
};

/* The conjugates have the other sign of the second sum. */
static void write_rows(const struct fourier *f, const struct sums *sums, uint32_t tile, uint32_t k,
                       uint32_t n)
{
    const struct slice rows = slice_of(f->s->n, f->tile + tile, f->tiles);
    for (uint32_t r = 0; r < rows.n; r++) {
        const float *even = sums->of[0][tile * TILE_ROWS + r];
        const float *odd = sums->of[1][tile * TILE_ROWS + r];
        float *y = f->y + (size_t)(f->s->first + rows.first + r) * f->n;
        for (uint32_t i = 0; i < n; i++) {
            y[k + i] = even[i] + odd[i];
            if (k + i && f->n - k - i >= f->half)
                y[f->n - k - i] = even[i] - odd[i];
        }
    }
}

/* Adds the products with numbers [k, k + n) of tokens [t, t + tokens) to the sums of all tiles. */
static void add_tokens(const struct fourier *f, float *panel, struct sums *sums, uint32_t k,
                       uint32_t n, uint32_t t, uint32_t tokens)
{
    static const size_t bytes = (size_t)TOKENS_BLOCK * STEP_BYTES;
    const float *x = f->x + (size_t)(f->s->first + t) * 2 * f->half + k;
    pack_panel(panel, x, 2 * (size_t)f->half, tokens, n);
    pack_panel(panel + bytes / sizeof(*panel), x + f->half, 2 * (size_t)f->half, tokens, n);
    for (size_t i = 0; i < 2 * (size_t)f->some; i++) {
        const bool odd = i % 2;
        const uint32_t tile = (uint32_t)(i / 2);
        const struct slice rows = slice_of(f->s->n, f->tile + tile, f->tiles);
        f->d->kern.tile_f32(
            &(struct tile){.y = sums->of[odd][i / 2 * TILE_ROWS],
                           .ldy = LANES,
                           .x = factors_of(f, odd, tile) + (size_t)t * tile_stride(rows.n),
                           .w = panel + (odd ? bytes / sizeof(*panel) : 0),
                           .w_bytes = bytes,
                           .rows = rows.n,
                           .n = LANES,
                           .k = tokens,
                           .add = t > 0});
    }
}

/* Items are panels of x. */
static void transform_panels(void *arg, int thread, size_t begin, size_t end)
{
    const struct fourier *f = arg;
    const uint32_t all = f->s->n;
    float *panel = (float *)(void *)cpu_thread_scratch(f->d, thread);
    struct sums sums = {0};
    for (size_t p = begin; p < end; p++) {
        const uint32_t k = (uint32_t)p * LANES, n = f->half - k < LANES ? f->half - k : LANES;
        for (uint32_t t = 0; t < all; t += TOKENS_BLOCK)
            add_tokens(f, panel, &sums, k, n, t, all - t < TOKENS_BLOCK ? all - t : TOKENS_BLOCK);
        for (uint32_t i = 0; i < f->some; i++)
            write_rows(f, &sums, i, k, n);
    }
}

static void fill_turns(float *turns, uint32_t n)
{
    const double unit = 2 * 3.14159265358979323846 / n;
    for (uint32_t i = 0; i < n; i++) {
        turns[i] = (float)cos(unit * i);
        turns[n + i] = (float)sin(unit * i);
    }
}

static void transform_span(struct fourier *f)
{
    const uint32_t all = f->s->n, mr = f->d->kern.mr;
    const size_t factors = 2 * (size_t)CHUNK_TILES * all * TILE_ROWS;
    f->factors = cpu_scratch(f->d, SCRATCH_PACK, (factors + 2 * (size_t)all) * sizeof(float));
    if (!f->factors)
        return;
    f->turns = f->factors + factors;
    fill_turns(f->turns, all);
    f->tiles = (all + mr - 1) / mr;
    for (f->tile = 0; f->tile < f->tiles; f->tile += f->some) {
        f->some = f->tiles - f->tile < CHUNK_TILES ? f->tiles - f->tile : CHUNK_TILES;
        pool_run(f->d->pool, fill_factors, f, f->some, 1);
        pool_run(f->d->pool, transform_panels, f, (f->half + LANES - 1) / LANES, 1);
    }
}

void cpu_fourier(struct device *d, float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < d->batch->n_spans; i++)
        if (d->batch->spans[i].n)
            transform_span(&(struct fourier){
                .d = d, .y = y, .x = x, .n = n, .half = n / 2 + 1, .s = &d->batch->spans[i]});
}
