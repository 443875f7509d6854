/* half.c - does this CPU multiply pairs of bfloat16 faster than it widens them to fp32? The
 * instruction has twice the rate of fp32 multiply-adds on some CPUs and half of it on others, so a
 * block of a product that stays in the first caches is timed both ways. */
#include "model-server/backend/cpu/cpu.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { K = 256, ROUNDS = 7, TILES = 60 }; /* a round: some 100 us */
/* What a loss of accuracy must buy. The rates differ by about 2, so noise decides nothing. */
static const double WORTH = 1.3;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of the fastest round. */
static double time_of(void (*tile)(const struct tile *t), const struct tile *t)
{
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        for (int j = 0; j < TILES; j++)
            tile(t);
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    return best;
}

bool half_is_faster(const struct kernels *kern, unsigned features)
{
    if ((features & (CPU_AVX512 | CPU_AVX512_BF16)) != (CPU_AVX512 | CPU_AVX512_BF16))
        return false;
    enum { N = 2 * LANES };
    size_t w_bytes = sizeof(uint16_t) * K * LANES, x_bytes = sizeof(float) * K * TILE_ROWS;
    size_t y_bytes = sizeof(float) * TILE_ROWS * N;
    char *p = aligned_alloc(64, 2 * w_bytes + x_bytes + y_bytes);
    if (!p)
        return false;
    memset(p, 0, 2 * w_bytes + x_bytes + y_bytes);
    struct tile t = {.w = p, .w_bytes = w_bytes, .rows = TILE_ROWS, .n = N, .k = K, .ldy = N};
    t.x = (float *)(p + 2 * w_bytes), t.y = (float *)(p + 2 * w_bytes + x_bytes);
    double exact = time_of(kern->tile_bf16, &t), half = time_of(kern->tile_bf16x2, &t);
    free(p);
    return exact > WORTH * half;
}
