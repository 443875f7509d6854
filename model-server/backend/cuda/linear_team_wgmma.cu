/* linear_team_wgmma.cu - products of 17 to 128 rows on Hopper: batches of a decode step. Like
 * linear_stream they are limited by reading the weights once, but they have too many rows for its
 * instruction.
 *
 * A cluster of 8 blocks computes a tile of 128 outputs (with a gate 64, and the 64 that they
 * gate) for all rows. Each of its blocks has one of the 8 slices of k. A block streams its slice
 * through a ring of 4 to 10 stages (wgmma_ring.cuh) and stores the slice's sums in its shared
 * memory. Then each block adds an eighth of the outputs, reading all eight blocks' sums in the
 * order of the slices. This needs no workspace and no second kernel, and has the bits of all
 * other products. `ready` ends a phase when all warps of the cluster have stored their sums of a
 * tile, `done` when all have read them.
 *
 * As many clusters as fit stay resident for the whole product. The copying thread continues while
 * sums are added. It fills the ring with weights before it waits for the preceding kernel; x
 * follows. With 64 rows there are 8 stages of 24 KiB, so each multiprocessor has 128 KiB of
 * weights in flight. Written after: the CUDA programming guide on clusters and distributed shared
 * memory. */
#include "model-server/backend/cuda/wgmma_ring.cuh"

enum {
    PITCH = 2 * BAND + 4, /* floats; rows of sums are in different banks */
    TEAM_COPY_REGISTERS = 40,
    TEAM_MATH_REGISTERS = 232
};
static_assert((TEAM_COPY_REGISTERS + MATH * TEAM_MATH_REGISTERS) * GROUP <= 65536, "registers");

template <int ROWS> struct team_shared {
    static constexpr int ROOM = (227 << 10) - ALIGN - ROWS * PITCH * 4 - 512;
    static constexpr int STAGES = ROOM / (int)sizeof(stage<ROWS>);
    ring<ROWS, STAGES> r;
    float sums[ROWS][PITCH];
    mbarrier ready, done;
};
static_assert(sizeof(team_shared<32>) + ALIGN <= 227 << 10, "a block's shared memory");
static_assert(sizeof(team_shared<64>) + ALIGN <= 227 << 10, "a block's shared memory");
static_assert(sizeof(team_shared<128>) + ALIGN <= 227 << 10, "a block's shared memory");

/* The tiles of a cluster: first, first + apart, ... below end; and the slice of this block. */
struct team_job {
    uint32_t first, apart, end, column, steps;
    __device__ __forceinline__ team_job(const linear_args &a)
    {
        const uint32_t slice = blockIdx.x % SLICES, outs = tile_outs(a);
        first = blockIdx.x / SLICES, apart = gridDim.x / SLICES;
        end = (outputs(a) + outs - 1) / outs;
        column = slice_begin(a.w.cols, slice);
        steps = (slice_begin(a.w.cols, slice + 1) - column) / COLUMNS;
    }
};

/* ---------------------------------------------------------------- copying */

template <int ROWS>
static __device__ void copy_slices(const linear_args &a, const CUtensorMap *w, const CUtensorMap *x,
                                   team_shared<ROWS> *s)
{
    enum { STAGES = team_shared<ROWS>::STAGES };
    const team_job j(a);
    place<STAGES> p;
    uint32_t early = 0, n = 0;
    for (uint32_t tile = j.first; tile < j.end && early < STAGES; tile += j.apart)
        for (uint32_t i = 0; i < j.steps && early < STAGES; i++, early++) {
            mbarrier_expect(&s->r.full[early], sizeof(stage<ROWS>));
            load_weights<ROWS>(a, &s->r.at[early], w, &s->r.full[early], j.column + i * COLUMNS,
                               tile * tile_outs(a));
        }
    depend_wait(); /* for x */
    for (uint32_t tile = j.first; tile < j.end; tile += j.apart)
        for (uint32_t i = 0; i < j.steps; i++, n++) {
            mbarrier *full = &s->r.full[p.i];
            const uint32_t k = j.column + i * COLUMNS;
            if (n >= early) {
                mbarrier_wait(&s->r.empty[p.i], p.parity ^ 1);
                mbarrier_expect(full, sizeof(stage<ROWS>));
                load_weights<ROWS>(a, &s->r.at[p.i], w, full, k, tile * tile_outs(a));
            }
            tile_load(s->r.at[p.i].x, x, full, k, 0);
            p.next();
        }
}

/* ---------------------------------------------------------------- multiplying and adding up */

/* Stores this thread's sums of the slice: its two outputs are in column 8 warp + g of either
 * band. */
template <int ROWS>
static __device__ __forceinline__ void leave_sums(team_shared<ROWS> *s,
                                                  const float (&acc)[ROWS / 8][4])
{
    const uint32_t warp = threadIdx.x / 32 - GROUP / 32, lane = threadIdx.x % 32;
    const uint32_t column = 8 * warp + lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 8; i++)
#pragma unroll
        for (uint32_t c = 0; c < 4; c++)
            s->sums[8 * i + row + c % 2][column + c / 2 * BAND] = acc[i][c];
}

/* Arrives at a barrier of all blocks, once for each warp. */
static __device__ __forceinline__ void arrive_everywhere(mbarrier *b)
{
    __syncwarp();
    if (threadIdx.x % 32 < SLICES)
        mbarrier_arrive_at(b, threadIdx.x % 32);
}

/* Four outputs of a row, from `mine` on, of all slices. */
static __device__ __forceinline__ float4 add_slices(float *mine)
{
    float4 v[SLICES], sum = {};
#pragma unroll
    for (uint32_t i = 0; i < SLICES; i++)
        v[i] = *(const float4 *)cluster_shared(mine, i);
#pragma unroll
    for (uint32_t i = 0; i < SLICES; i++)
        sum.x += v[i].x, sum.y += v[i].y, sum.z += v[i].z, sum.w += v[i].w;
    return sum;
}

static __device__ __forceinline__ float part_of(const float4 &v, uint32_t i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Outputs out .. out + 3 of a row: y, or the gated result. */
static __device__ __forceinline__ void store_four(const team_args &t, uint32_t row, uint32_t out,
                                                  const float4 &y, const float4 &gated)
{
    const linear_args &a = t.l;
    const uint32_t n = outputs(a);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (out + i >= n)
            return;
        const size_t at = (size_t)row * n + out + i;
        float f = part_of(y, i) + (a.bias ? a.bias[out + i] : 0.0f);
        if (a.gate)
            f = math_gate(f, part_of(gated, i) + (a.bias ? a.bias[n + out + i] : 0.0f),
                          (enum act)a.act);
        if (t.sum)
            t.sum[at] = fmaf(t.scale, f, t.sum[at]);
        else
            a.y[at] = f;
    }
}

/* This block's eighth of the tile's outputs. */
template <int ROWS>
static __device__ __forceinline__ void store_tile(const team_args &t, team_shared<ROWS> *s,
                                                  uint32_t tile)
{
    const linear_args &a = t.l;
    const uint32_t fours = tile_outs(a) / SLICES / 4, first = blockIdx.x % SLICES * fours * 4;
    for (uint32_t i = threadIdx.x - GROUP; i < a.rows * fours; i += MATH * GROUP) {
        const uint32_t row = i / fours, column = first + i % fours * 4;
        const float4 y = add_slices(&s->sums[row][column]);
        const float4 gated = a.gate ? add_slices(&s->sums[row][BAND + column]) : float4{};
        store_four(t, row, tile * tile_outs(a) + column, y, gated);
    }
}

template <typename T, int ROWS>
static __device__ __forceinline__ void multiply(const team_args &t, team_shared<ROWS> *s)
{
    enum { STAGES = team_shared<ROWS>::STAGES };
    const team_job j(t.l);
    place<STAGES> p;
    float acc[ROWS / 8][4];
    uint32_t turn = 0;
    for (uint32_t tile = j.first; tile < j.end; tile += j.apart, turn++) {
        slice_sum<T, ROWS, STAGES>(&s->r, &p, j.steps, acc);
        if (turn)
            mbarrier_wait_team(&s->done, (turn - 1) & 1);
        leave_sums<ROWS>(s, acc);
        arrive_everywhere(&s->ready);
        mbarrier_wait_team(&s->ready, turn & 1);
        store_tile<ROWS>(t, s, tile);
        arrive_everywhere(&s->done);
    }
}

/* grid: SLICES blocks for each cluster, any number of them; up to ROWS rows */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_team_kernel(team_args t, const __grid_constant__ CUtensorMap w,
                       const __grid_constant__ CUtensorMap x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    team_shared<ROWS> *s = (team_shared<ROWS> *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&w), tile_prefetch(&x);
        s->r.init();
        mbarrier_init(&s->ready, SLICES * MATH * GROUP / 32);
        mbarrier_init(&s->done, SLICES * MATH * GROUP / 32);
        mbarrier_init_fence();
    }
    cluster_barrier(); /* other blocks arrive at these barriers */
    depend_start();
    if (threadIdx.x < GROUP) {
        registers_give<TEAM_COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_slices<ROWS>(t.l, &w, &x, s);
    } else {
        registers_take<TEAM_MATH_REGISTERS>();
        depend_wait(); /* earlier kernels may still read y's memory */
        multiply<T, ROWS>(t, s);
    }
    __syncwarp();
    cluster_barrier(); /* no block exits while others read its sums */
}

/* ---------------------------------------------------------------- launching */

template <typename T, int ROWS>
static cudaError_t start(const struct launch *l, const team_args *t)
{
    const linear_args &a = t->l;
    CUtensorMap w, x;
    cudaError_t rc = tensor_map(&w, a.w.data, k_padded(a.w.cols, QUANT_NONE), a.w.rows, COLUMNS / 2,
                                BAND, false);
    if (rc == cudaSuccess)
        rc = tensor_map(&x, a.narrow, k_padded(a.w.cols, QUANT_NONE), a.rows, COLUMNS, ROWS, true);
    if (rc != cudaSuccess)
        return rc;
    const uint32_t tiles = (outputs(a) + tile_outs(a) - 1) / tile_outs(a);
    const uint32_t teams = tiles < a.blocks ? tiles : a.blocks;
    return launch_clusters(linear_team_kernel<T, ROWS>, teams * SLICES, SLICES, THREADS,
                           sizeof(team_shared<ROWS>) + ALIGN, l->stream, l->overlap, *t, w, x);
}

template <typename T> static cudaError_t start_rows(const struct launch *l, const team_args *t)
{
    return t->l.rows <= 32   ? start<T, 32>(l, t)
           : t->l.rows <= 64 ? start<T, 64>(l, t)
                             : start<T, 128>(l, t);
}

extern "C" cudaError_t linear_team_launch(const struct launch *l, const void *args)
{
    const team_args *t = (const team_args *)args;
    return t->l.w.dtype == DT_F16 ? start_rows<F16>(l, t) : start_rows<Bf16>(l, t);
}

extern "C" cudaError_t linear_team_most(uint32_t *teams)
{
    int least = 0;
    const void *kernels[] = {(const void *)linear_team_kernel<Bf16, 32>,
                             (const void *)linear_team_kernel<Bf16, 64>,
                             (const void *)linear_team_kernel<Bf16, 128>};
    const size_t bytes[] = {sizeof(team_shared<32>), sizeof(team_shared<64>),
                            sizeof(team_shared<128>)};
    for (int i = 0; i < 3; i++) {
        int n = 0;
        cudaError_t rc = clusters_at_once(&n, kernels[i], SLICES, THREADS, bytes[i] + ALIGN);
        if (rc != cudaSuccess)
            return rc;
        least = i && least < n ? least : n;
    }
    *teams = (uint32_t)least;
    return cudaSuccess;
}
