/* mix.cu - mixed residual streams (hyper-connections). One block per row; bound by memory. The few
 * factors of a token are made by one warp in shared memory. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/norm.cuh"
#include "model-server/backend/cuda/kernels/numbers.cuh"

enum { THREADS = NORM_THREADS, WARPS = NORM_WARPS, MOST_FACTORS = MIX_MOST * (2 + MIX_MOST) };

/* ---------------------------------------------------------------- factors */

/* Line i of a matrix of n x n, `step` apart, divided by its sum plus `floor`. */
static __device__ __forceinline__ void divide(float *line, uint32_t n, uint32_t step, float floor)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += line[i * step];
    for (uint32_t i = 0; i < n; i++)
        line[i * step] /= sum + floor;
}

static __device__ __forceinline__ void softmax_line(float *line, uint32_t n, float floor)
{
    float most = line[0], sum = 0.0f;
    for (uint32_t i = 1; i < n; i++)
        most = fmaxf(most, line[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += line[i] = math_exp(line[i] - most);
    for (uint32_t i = 0; i < n; i++)
        line[i] = line[i] / sum + floor;
}

/* By the first warp: a lane has a line. */
static __device__ void balance(const streams_args &a, float *m)
{
    const uint32_t n = a.streams_n, lane = threadIdx.x;
    if (lane < n)
        softmax_line(m + lane * n, n, a.floor);
    __syncwarp();
    for (uint32_t i = 0; i < a.rounds; i++) {
        if (i && lane < n)
            divide(m + lane * n, n, 1, a.floor);
        __syncwarp();
        if (lane < n)
            divide(m + lane, n, n, a.floor);
        __syncwarp();
    }
}

/* Factors of the sum to `f`, the others to the row's factors. */
static __device__ void make_factors(const streams_args &a, float *f, float *sums)
{
    const uint32_t n = a.streams_n, all = n * a.n;
    const float *streams = a.streams + (size_t)blockIdx.x * all;
    float *own = a.factors + (size_t)blockIdx.x * a.count, squares = 0.0f;
    for (uint32_t i = threadIdx.x; i < all; i += THREADS)
        squares = fmaf(streams[i], streams[i], squares);
    squares = block_sum(squares, sums);
    const float r = 1.0f / sqrtf(squares / (float)all + a.eps);
    for (uint32_t i = threadIdx.x; i < a.count; i += THREADS) {
        const float g = own[i] * r * a.scale[i < n ? 0 : i < 2 * n ? 1 : 2] + a.base[i];
        f[i] = i < n       ? math_sigmoid(g) + a.floor
               : i < 2 * n ? a.magnitude * math_sigmoid(g) + a.result_floor
                           : g;
    }
    __syncthreads();
    if (a.count > 2 * n) {
        if (threadIdx.x < 32)
            balance(a, f + 2 * n);
        __syncthreads();
    }
    for (uint32_t i = n + threadIdx.x; i < a.count; i += THREADS)
        own[i] = f[i];
}

/* ---------------------------------------------------------------- elements */

static __device__ __forceinline__ void weighted_sum(const streams_args &a, const float *f)
{
    const float *streams = a.streams + (size_t)blockIdx.x * a.streams_n * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        float sum = 0.0f;
        for (uint32_t s = 0; s < a.streams_n; s++)
            sum = fmaf(streams[(size_t)s * a.n + i], f[s], sum);
        a.x[(size_t)blockIdx.x * a.n + i] = sum;
    }
}

static __device__ __forceinline__ void write_element(const streams_args &a, const float *f,
                                                     uint32_t i)
{
    const uint32_t n = a.streams_n, first = a.kind == MIX_ADD ? 0 : n; /* of the result's factors */
    const float x = a.x[(size_t)blockIdx.x * a.n + i];
    float *at = a.streams + (size_t)blockIdx.x * n * a.n + i, was[MIX_MOST];
#pragma unroll
    for (uint32_t s = 0; s < MIX_MOST; s++)
        was[s] = s < n ? at[(size_t)s * a.n] : 0.0f;
#pragma unroll
    for (uint32_t s = 0; s < MIX_MOST; s++) {
        float sum = a.rounds ? 0.0f : was[s];
#pragma unroll
        for (uint32_t from = 0; from < MIX_MOST; from++)
            if (a.rounds && from < n && s < n)
                sum = fmaf(was[from], f[2 * n + from * n + s], sum);
        if (s < n)
            at[(size_t)s * a.n] = fmaf(x, f[first + s], sum);
    }
}

/* grid: (rows) */
static __global__ void __launch_bounds__(THREADS) streams_kernel(streams_args a)
{
    float *sums = dynamic_shared<float>(), *f = sums + WARPS;
    depend();
    if (a.kind == MIX_READ || a.kind == MIX_MEAN) {
        if (a.kind == MIX_READ)
            make_factors(a, f, sums);
        else if (threadIdx.x < a.streams_n)
            f[threadIdx.x] = 1.0f / (float)a.streams_n;
        __syncthreads();
        weighted_sum(a, f);
    } else if (a.kind == MIX_WRITE || a.kind == MIX_ADD) {
        const float *own = a.factors + (size_t)blockIdx.x * a.count;
        for (uint32_t i = threadIdx.x; i < a.count; i += THREADS)
            f[i] = own[i];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            write_element(a, f, i);
    } else {
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            for (uint32_t s = 0; s < a.streams_n; s++)
                a.streams[((size_t)blockIdx.x * a.streams_n + s) * a.n + i] =
                    a.x[(size_t)blockIdx.x * a.n + i];
    }
}

extern "C" cudaError_t streams_launch(const struct launch *l, const void *args)
{
    const streams_args *a = (const streams_args *)args;
    return launch(streams_kernel, a->rows, THREADS, (WARPS + MOST_FACTORS) * sizeof(float),
                  l->stream, l->overlap, *a);
}
