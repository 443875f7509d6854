/* team.c - products of 5 to 64 rows by teams of blocks (linear_team_wgmma.cu): who takes part. */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>

/* Bytes per second by which the size of a team is chosen: into a multiprocessor, from the L2 cache
 * and from memory into all; and seconds for adding up in a team. Figures of one H200, rounded; on
 * another GPU the choice is less good, and the results are the same. */
static const double into_sm = 54e9, from_l2 = 5.4e12, from_memory = 4e12, add_up = 3e-6;

static uint32_t tile_of(uint32_t rows)
{
    uint32_t t = 0;
    while (16u << t < rows)
        t++;
    return t;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* A wave of `teams` teams of `size` blocks. */
static double wave_seconds(const struct linear_args *a, uint32_t teams, uint32_t size)
{
    enum { OUTS = 128 };
    const double columns = (double)k_padded(a->w.cols, a->w.quant) / size;
    const double weights = 2 * columns * OUTS;
    const double all = weights + 2 * columns * (16u << tile_of(a->rows));
    const double blocks = (double)teams * size;
    return larger(larger(all / into_sm, blocks * all / from_l2), blocks * weights / from_memory) +
           (size > 1 ? add_up : 0);
}

static double seconds(const struct linear_args *a, uint32_t most, uint32_t size)
{
    const uint32_t tiles = (a->w.rows + 127) / 128, waves = tiles / most, rest = tiles % most;
    return waves * wave_seconds(a, most, size) + (rest ? wave_seconds(a, rest, size) : 0);
}

/* CUDA_TEAM_SIZE=1, 2, 4 or 8: only this size, for tests and for tuning. */
int teams_open(struct device *d)
{
    const char *only =
        getenv("CUDA_TEAM_SIZE"); /* NOLINT(concurrency-mt-unsafe): it is never written */
    const unsigned size = only ? (unsigned)strtoul(only, NULL, 10) : 0;
    if (linear_team_most(d->teams) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    for (uint32_t t = 0; t < TEAM_TILES && size; t++)
        for (uint32_t i = 0; i < TEAM_SIZES; i++)
            if (1u << i != size && d->teams[t][tile_of(16 * size)])
                d->teams[t][i] = 0;
    return 0;
}

bool team_takes(const struct device *d, const struct linear_args *a)
{
    return d->features & CUDA_WGMMA && d->features & CUDA_TEAMS && a->rows <= TEAM_ROWS &&
           a->w.quant == QUANT_NONE && !a->table;
}

void team_linear(struct device *d, struct linear_args *a)
{
    const uint32_t *most = d->teams[tile_of(a->rows)];
    uint32_t best = TEAM_SIZES;
    cuda_narrow(d, a, NARROW_WGMMA);
    if (!a->narrow)
        return;
    for (uint32_t i = 0; i < TEAM_SIZES; i++)
        if (most[i] && (best == TEAM_SIZES ||
                        seconds(a, most[i], 1u << i) < seconds(a, most[best], 1u << best)))
            best = i;
    a->blocks = most[best];
    const struct team_args t = {.l = *a, .size = 1u << best};
    RECORD(d, linear_team_launch, t);
}

struct team_args *team_last(const struct device *d, const float *y, uint32_t rows, uint32_t n)
{
    const struct recorder *r = &d->rec;
    const struct command *last = r->n ? &r->commands[r->n - 1] : NULL;
    if (!last || last->fn != linear_team_launch)
        return NULL;
    struct team_args *t = (struct team_args *)(void *)(r->bytes + last->at);
    return t->l.y == y && t->l.rows == rows && t->l.w.rows == n && !t->l.gate && !t->sum ? t : NULL;
}

bool team_sum(struct device *d, float *x, const float *r, float scale, uint32_t rows, uint32_t n)
{
    struct team_args *t = d->features & CUDA_FUSE ? team_last(d, r, rows, n) : NULL;
    if (!t)
        return false;
    t->sum = x, t->scale = scale;
    return true;
}
