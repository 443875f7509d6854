/* linear_team_wgmma.cu - products of 5 to 64 rows on Hopper: batches of a decode step. Like
 * linear_stream they are limited by reading the weights once, but they have too many rows for its
 * instruction, or for its shared memory.
 *
 * A team of 1, 2, 4 or 8 blocks, a cluster, computes a tile of 128 outputs (with a gate 64, and the
 * 64 that they gate) for all rows. Each of its blocks has as many of the 8 slices of k as there are
 * (PER): more blocks fill the device where there are few tiles, fewer wait less for each other. A
 * block streams its slices through a ring of stages (wgmma_ring.cuh). Alone it adds them in
 * registers. In a team it stores each slice's sums in its shared memory; then each block adds its
 * part of the outputs, reading all blocks' sums in the order of the slices. This needs no workspace
 * and no second kernel, and has the bits of all other products. `ready` ends a phase when all warps
 * of the team have stored their sums of a tile, `done` when all have read them.
 *
 * As many teams as fit stay resident for the whole product. The copying thread continues while
 * sums are added. It fills the ring with weights before it waits for the preceding kernel; x
 * follows. Written after: the CUDA programming guide on clusters and distributed shared memory. */
#include "model-server/backend/cuda/wgmma_ring.cuh"

enum {
    PITCH = 2 * BAND + 4, /* floats; rows of sums are in different banks */
    TEAM_COPY_REGISTERS = 40,
    TEAM_MATH_REGISTERS = 232
};
static_assert((TEAM_COPY_REGISTERS + MATH * TEAM_MATH_REGISTERS) * GROUP <= 65536, "registers");

/* PER: slices of a block. */
template <int ROWS, int PER> struct team_shared {
    static constexpr int TEAM = SLICES / PER, SETS = TEAM > 1 ? PER : 0;
    static constexpr int ROOM = (227 << 10) - ALIGN - SETS * ROWS * PITCH * 4 - 512;
    static constexpr int FIT = ROOM / (int)sizeof(stage<ROWS>);
    static constexpr int STAGES = FIT < 1 ? 1 : FIT < 12 ? FIT : 12;
    ring<ROWS, STAGES> r;
    float sums[SETS ? SETS : 1][SETS ? ROWS : 1][PITCH];
    mbarrier ready, done;
};

/* The tiles of a team: first, first + apart, ... below end; and the slices of this block. */
template <int PER> struct team_job {
    uint32_t first, apart, end, slice;
    __device__ __forceinline__ team_job(const linear_args &a)
    {
        enum { TEAM = SLICES / PER };
        const uint32_t outs = tile_outs(a);
        slice = blockIdx.x % TEAM * PER;
        first = blockIdx.x / TEAM, apart = gridDim.x / TEAM;
        end = (outputs(a) + outs - 1) / outs;
    }
    __device__ __forceinline__ uint32_t column(const linear_args &a, uint32_t i) const
    {
        return slice_begin(a.w.cols, slice + i);
    }
};

/* ---------------------------------------------------------------- copying */

template <int ROWS, int PER>
static __device__ void copy_slices(const linear_args &a, const CUtensorMap *w, const CUtensorMap *x,
                                   team_shared<ROWS, PER> *s)
{
    enum { STAGES = team_shared<ROWS, PER>::STAGES };
    const team_job<PER> j(a);
    const uint32_t begin = j.column(a, 0), end = j.column(a, PER);
    place<STAGES> p;
    uint32_t early = 0, n = 0;
    for (uint32_t tile = j.first; tile < j.end && early < STAGES; tile += j.apart)
        for (uint32_t k = begin; k < end && early < STAGES; k += COLUMNS, early++) {
            mbarrier_expect(&s->r.full[early], sizeof(stage<ROWS>));
            load_weights<ROWS>(a, &s->r.at[early], w, &s->r.full[early], k, tile * tile_outs(a));
        }
    depend_wait(); /* for x */
    for (uint32_t tile = j.first; tile < j.end; tile += j.apart)
        for (uint32_t k = begin; k < end; k += COLUMNS, n++) {
            mbarrier *full = &s->r.full[p.i];
            if (n >= early) {
                s->r.await(p.i, p.parity);
                mbarrier_expect(full, sizeof(stage<ROWS>));
                load_weights<ROWS>(a, &s->r.at[p.i], w, full, k, tile * tile_outs(a));
            }
            tile_load(s->r.at[p.i].x, x, full, k, 0);
            p.next();
        }
}

/* ---------------------------------------------------------------- multiplying and adding up */

/* This thread's first output of a tile, its first row; the other output is BAND further. */
static __device__ __forceinline__ uint32_t column_of_thread(void)
{
    return 8 * (threadIdx.x / 32 - GROUP / 32) + threadIdx.x % 32 / 4;
}

/* Stores this thread's sums of a slice. */
template <int ROWS>
static __device__ __forceinline__ void leave_sums(float (*sums)[PITCH],
                                                  const float (&acc)[ROWS / 8][4])
{
    const uint32_t column = column_of_thread(), row = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 8; i++)
#pragma unroll
        for (uint32_t c = 0; c < 4; c++)
            sums[8 * i + row + c % 2][column + c / 2 * BAND] = acc[i][c];
}

/* Arrives at a barrier of all blocks of the team, once for each warp. */
template <int TEAM> static __device__ __forceinline__ void arrive_everywhere(mbarrier *b)
{
    __syncwarp();
    if (threadIdx.x % 32 < TEAM)
        mbarrier_arrive_at(b, threadIdx.x % 32);
}

/* Four outputs of a row, from `column` on, of all slices. */
template <int ROWS, int PER>
static __device__ __forceinline__ float4 add_slices(team_shared<ROWS, PER> *s, uint32_t row,
                                                    uint32_t column)
{
    float4 v[SLICES], sum = {};
#pragma unroll
    for (uint32_t i = 0; i < SLICES; i++)
        v[i] = *(const float4 *)cluster_shared(&s->sums[i % PER][row][column], i / PER);
#pragma unroll
    for (uint32_t i = 0; i < SLICES; i++)
        sum.x += v[i].x, sum.y += v[i].y, sum.z += v[i].z, sum.w += v[i].w;
    return sum;
}

static __device__ __forceinline__ float part_of(const float4 &v, uint32_t i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Output `out` of a row, or with a gate act(y) * gated. */
static __device__ __forceinline__ void store_one(const team_args &t, uint32_t row, uint32_t out,
                                                 float y, float gated)
{
    const linear_args &a = t.l;
    const uint32_t n = outputs(a);
    if (out >= n)
        return;
    const size_t at = (size_t)row * n + out;
    y += a.bias ? a.bias[out] : 0.0f;
    if (a.gate)
        y = math_gate(y, gated + (a.bias ? a.bias[n + out] : 0.0f), (enum act)a.act);
    if (t.sum)
        t.sum[at] = fmaf(t.scale, y, t.sum[at]);
    else
        a.y[at] = y;
}

/* This block's part of the tile's outputs. */
template <int ROWS, int PER>
static __device__ __forceinline__ void store_part(const team_args &t, team_shared<ROWS, PER> *s,
                                                  uint32_t tile)
{
    enum { TEAM = SLICES / PER };
    const linear_args &a = t.l;
    const uint32_t fours = tile_outs(a) / TEAM / 4, first = blockIdx.x % TEAM * fours * 4;
    for (uint32_t i = threadIdx.x - GROUP; i < a.rows * fours; i += MATH * GROUP) {
        const uint32_t row = i / fours, column = first + i % fours * 4;
        const uint32_t out = tile * tile_outs(a) + column;
        const float4 y = add_slices<ROWS, PER>(s, row, column);
        const float4 gated = a.gate ? add_slices<ROWS, PER>(s, row, BAND + column) : float4{};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            store_one(t, row, out + j, part_of(y, j), part_of(gated, j));
    }
}

/* The outputs of this thread, of all rows. */
template <int ROWS>
static __device__ __forceinline__ void store_all(const team_args &t, uint32_t tile,
                                                 const float (&sum)[ROWS / 8][4])
{
    const uint32_t out = tile * tile_outs(t.l) + column_of_thread();
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 8; i++)
#pragma unroll
        for (uint32_t odd = 0; odd < 2; odd++) {
            const uint32_t row = 8 * i + threadIdx.x % 4 * 2 + odd;
            if (row >= t.l.rows)
                continue;
            store_one(t, row, out, sum[i][odd], sum[i][2 + odd]);
            if (!t.l.gate)
                store_one(t, row, out + BAND, sum[i][2 + odd], 0.0f);
        }
}

template <typename T, int ROWS>
static __device__ __forceinline__ void multiply_alone(const team_args &t,
                                                      team_shared<ROWS, SLICES> *s)
{
    const team_job<SLICES> j(t.l);
    stage_sums<T, decltype(s->r)> sums(&s->r, band_output(threadIdx.x));
    float acc[ROWS / 8][4], sum[ROWS / 8][4];
    for (uint32_t tile = j.first; tile < j.end; tile += j.apart) {
#pragma unroll
        for (int e = 0; e < ROWS / 8 * 4; e++)
            sum[e / 4][e % 4] = 0.0f;
        for (uint32_t i = 0; i < SLICES; i++) {
            const uint32_t columns = j.column(t.l, i + 1) - j.column(t.l, i);
            sums.slice(acc, columns / COLUMNS);
#pragma unroll
            for (int e = 0; e < ROWS / 8 * 4; e++)
                sum[e / 4][e % 4] += acc[e / 4][e % 4];
        }
        store_all<ROWS>(t, tile, sum);
    }
}

template <typename T, int ROWS, int PER>
static __device__ __forceinline__ void multiply(const team_args &t, team_shared<ROWS, PER> *s)
{
    enum { TEAM = SLICES / PER };
    const team_job<PER> j(t.l);
    stage_sums<T, decltype(s->r)> sums(&s->r, band_output(threadIdx.x));
    float acc[ROWS / 8][4];
    uint32_t turn = 0;
    for (uint32_t tile = j.first; tile < j.end; tile += j.apart, turn++) {
        for (uint32_t i = 0; i < PER; i++) {
            const uint32_t columns = j.column(t.l, i + 1) - j.column(t.l, i);
            sums.slice(acc, columns / COLUMNS);
            if (i == 0 && turn)
                mbarrier_wait_team(&s->done, (turn - 1) & 1);
            leave_sums<ROWS>(s->sums[i], acc);
        }
        arrive_everywhere<TEAM>(&s->ready);
        mbarrier_wait_team(&s->ready, turn & 1);
        store_part<ROWS, PER>(t, s, tile);
        arrive_everywhere<TEAM>(&s->done);
    }
}

/* grid: SLICES / PER blocks for each team, any number of them; up to ROWS rows */
template <typename T, int ROWS, int PER>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_team_kernel(team_args t, const __grid_constant__ CUtensorMap w,
                       const __grid_constant__ CUtensorMap x)
{
    enum { TEAM = SLICES / PER };
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    team_shared<ROWS, PER> *s = (team_shared<ROWS, PER> *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&w), tile_prefetch(&x);
        s->r.init();
        mbarrier_init(&s->ready, TEAM * MATH * GROUP / 32);
        mbarrier_init(&s->done, TEAM * MATH * GROUP / 32);
        mbarrier_init_fence();
    }
    if constexpr (TEAM > 1)
        cluster_barrier(); /* other blocks arrive at these barriers */
    else
        __syncthreads();
    depend_start();
    if (threadIdx.x < GROUP) {
        registers_give<TEAM_COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_slices<ROWS, PER>(t.l, &w, &x, s);
    } else {
        registers_take<TEAM_MATH_REGISTERS>();
        depend_wait(); /* earlier kernels may still read y's memory */
        if constexpr (TEAM > 1)
            multiply<T, ROWS, PER>(t, s);
        else
            multiply_alone<T, ROWS>(t, s);
    }
    __syncwarp();
    if constexpr (TEAM > 1)
        cluster_barrier(); /* no block exits while others read its sums */
}

/* ---------------------------------------------------------------- launching */

/* What is compiled: teams whose blocks have at least 3 stages beside their sums. */
template <int ROWS, int PER> static constexpr bool compiled(void)
{
    return team_shared<ROWS, PER>::FIT >= 3;
}

template <typename T, int ROWS, int PER>
static cudaError_t start(const struct launch *l, const team_args *t)
{
    enum { TEAM = SLICES / PER };
    if constexpr (!compiled<ROWS, PER>()) {
        return cudaErrorInvalidValue;
    } else {
        static_assert(sizeof(team_shared<ROWS, PER>) + ALIGN <= 227 << 10, "shared memory");
        const linear_args &a = t->l;
        CUtensorMap w, x;
        cudaError_t rc = tensor_map(&w, a.w.data, k_padded(a.w.cols, QUANT_NONE), a.w.rows,
                                    COLUMNS / 2, BAND, false);
        if (rc == cudaSuccess)
            rc = tensor_map(&x, a.narrow, k_padded(a.w.cols, QUANT_NONE), a.rows, COLUMNS, ROWS,
                            true);
        if (rc != cudaSuccess)
            return rc;
        const uint32_t tiles = (outputs(a) + tile_outs(a) - 1) / tile_outs(a);
        const uint32_t teams = tiles < a.blocks ? tiles : a.blocks;
        return launch_clusters(linear_team_kernel<T, ROWS, PER>, teams * TEAM, TEAM, THREADS,
                               sizeof(team_shared<ROWS, PER>) + ALIGN, l->stream, l->overlap, *t, w,
                               x);
    }
}

template <typename T, int ROWS>
static cudaError_t start_size(const struct launch *l, const team_args *t)
{
    switch (t->size) {
    case 1:
        return start<T, ROWS, 8>(l, t);
    case 2:
        return start<T, ROWS, 4>(l, t);
    case 4:
        return start<T, ROWS, 2>(l, t);
    default:
        return start<T, ROWS, 1>(l, t);
    }
}

template <typename T> static cudaError_t start_rows(const struct launch *l, const team_args *t)
{
    return t->l.rows <= 16   ? start_size<T, 16>(l, t)
           : t->l.rows <= 32 ? start_size<T, 32>(l, t)
                             : start_size<T, 64>(l, t);
}

extern "C" cudaError_t linear_team_launch(const struct launch *l, const void *args)
{
    const team_args *t = (const team_args *)args;
    return t->l.w.dtype == DT_F16 ? start_rows<F16>(l, t) : start_rows<Bf16>(l, t);
}

template <int ROWS, int PER> static cudaError_t most(uint32_t *teams)
{
    int n = 0;
    cudaError_t rc = cudaSuccess;
    if constexpr (compiled<ROWS, PER>())
        rc = clusters_at_once(&n, (const void *)linear_team_kernel<Bf16, ROWS, PER>, SLICES / PER,
                              THREADS, sizeof(team_shared<ROWS, PER>) + ALIGN);
    *teams = (uint32_t)n;
    return rc;
}

template <int ROWS> static cudaError_t most_of_rows(uint32_t teams[TEAM_SIZES])
{
    cudaError_t rc[TEAM_SIZES] = {most<ROWS, 8>(teams), most<ROWS, 4>(teams + 1),
                                  most<ROWS, 2>(teams + 2), most<ROWS, 1>(teams + 3)};
    for (int i = 0; i < TEAM_SIZES; i++)
        if (rc[i] != cudaSuccess)
            return rc[i];
    return cudaSuccess;
}

extern "C" cudaError_t linear_team_most(uint32_t teams[TEAM_TILES][TEAM_SIZES])
{
    cudaError_t rc[TEAM_TILES] = {most_of_rows<16>(teams[0]), most_of_rows<32>(teams[1]),
                                  most_of_rows<64>(teams[2])};
    for (int i = 0; i < TEAM_TILES; i++)
        if (rc[i] != cudaSuccess)
            return rc[i];
    return cudaSuccess;
}
