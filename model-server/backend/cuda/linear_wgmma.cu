/* linear_wgmma.cu - products of many rows on Hopper: prefill, by wgmma.
 *
 * A block processes tiles of 128 outputs x 128 or 192 rows. With a gate a tile has 64 outputs of
 * the gate and the 64 that they gate, and only the gated result is stored. One thread of the
 * first warpgroup fills a ring of stages, 64 columns of weights and of x each, by tensor maps;
 * two warpgroups multiply 64 outputs each. full[i] ends a phase when a stage's bytes have
 * arrived, empty[i] when the 8 warps no longer read them. The ring continues from tile to tile,
 * so the next tile's first stages arrive while this one's results are stored.
 *
 * The order of sums is that of linear_mma.cuh, as far as the instruction allows: the same slices,
 * and in each step of 16 columns the same columns at the same places of the MMA. So the weights,
 * the M operand, are read from shared memory into registers, 16 bytes of a plain row at a time.
 * (For this a row's stage is two rows of 64 bytes, without bank conflicts.) wgmma reads x from
 * shared memory in swizzled rows of 128 bytes, so narrow stores x in the order NARROW_WGMMA.
 * Whether sums of 16 products have the bits of mma.sync depends on the hardware: wgmma.c tests
 * it.
 *
 * Tile 128 x 192: two sets of sums (slices are added separately) are 2 x 96 registers of a
 * thread's 240, which rules out 256 rows; 5 stages of 40 KiB. 128 x 128: 6 of 32 KiB. Multiplying
 * a stage takes 768 (512) cycles at the instruction's rate, in which the L2 cache must deliver 40
 * (32) KiB. Written after: CUTLASS' description of warp-specialised, persistent kernels. */
#include "model-server/backend/cuda/wgmma_ring.cuh"

template <int ROWS> using tile_ring = ring<ROWS, (ROWS > 128 ? 5 : 6)>;

/* One of the block's tasks: slices [first, last) of a tile, whose first band begins at `out`.
 * Tiles are processed in groups of GROUP_TILES tiles of rows; within a group rows advance
 * fastest. So concurrent blocks share weights, and the group's x stays in the L2 cache. */
enum { GROUP_TILES = 8 };
struct job {
    uint32_t out, row, first, last;
};
template <int ROWS> static __host__ __device__ uint32_t job_count(const linear_args &a)
{
    uint32_t outs = tile_outs(a);
    return (outputs(a) + outs - 1) / outs * ((a.rows + ROWS - 1) / ROWS) * (a.part ? SLICES : 1);
}
template <int ROWS> static __device__ job job_at(const linear_args &a, uint32_t i)
{
    const uint32_t tiles = (a.rows + ROWS - 1) / ROWS, tile = a.part ? i / SLICES : i;
    const uint32_t first = a.part ? i % SLICES : 0, last = a.part ? first + 1 : SLICES;
    const uint32_t outs = (outputs(a) + tile_outs(a) - 1) / tile_outs(a);
    const uint32_t group = tile / (GROUP_TILES * outs), in = tile % (GROUP_TILES * outs);
    const uint32_t left = tiles - group * GROUP_TILES;
    const uint32_t wide = left < GROUP_TILES ? left : GROUP_TILES;
    return job{in / wide * tile_outs(a), (group * GROUP_TILES + in % wide) * ROWS, first, last};
}

/* ---------------------------------------------------------------- the copying warpgroup */

template <int ROWS>
static __device__ void copy_stages(const linear_args &a, const CUtensorMap *w, const CUtensorMap *x,
                                   tile_ring<ROWS> *r)
{
    place<tile_ring<ROWS>::STAGES> p;
    for (uint32_t n = job_count<ROWS>(a), i = blockIdx.x; i < n; i += gridDim.x) {
        job j = job_at<ROWS>(a, i);
        for (uint32_t k = slice_begin(a.w.cols, j.first); k < slice_begin(a.w.cols, j.last);
             k += COLUMNS) {
            stage<ROWS> *s = &r->at[p.i];
            mbarrier *full = &r->full[p.i];
            mbarrier_wait(&r->empty[p.i], p.parity ^ 1);
            mbarrier_expect(full, sizeof(*s));
            tile_load(s->x, x, full, k, j.row);
            load_weights<ROWS>(a, s, w, full, k, j.out);
            p.next();
        }
    }
}

/* ---------------------------------------------------------------- the multiplying ones */

/* Place of a thread's sums: its two outputs, its even or odd rows. */
struct corner {
    uint32_t out, other, row, rows; /* rows: number from `row` on */
    float b, b_other; /* of the bias; without one 0 is added: no sum is -0, so no bit changes */
    __device__ __forceinline__ corner(const linear_args &a, const job &j, int odd)
    {
        const uint32_t warp = threadIdx.x / 32 - GROUP / 32, lane = threadIdx.x % 32;
        const bool biased = a.bias && !a.part;
        out = j.out + 8 * warp + lane / 4, other = out + band_apart(a);
        row = j.row + lane % 4 * 2 + odd, rows = row < a.rows ? a.rows - row : 0;
        b = biased && out < a.w.rows ? a.bias[out] : 0.0f;
        b_other = biased && other < a.w.rows ? a.bias[other] : 0.0f;
    }
};

template <int ROWS>
static __device__ __forceinline__ void store_tile(const linear_args &a, const job &j, float *y,
                                                  const float (&sum)[ROWS / 8][4])
{
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const corner c(a, j, odd);
        float *at = y + (size_t)c.row * a.w.rows + c.out;
#pragma unroll
        for (uint32_t i = 0; i < ROWS / 8; i++, at += 8 * (size_t)a.w.rows) {
            if (c.out < a.w.rows && 8 * i < c.rows)
                at[0] = sum[i][odd] + c.b;
            if (c.other < a.w.rows && 8 * i < c.rows)
                at[BAND] = sum[i][2 + odd] + c.b_other;
        }
    }
}

/* y = act(gate) * the gated output: the operations of rows.cu's act, on the same numbers. */
template <int ROWS, enum act ACT>
static __device__ __forceinline__ void store_gated(const linear_args &a, const job &j,
                                                   const float (&sum)[ROWS / 8][4])
{
    const uint32_t n = outputs(a);
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const corner c(a, j, odd);
        float *at = a.y + (size_t)c.row * n + c.out;
#pragma unroll
        for (uint32_t i = 0; i < ROWS / 8; i++, at += 8 * (size_t)n)
            if (c.out < n && 8 * i < c.rows)
                *at = math_act(sum[i][odd] + c.b, ACT) * (sum[i][2 + odd] + c.b_other);
    }
}

template <typename T, int ROWS>
static __device__ __forceinline__ void multiply(const linear_args &a, tile_ring<ROWS> *r)
{
    place<tile_ring<ROWS>::STAGES> p;
    float acc[ROWS / 8][4], sum[ROWS / 8][4];
    for (uint32_t n = job_count<ROWS>(a), i = blockIdx.x; i < n; i += gridDim.x) {
        job j = job_at<ROWS>(a, i);
#pragma unroll
        for (int e = 0; e < ROWS / 8 * 4; e++)
            sum[e / 4][e % 4] = 0.0f;
        for (uint32_t s = j.first; s < j.last; s++) {
            uint32_t columns = slice_begin(a.w.cols, s + 1) - slice_begin(a.w.cols, s);
            slice_sum<T, ROWS, tile_ring<ROWS>::STAGES>(r, &p, columns / COLUMNS, acc);
#pragma unroll
            for (int e = 0; e < ROWS / 8 * 4; e++)
                sum[e / 4][e % 4] += acc[e / 4][e % 4];
        }
        if (!a.gate)
            store_tile<ROWS>(a, j, a.part ? a.part + (size_t)j.first * a.rows * a.w.rows : a.y,
                             sum);
        else if (a.act == ACT_SILU)
            store_gated<ROWS, ACT_SILU>(a, j, sum);
        else
            store_gated<ROWS, ACT_GELU_TANH>(a, j, sum);
    }
}

/* grid: as many blocks as run concurrently */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_wgmma_kernel(linear_args a, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    tile_ring<ROWS> *r = (tile_ring<ROWS> *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&w), tile_prefetch(&x);
        r->init();
        mbarrier_init_fence();
    }
    __syncthreads();
    depend();
    if (threadIdx.x < GROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_stages<ROWS>(a, &w, &x, r);
    } else {
        registers_take<MATH_REGISTERS>();
        multiply<T, ROWS>(a, r);
    }
}

/* ---------------------------------------------------------------- launching */

template <typename T, int ROWS>
static cudaError_t start(const struct launch *l, const linear_args *a)
{
    CUtensorMap w, x;
    cudaError_t rc = tensor_map(&w, a->w.data, k_padded(a->w.cols, QUANT_NONE), a->w.rows,
                                COLUMNS / 2, BAND, false);
    if (rc == cudaSuccess)
        rc = tensor_map(&x, a->narrow, k_padded(a->w.cols, QUANT_NONE), a->rows, COLUMNS, ROWS,
                        true);
    if (rc != cudaSuccess)
        return rc;
    uint32_t jobs = job_count<ROWS>(*a);
    return launch(linear_wgmma_kernel<T, ROWS>, jobs < a->blocks ? jobs : a->blocks, THREADS,
                  sizeof(tile_ring<ROWS>) + ALIGN, l->stream, l->overlap, *a, w, x);
}

extern "C" cudaError_t linear_wgmma_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    if (a->tile_rows == 128)
        return a->w.dtype == DT_F16 ? start<F16, 128>(l, a) : start<Bf16, 128>(l, a);
    return a->w.dtype == DT_F16 ? start<F16, 192>(l, a) : start<Bf16, 192>(l, a);
}
