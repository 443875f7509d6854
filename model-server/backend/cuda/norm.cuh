/* norm.cuh - the norm of a row by a block of 256 threads, as a kernel or as part of a product,
 * with the same bits.
 *
 * Sums over a row: thread i adds elements i, i + 256, ... in ascending order, a butterfly adds
 * the lanes of a warp, then the warps are added in order. This depends only on the row's
 * length. */
#ifndef MODEL_SERVER_BACKEND_CUDA_NORM_CUH
#define MODEL_SERVER_BACKEND_CUDA_NORM_CUH
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"

enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / 32 };

/* `sums`: NORM_WARPS floats of shared memory. */
static __device__ __forceinline__ float block_sum(float v, float *sums)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    __syncthreads(); /* all threads have read the last result */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = sums[0];
    for (int i = 1; i < NORM_WARPS; i++)
        v += sums[i];
    return v;
}

struct row_norm {
    float mean, scale;
};

/* Norm of row x; value(i) returns element i (and may store it) when it is first read. */
template <typename VALUE>
static __device__ __forceinline__ row_norm norm_of(const norm_args &a, const float *x, float *sums,
                                                   VALUE value)
{
    float sum = 0.0f, square = 0.0f, mean = 0.0f;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < a.n; i += NORM_THREADS) {
        float v = value(i);
        sum += v;
        square = fmaf(v, v, square);
    }
    if (a.layer) {
        mean = block_sum(sum, sums) / (float)a.n;
        square = 0.0f;
        for (uint32_t i = threadIdx.x; i < a.n; i += NORM_THREADS)
            square = fmaf(x[i] - mean, x[i] - mean, square);
    }
    return row_norm{mean, 1.0f / sqrtf(block_sum(square, sums) / (float)a.n + a.eps)};
}

/* Element i of the result, x being that of the row. */
static __device__ __forceinline__ float norm_at(const norm_args &a, row_norm s, float x, uint32_t i)
{
    float v = (a.layer ? x - s.mean : x) * s.scale;
    return a.b ? fmaf(v, a.w[i], a.b[i]) : v * a.w[i];
}
#endif
