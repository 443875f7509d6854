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

/* What the kernels of experts have, too. */
bool wgmma_has(const struct device *d, const struct stored *w)
{
    const bool widens = w->quant == QUANT_INT8 || w->quant == QUANT_FP8 ||
                        w->quant == PACKED_E4M3 || in_4_bits(w->quant);
    return d->features & CUDA_WGMMA && w->dtype != DT_F32 &&
           (w->quant == QUANT_NONE || (d->features & CUDA_WIDEN && widens && !w->offsets));
}

/* With offsets another kernel adds up x before. */
bool wgmma_takes(const struct device *d, const struct linear_args *a)
{
    const struct stored *w = &a->w;
    const bool codes = w->quant == QUANT_W8A8 || w->quant == PACKED_8 || w->offsets;
    const bool here = d->features & CUDA_WGMMA && d->features & CUDA_WIDEN && w->dtype != DT_F32;
    return !a->table && (wgmma_has(d, w) || (here && codes));
}

/* Scales of groups are copied for 16 outputs at a time. */
bool wgmma_gates(const struct stored *w) { return !is_grouped(w->quant) || w->rows / 2 % 16 == 0; }

static uint64_t tiles_of(const struct linear_args *a, uint32_t rows)
{
    return ((uint64_t)a->w.rows + 127) / 128 * ((a->rows + rows - 1) / rows);
}

/* Cycles of a block for 64 columns of a tile while `busy` multiprocessors work: those of the
 * products, of the copies from the L2 cache, or of reading weights from memory. A multiprocessor of
 * an H200 got 31 to 38 bytes a cycle of its L2 cache in every shape that was measured
 * (docs/results/gpu.md), and all together 4.1 TB/s from memory: 2340 bytes a cycle. */
static uint64_t stage_cycles(const struct linear_args *a, uint32_t rows, uint64_t busy)
{
    enum { X_BYTES = 128, OUTS = 128, L2_BYTES = 36, MEMORY_BYTES = 2340 };
    const uint64_t w_bytes = row_bytes(128, DT_F16, a->w.quant) * OUTS / 2;
    const bool halved = a->w.quant == QUANT_W8A8; /* twice as fast, and x is half as long */
    const uint64_t products = 4ull * rows >> halved, x_bytes = (uint64_t)rows * X_BYTES >> halved;
    const uint64_t copies = (w_bytes + x_bytes) / L2_BYTES;
    const uint64_t sharing = (a->rows + rows - 1) / rows; /* blocks that read the same weights */
    const uint64_t reads = w_bytes * busy / MEMORY_BYTES / sharing;
    const uint64_t most = products > copies ? products : copies;
    return most > reads ? most : reads;
}

/* Cycles of the whole product; `apart`: the slices of a tile go to different blocks, and are
 * written, read and added by another kernel. */
static uint64_t cycles_of(const struct device *d, const struct linear_args *a, uint32_t rows,
                          bool apart)
{
    enum { KERNEL = 7000, BYTES = 1700 /* a cycle */ };
    const uint64_t tiles = tiles_of(a, rows) * (apart ? SLICES : 1), sms = (uint64_t)d->sms;
    const uint64_t stages = k_padded(a->w.cols, a->w.quant) / 64 / (apart ? SLICES : 1) + 1;
    const uint64_t moved = sizeof(float) * 2 * SLICES * a->rows * a->w.rows;
    return tiles / sms * stages * stage_cycles(a, rows, sms) +
           (tiles % sms ? stages * stage_cycles(a, rows, tiles % sms) : 0) +
           (apart ? KERNEL + moved / BYTES : 0);
}

/* There is a tile of so many rows: by registers. w8a8 is so fast that one of 128 gains little. */
static bool has_tile(const struct stored *w, uint32_t rows)
{
    if (w->quant == QUANT_W8A8)
        return rows != 128;
    const uint32_t most = w->quant == QUANT_NONE                        ? 192
                          : in_4_bits(w->quant) || w->quant == PACKED_8 ? 64
                                                                        : 128;
    return rows <= most;
}

struct choice {
    uint32_t rows;
    bool apart;
};

/* The way that needs the least time. */
static struct choice choose(const struct device *d, const struct linear_args *a)
{
    static const uint32_t rows[] = {192, 128, 64};
    struct choice best = {0};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        const struct choice c = {rows[i / 2], i % 2};
        const uint64_t cycles = cycles_of(d, a, c.rows, c.apart);
        const bool only = !has_tile(&a->w, 128) && !has_tile(&a->w, 192);
        if (has_tile(&a->w, c.rows) && cycles < least && (c.rows > 64 || a->rows <= 64 || only))
            least = cycles, best = c;
    }
    return best;
}

/* What steps of up to as many rows may need for slices; see wgmma_linear(). */
static void rehearse_slices(struct device *d, const struct linear_args *a)
{
    const size_t rows = a->rows < 512 ? a->rows : 512;
    if (a->w.rows <= 128 * (uint32_t)d->sms)
        cuda_work(d, WORK_SLICES, SLICES * rows * a->w.rows * sizeof(float));
}

/* Sums of x over the groups of columns, which are multiplied by offsets. */
static void add_groups(struct device *d, struct linear_args *a)
{
    const uint32_t columns = group_columns(a->w.quant);
    struct group_sums_args s = {.x = a->narrow,
                                .rows = a->rows,
                                .pitch = group_sums_pitch(a->rows),
                                .groups = k_padded(a->w.cols, a->w.quant) / columns,
                                .columns = columns,
                                .dtype = a->w.dtype};
    a->sums = s.y = cuda_work(d, WORK_SUMS, sizeof(float) * s.groups * s.pitch);
    if (s.x && s.y)
        RECORD(d, group_sums_launch, s);
}

void wgmma_linear(struct device *d, struct linear_args *a)
{
    const struct choice c = choose(d, a);
    if (a->w.quant != QUANT_W8A8)
        cuda_narrow(d, a, a->w.quant == PACKED_8 ? NARROW_WGMMA_HALVES : NARROW_WGMMA);
    a->tile_rows = c.rows, a->blocks = (uint32_t)d->sms;
    if (d->rehearsal)
        rehearse_slices(d, a);
    if (a->w.offsets)
        add_groups(d, a);
    if (c.apart &&
        !(a->part = cuda_work(d, WORK_SLICES, SLICES * sizeof(float) * a->rows * a->w.rows)))
        return;
    if (!a->narrow || (a->w.offsets && !a->sums))
        return;
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
    const struct recorder *r = &d->rec;
    const struct command *last = r->n ? &r->commands[r->n - 1] : NULL;
    if (!last || last->fn != linear_wgmma_launch || (act != ACT_SILU && act != ACT_GELU_TANH))
        return false;
    struct linear_args *a = (struct linear_args *)(void *)(r->bytes + last->at);
    if (a->y != x || a->rows != rows || a->w.rows != 2 * n || a->part || a->gate ||
        !wgmma_gates(&a->w))
        return false;
    a->y = y, a->gate = true, a->act = act;
    unread_over(d, y);
    return true;
}

/* ---------------------------------------------------------------- do the bits agree? */

enum { OUTS = 128, ROWS = 80, K = 512, SECONDS = 10 };
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
                           "out",
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
    d->features = (features & ~(unsigned)CUDA_WGMMA) | use;
    cuda_linear(d, y, x, ROWS, w, NULL);
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
    return memcmp(sums[0], sums[1], N_Y * sizeof(float)) == 0;
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
    int same = 1;
    d->features &= ~any;
    *why = "";
    /* code for sm_90a runs on 9.0 alone */
    if (!(wanted & CUDA_WGMMA) || !(wanted & CUDA_TENSOR) || major != 9 || minor != 0)
        return 0;
    for (enum dtype t = DT_F16; t <= DT_BF16 && same > 0; t++)
        same = check(d, t, CUDA_WGMMA, e);
    if (same < 0)
        return -1;
    if (same)
        d->features |= CUDA_WGMMA;
    else if (wanted & CUDA_WGMMA_ANY)
        d->features |= any;
    *why = same                      ? ", wgmma"
           : wanted & CUDA_WGMMA_ANY ? ", wgmma though its sums have other bits"
                                     : ", no wgmma (its sums have other bits)";
    return 0;
}
