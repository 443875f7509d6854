/* rows.cu - operations that go row by row. All are bound by memory; none is large in a decode step.
 *
 * Sums over a row: thread i of 256 adds elements i, i + 256, ... in ascending order, a butterfly
 * adds the lanes of a warp, then the warps in order. That depends on the row's length alone. */
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* ---------------------------------------------------------------- embedding */

/* grid: (rows); any n */
static __global__ void __launch_bounds__(THREADS) embed_kernel(embed_args a)
{
    depend();
    uint32_t row = a.index[blockIdx.x] + a.shift;
    float *y = a.y + (size_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        float f = 0.0f;
        if (row < a.n_rows)
            f = number_at(a.w, (enum dtype)a.dtype, (int64_t)(row * a.pitch + i));
        if (a.scale != 1.0f)
            f *= a.scale;
        y[i] = a.add ? y[i] + f : f;
    }
}

extern "C" cudaError_t embed_launch(const struct launch *l, const void *args)
{
    const embed_args *a = (const embed_args *)args;
    return launch(embed_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- norms */

static __device__ float block_sum(float v, float *sums)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    __syncthreads(); /* whoever reads the last result has done so */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = sums[0];
    for (int i = 1; i < WARPS; i++)
        v += sums[i];
    return v;
}

/* grid: (rows); any n. A row of x is read two or three times, from the second time on from the
 * caches. */
static __global__ void __launch_bounds__(THREADS) norm_kernel(norm_args a)
{
    float *sums = dynamic_shared<float>();
    depend();
    float *x = a.x + (size_t)blockIdx.x * a.n, *y = a.y + (size_t)blockIdx.x * a.n;
    const float *r = a.r + (a.r ? (size_t)blockIdx.x * a.n : 0);
    float sum = 0.0f, square = 0.0f, mean = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        float v = x[i];
        if (a.r)
            x[i] = v = fmaf(a.scale, r[i], v);
        sum += v;
        square = fmaf(v, v, square);
    }
    if (a.plain)
        return;
    if (a.layer) {
        mean = block_sum(sum, sums) / (float)a.n;
        square = 0.0f;
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            square = fmaf(x[i] - mean, x[i] - mean, square);
    }
    float s = 1.0f / sqrtf(block_sum(square, sums) / (float)a.n + a.eps);
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        float v = (a.layer ? x[i] - mean : x[i]) * s;
        y[i] = a.b ? fmaf(v, a.w[i], a.b[i]) : v * a.w[i];
    }
}

extern "C" cudaError_t norm_launch(const struct launch *l, const void *args)
{
    const norm_args *a = (const norm_args *)args;
    return launch(norm_kernel, a->rows, THREADS, WARPS * sizeof(float), l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- one element at a time */

/* Blocks for n elements: grid-stride loops, at most 8 blocks on each of 132 multiprocessors. */
static uint32_t blocks_for(uint64_t n)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;
    return (uint32_t)(blocks < 1056 ? blocks : 1056);
}

static __global__ void __launch_bounds__(THREADS) act_kernel(act_args a)
{
    depend();
    uint64_t all = (uint64_t)a.rows * a.n, step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        const float *x = a.gated ? a.x + i + i / a.n * a.n : a.x + i;
        a.y[i] = math_act(*x, (enum act)a.act) * (a.gated ? x[a.n] : 1.0f);
    }
}

extern "C" cudaError_t act_launch(const struct launch *l, const void *args)
{
    const act_args *a = (const act_args *)args;
    return launch(act_kernel, blocks_for((uint64_t)a->rows * a->n), THREADS, 0, l->stream,
                  l->overlap, *a);
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) gather_kernel(gather_args a)
{
    depend();
    const float *x = a.x + (size_t)a.rows_of[blockIdx.x] * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        a.y[(size_t)blockIdx.x * a.n + i] = x[i];
}

extern "C" cudaError_t gather_launch(const struct launch *l, const void *args)
{
    const gather_args *a = (const gather_args *)args;
    return launch(gather_kernel, a->rows, THREADS, 0, l->stream, l->overlap, *a);
}

static __global__ void __launch_bounds__(THREADS) scale_kernel(scale_args a)
{
    depend();
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step)
        a.x[i] = math_soft_cap(a.x[i], a.scale, a.cap);
}

extern "C" cudaError_t scale_launch(const struct launch *l, const void *args)
{
    const scale_args *a = (const scale_args *)args;
    return launch(scale_kernel, blocks_for(a->n), THREADS, 0, l->stream, l->overlap, *a);
}

/* Pairs, because two 16-bit numbers are one store. */
static __global__ void __launch_bounds__(THREADS) narrow_kernel(narrow_args a)
{
    depend();
    uint32_t pairs = a.pitch / 2;
    uint64_t all = (uint64_t)a.rows * pairs, step = (uint64_t)gridDim.x * THREADS;
    uint32_t *y = (uint32_t *)a.y;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        uint32_t k = (uint32_t)(i % pairs) * 2;
        const float *x = a.x + i / pairs * a.n;
        float lo = k < a.n ? x[k] : 0.0f, hi = k + 1 < a.n ? x[k + 1] : 0.0f;
        y[i] = a.dtype == DT_F16 ? F16::pack(lo, hi) : Bf16::pack(lo, hi);
    }
}

extern "C" cudaError_t narrow_launch(const struct launch *l, const void *args)
{
    const narrow_args *a = (const narrow_args *)args;
    return launch(narrow_kernel, blocks_for((uint64_t)a->rows * a->pitch / 2), THREADS, 0,
                  l->stream, l->overlap, *a);
}

/* What the ranks have, added up in their order. */
static __global__ void __launch_bounds__(THREADS) rank_sum_kernel(rank_sum_args a)
{
    depend();
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step) {
        float sum = a.x[i];
        for (uint32_t r = 1; r < a.world; r++)
            sum += a.x[r * a.n + i];
        a.y[i] = sum;
    }
}

extern "C" cudaError_t rank_sum_launch(const struct launch *l, const void *args)
{
    const rank_sum_args *a = (const rank_sum_args *)args;
    return launch(rank_sum_kernel, blocks_for(a->n), THREADS, 0, l->stream, l->overlap, *a);
}
