/* wgmma.c - decides when products use wgmma, and with which tiles.
 *
 * linear_wgmma keeps the other kernels' order of sums as far as an instruction allows. How wgmma
 * and mma.sync add 16 products is not documented. So it is tested once, when a device is opened.
 * Products of numbers whose sums need rounding are computed with both instructions, and wgmma is
 * used if every bit agrees. CUDA_WGMMA_ANY uses it in any case. Then a row's bits depend on
 * whether it is computed with more than 64 others, and the guarantees of
 * docs/decisions/invariance.md do not hold between such steps. */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/backend/numbers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- the product */

/* Fewer rows use a tile of 128 worse than linear_tile's. */
enum { WGMMA_ROWS = 64 };

bool wgmma_takes(const struct device *d, const struct linear_args *a)
{
    return d->features & CUDA_WGMMA && a->rows > WGMMA_ROWS && a->w.quant == QUANT_NONE;
}

/* Tiles of `rows` rows for one block, or two that share x. */
struct tiling {
    uint32_t rows, blocks;
};

static uint64_t tiles_of(const struct linear_args *a, struct tiling t)
{
    const uint64_t outs = 128 * t.blocks;
    return ((uint64_t)a->w.rows + outs - 1) / outs * ((a->rows + t.rows - 1) / t.rows);
}

/* Cycles of a block for 64 columns of a tile: those of the products, or those of the copies from
 * the L2 cache, if that is more. A multiprocessor of an H200 got 31 to 38 bytes a cycle of it in
 * every shape that was measured without pairs (docs/results/gpu.md). */
static uint32_t stage_cycles(struct tiling t)
{
    enum { ROW_BYTES = 128, L2_BYTES = 36 };
    const uint32_t products = 4 * t.rows;
    const uint32_t copies = (128 + t.rows / t.blocks) * ROW_BYTES / L2_BYTES;
    return products > copies ? products : copies;
}

/* The tiles that need the least time for all waves of blocks. */
static struct tiling tiling_of(const struct device *d, const struct linear_args *a)
{
    static const struct tiling all[] = {{192, 2}, {128, 2}, {192, 1}, {128, 1}};
    struct tiling best = {0};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        const uint64_t at_once = all[i].blocks == 1         ? (uint64_t)d->sms
                                 : d->features & CUDA_PAIRS ? d->pairs
                                                            : 0;
        if (!at_once)
            continue;
        const uint64_t waves = (tiles_of(a, all[i]) + at_once - 1) / at_once;
        if (waves * stage_cycles(all[i]) < least)
            least = waves * stage_cycles(all[i]), best = all[i];
    }
    return best;
}

void wgmma_linear(struct device *d, struct linear_args *a)
{
    const struct tiling t = tiling_of(d, a);
    cuda_narrow(d, a, NARROW_WGMMA);
    a->tile_rows = t.rows, a->tile_blocks = t.blocks;
    a->blocks = t.blocks == 2 ? 2 * d->pairs : (uint32_t)d->sms;
    /* Parallel slices are written and read once more: they pay if most of the device would
     * otherwise be idle (by estimate). */
    if (4 * t.blocks * tiles_of(a, t) <= (uint64_t)d->sms)
        a->part = cuda_work(d, WORK_SLICES, (size_t)SLICES * a->rows * a->w.rows * sizeof(float));
    RECORD(d, linear_wgmma_launch, *a);
    if (a->part)
        RECORD(d, linear_sum_launch, *a);
}

/* Blocks of the cache are copied in eights of rows. The others stay on attn_shared, which has the
 * same bits: 8-bit caches, and scores that are more than a product, for which registers do not
 * suffice. */
bool attn_wgmma_takes(const struct device *d, const struct attn_args *a)
{
    const bool half = a->kv.dtype == KV_F16 || a->kv.dtype == KV_BF16;
    return d->features & CUDA_WGMMA && d->features & CUDA_ATTN_WGMMA && half &&
           (a->head_dim == 64 || a->head_dim == 128) && a->kv.block_size >= 8 &&
           a->kv.rows <= INT32_MAX && a->softcap <= 0 && !a->alibi && a->scale > 0;
}

/* Makes the last recorded product store the gated result instead of its own. */
bool wgmma_gate(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n, enum act act)
{
    struct team_args *t = team_last(d, x, rows, 2 * n);
    if (t) {
        t->l.y = y, t->l.gate = true, t->l.act = act;
        return true;
    }
    const struct recorder *r = &d->rec;
    const struct command *last = r->n ? &r->commands[r->n - 1] : NULL;
    if (!last || last->fn != linear_wgmma_launch || (act != ACT_SILU && act != ACT_GELU_TANH))
        return false;
    struct linear_args *a = (struct linear_args *)(void *)(r->bytes + last->at);
    if (a->y != x || a->rows != rows || a->w.rows != 2 * n || a->part || a->gate)
        return false;
    a->y = y, a->gate = true, a->act = act;
    return true;
}

/* ---------------------------------------------------------------- do the bits agree? */

enum { OUTS = 128, ROWS = WGMMA_ROWS + 16, K = 512, SECONDS = 10 };
_Static_assert((int)WGMMA_ROWS <= (int)TEAM_ROWS, "the first rows by teams, all by linear_wgmma");
enum { N_W = OUTS * K, N_X = ROWS * K, N_Y = ROWS * OUTS };

/* Numbers whose sums need rounding in every way: of one magnitude, of many, and such that most of
 * a sum cancels. */
static void fill(float *p, int rows, uint32_t *seed)
{
    for (int i = 0; i < rows * K; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        float f = (float)(int32_t)*seed * 0x1p-31f;
        switch (i / K % 3) {
        case 1:
            f = ldexpf(f, (int)(*seed >> 3 & 15) - 8);
            break;
        case 2:
            f = i % 2 ? -p[i - 1] + ldexpf(f, -6) : f;
            break;
        }
        p[i] = f;
    }
}

/* Kernels may have errors that only a GPU shows: one that does not end must not prevent the
 * server from starting. */
static int wait_for_it(struct device *d, struct err *e)
{
    cudaError_t rc;
    for (int ms = 0; (rc = cudaStreamQuery(d->stream)) == cudaErrorNotReady; ms++) {
        if (ms > SECONDS * 1000) {
            d->stuck = true;
            return err_set(e, ERR_SYSTEM,
                           "GPU %d: the check of wgmma does not end: CUDA_FEATURES=-17 leaves it "
                           "out, -513 only what it does by teams of blocks",
                           d->index);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return rc == cudaSuccess
               ? 0
               : cuda_failed(d, rc, "checking wgmma (CUDA_FEATURES=-17 leaves it out)", e);
}

/* With the features of `use` among those of wgmma: none is mma.sync. */
static int product(struct device *d, unsigned use, const struct weight *w, float *y, const float *x,
                   float *host, struct err *e)
{
    const unsigned features = d->features;
    d->features = (features & ~(unsigned)(CUDA_WGMMA | CUDA_PAIRS | CUDA_TEAMS)) | use;
    cuda_linear(d, y, x, use & CUDA_TEAMS ? WGMMA_ROWS : ROWS, w, NULL);
    d->features = features;
    cuda_flush(d, false);
    if (d->fault.kind != ERR_NONE) {
        *e = d->fault;
        return -1;
    }
    return wait_for_it(d, e) ? -1 : cuda_download(d, host, y, N_Y * sizeof(*y), e);
}

struct trial {
    float *host; /* weights, x, y of either */
    struct weight *w;
    float *x, *y;
};

/* 1: every bit agrees. */
static int agree(struct device *d, enum dtype type, unsigned use, struct trial *t, struct err *e)
{
    uint32_t seed = 1 + type;
    float *x, *y[2];
    if (!(t->host = malloc(sizeof(float) * (N_W + N_X + 2 * N_Y))))
        return err_nomem(e);
    x = t->host + N_W, y[0] = x + N_X, y[1] = y[0] + N_Y;
    fill(t->host, OUTS, &seed), fill(x, ROWS, &seed);
    struct mat_part part = {t->host, DT_F32, OUTS, K, K, 1};
    struct mat_part rows = {x, DT_F32, ROWS, K, K, 1};
    t->w = cuda_weight_load(d, &(struct mat_desc){.parts = &part, .n_parts = 1, .dtype = type}, e);
    t->x = t->w ? cuda_vector_load(d, &rows, 0, e) : NULL;
    t->y = t->x ? cuda_take(d, N_Y * sizeof(float), "the check of wgmma", "free some", e) : NULL;
    if (!t->y || product(d, 0, t->w, t->y, t->x, y[0], e) ||
        product(d, use, t->w, t->y, t->x, y[1], e))
        return -1;
    const void *sums[2] = {y[0], y[1]};
    const size_t same = (use & CUDA_TEAMS ? WGMMA_ROWS : ROWS) * OUTS;
    return memcmp(sums[0], sums[1], same * sizeof(float)) == 0;
}

static int check(struct device *d, enum dtype type, unsigned use, struct err *e)
{
    struct trial t = {0};
    int rc = agree(d, type, use, &t, e);
    if (!d->stuck) {
        cuda_weight_free(d, t.w);
        cudaFree(t.x);
        cudaFree(t.y);
    }
    free(t.host);
    return rc;
}

int wgmma_decide(struct device *d, int major, int minor, const char **why, struct err *e)
{
    const unsigned wanted = d->features, any = CUDA_WGMMA | CUDA_WGMMA_ANY;
    unsigned teams = wanted & CUDA_TEAMS, pairs = wanted & CUDA_PAIRS;
    int same = 1;
    d->features &= ~(any | CUDA_TEAMS | CUDA_PAIRS);
    *why = "";
    /* code for sm_90a runs on 9.0 alone */
    if (!(wanted & any) || !(wanted & CUDA_TENSOR) || major != 9 || minor != 0)
        return 0;
    if (teams && teams_open(d))
        teams = 0;
    if (pairs && linear_wgmma_pairs(&d->pairs) != cudaSuccess)
        pairs = 0, cudaGetLastError();
    for (enum dtype t = DT_F16; t <= DT_BF16 && same > 0; t++) {
        same = check(d, t, CUDA_WGMMA, e);
        if (same > 0 && pairs)
            same = check(d, t, CUDA_WGMMA | pairs, e);
        if (same > 0 && teams)
            same = check(d, t, CUDA_WGMMA | teams, e);
    }
    if (same < 0)
        return -1;
    if (same || wanted & CUDA_WGMMA_ANY)
        d->features |= CUDA_WGMMA | teams | pairs;
    *why = same && teams             ? ", wgmma, teams"
           : same                    ? ", wgmma"
           : wanted & CUDA_WGMMA_ANY ? ", wgmma though its sums have other bits"
                                     : ", no wgmma (its sums have other bits)";
    return 0;
}
