/* linear_tile.cu - products of many rows, on tensor cores: prefill, and decode steps of more than
 * 16 sequences.
 *
 * A block has 128 outputs x 32 or 128 rows; 8 warps in 4 x 2. Columns come 64 at a time through 3
 * stages of shared memory (cp.async), laid out [32 columns][row][64 bytes], so that the 16-byte
 * fragment loads of linear_mma.cuh and the copies are free of bank conflicts without a swizzle.
 * Order of the sums: linear_mma.cuh. With few tiles the slices are taken side by side (grid.z = 8)
 * and linear_sum adds them; else a block takes them one after the other and keeps two sets of
 * sums: the bits are the same.
 *
 * Tiles 128 x 128 (x 64): accumulators 2 x 64 registers a thread, 96 KiB of shared memory, one
 * block a multiprocessor. 128 x 32: 60 KiB, two or three blocks. mma.sync reaches about 60% of what
 * wgmma does on Hopper; see docs/decisions/cuda.md. Written after: the multistage GEMM of CUTLASS'
 * documentation (Kerr et al.). */
#include "model-server/backend/cuda/linear_mma.cuh"

enum { THREADS = 256, OUTS = 128, STAGES = 3, ROW_BYTES = 64 };

template <int ROWS> struct stage {
    unsigned char w[2][OUTS][ROW_BYTES], x[2][ROWS][ROW_BYTES];
};

/* Columns [k, k + 64) of the tile on their way into a stage. */
template <int ROWS>
static __device__ void load_stage(const linear_args &a, stage<ROWS> *s, uint32_t k)
{
    const size_t pitch = k_padded(a.k);
    const uint16_t *w = (const uint16_t *)a.w;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < (OUTS + ROWS) * 8; i += THREADS) {
        uint32_t chunk = i % 8, r = i / 8, half = chunk / 4, at = chunk % 4 * 16;
        if (r < OUTS) {
            uint32_t out = blockIdx.x * OUTS + r;
            out = out < a.n ? out : a.n - 1; /* nobody takes its result */
            copy_async(&s->w[half][r][at], w + out * pitch + k + 8 * chunk, true);
        } else {
            uint32_t row = blockIdx.y * ROWS + (r - OUTS);
            row = row < a.rows ? row : a.rows - 1;
            copy_async(&s->x[half][r - OUTS][at], a.x16 + row * pitch + k + 8 * chunk, true);
        }
    }
}

/* Warp (wm, wn) of 4 x 2: outputs 32 wm .. + 31, rows ROWS / 2 wn .. */
template <typename T, int ROWS>
static __device__ __forceinline__ void multiply_stage(const stage<ROWS> *s,
                                                      float (&acc)[2][ROWS / 16][4])
{
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t out = warp % 4 * 32 + g, row = warp / 4 * (ROWS / 2) + g;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 w[2][2];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                w[m][i] = *(const uint4 *)&s->w[half][out + 16 * m + 8 * i][16 * t];
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            uint4 x = *(const uint4 *)&s->x[half][row + 8 * n][16 * t];
#pragma unroll
            for (int m = 0; m < 2; m++)
                mma_pair<T>(acc[m][n], w[m][0], w[m][1], x);
        }
    }
}

/* Sum of columns [begin, end) of the tile into `acc`, which starts from zero. */
template <typename T, int ROWS>
static __device__ void slice_sum(const linear_args &a, stage<ROWS> *ring, uint32_t begin,
                                 uint32_t end, float (&acc)[2][ROWS / 16][4])
{
#pragma unroll
    for (int i = 0; i < 2 * (ROWS / 16) * 4; i++)
        acc[i / (ROWS / 16 * 4)][i / 4 % (ROWS / 16)][i % 4] = 0.0f;
    for (int i = 0; i < STAGES - 1; i++) {
        if (begin + i * 64 < end)
            load_stage<ROWS>(a, &ring[i], begin + i * 64);
        copy_commit();
    }
    int at = 0;
    for (uint32_t k = begin; k < end; k += 64) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and all have left the one that is filled next */
        uint32_t next = k + (STAGES - 1) * 64;
        if (next < end)
            load_stage<ROWS>(a, &ring[(at + STAGES - 1) % STAGES], next);
        copy_commit();
        multiply_stage<T, ROWS>(&ring[at], acc);
        at = (at + 1) % STAGES;
    }
    copy_wait<0>();
    __syncthreads(); /* the next slice starts from stage 0 */
}

/* Where the sums of a thread go: rows of `width` outputs. */
template <int ROWS>
static __device__ void store_tile(const linear_args &a, float *y, const float *bias,
                                  const float (&sum)[2][ROWS / 16][4])
{
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint32_t out = blockIdx.x * OUTS + warp % 4 * 32 + 16 * m + g + c / 2 * 8;
                uint32_t row = blockIdx.y * ROWS + warp / 4 * (ROWS / 2) + 8 * n + 2 * t + c % 2;
                if (out < a.n && row < a.rows)
                    y[(size_t)row * a.n + out] = bias ? sum[m][n][c] + bias[out] : sum[m][n][c];
            }
}

/* grid: (outputs / 128, rows / ROWS, 1 or SLICES) */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1) linear_tile_kernel(linear_args a)
{
    stage<ROWS> *ring = dynamic_shared<stage<ROWS>>();
    float acc[2][ROWS / 16][4];
    depend();
    if (a.part) {
        uint32_t s = blockIdx.z;
        slice_sum<T, ROWS>(a, ring, slice_begin(a.k, s), slice_begin(a.k, s + 1), acc);
        store_tile<ROWS>(a, a.part + (size_t)s * a.rows * a.n, NULL, acc);
        return;
    }
    float sum[2][ROWS / 16][4] = {};
    for (uint32_t s = 0; s < SLICES; s++) {
        slice_sum<T, ROWS>(a, ring, slice_begin(a.k, s), slice_begin(a.k, s + 1), acc);
#pragma unroll
        for (int i = 0; i < 2 * (ROWS / 16) * 4; i++)
            sum[i / (ROWS / 16 * 4)][i / 4 % (ROWS / 16)][i % 4] +=
                acc[i / (ROWS / 16 * 4)][i / 4 % (ROWS / 16)][i % 4];
    }
    store_tile<ROWS>(a, a.y, a.bias, sum);
}

template <typename T, int ROWS>
static cudaError_t start(const struct launch *l, const linear_args *a)
{
    dim3 grid((a->n + OUTS - 1) / OUTS, (a->rows + ROWS - 1) / ROWS, a->part ? SLICES : 1);
    return launch(linear_tile_kernel<T, ROWS>, grid, THREADS, STAGES * sizeof(stage<ROWS>),
                  l->stream, l->overlap, *a);
}

extern "C" cudaError_t linear_tile_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    if (a->rows <= 32)
        return a->dtype == DT_F16 ? start<F16, 32>(l, a) : start<Bf16, 32>(l, a);
    return a->dtype == DT_F16 ? start<F16, 128>(l, a) : start<Bf16, 128>(l, a);
}

/* grid-stride over the outputs */
static __global__ void __launch_bounds__(THREADS) linear_sum_kernel(linear_args a)
{
    depend();
    size_t all = (size_t)a.rows * a.n, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        float sum = 0.0f;
        for (int s = 0; s < SLICES; s++)
            sum += a.part[s * all + i];
        a.y[i] = a.bias ? sum + a.bias[i % a.n] : sum;
    }
}

extern "C" cudaError_t linear_sum_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    size_t blocks = ((size_t)a->rows * a->n + THREADS - 1) / THREADS;
    return launch(linear_sum_kernel, (uint32_t)(blocks < 1056 ? blocks : 1056), THREADS, 0,
                  l->stream, l->overlap, *a);
}
