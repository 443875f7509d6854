/* norm.cuh - the norm of a row by a block of at most 256 threads, as a kernel or as part of a
 * product, with the same bits.
 *
 * Thread i has elements 4 i .. 4 i + 3 of each 1024 of a row, in steps of 1024. Sums over a row: a
 * thread adds its elements in ascending order, a butterfly adds the lanes of a warp, then the warps
 * are added in order. This depends only on the row's length. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_NORM_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_NORM_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

/* KEPT: fours of a thread that stay in registers, so that all of them are read at once; those of
 * longer rows are read again. */
enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / 32, NORM_KEPT = 4, NORM_STEP = 1024 };

/* Elements k .. k + 3 of a row of n; zeros past its end. */
static __device__ __forceinline__ float4 four_of(const float *x, uint32_t k, uint32_t n)
{
    float4 f = {};
    if (n % 4 == 0 && k < n)
        return *(const float4 *)(x + k);
    if (k < n)
        f.x = x[k];
    if (k + 1 < n)
        f.y = x[k + 1];
    if (k + 2 < n)
        f.z = x[k + 2];
    if (k + 3 < n)
        f.w = x[k + 3];
    return f;
}
static __device__ __forceinline__ void put_four(float *y, uint32_t k, uint32_t n, float4 f)
{
    if (n % 4 == 0 && k < n) {
        *(float4 *)(y + k) = f;
        return;
    }
    if (k < n)
        y[k] = f.x;
    if (k + 1 < n)
        y[k + 1] = f.y;
    if (k + 2 < n)
        y[k + 2] = f.z;
    if (k + 3 < n)
        y[k + 3] = f.w;
}

/* Threads of a block, one for each `each` elements of a row of n: the warps that would have none,
 * and would add zeros, are left out. */
static inline uint32_t norm_threads(uint32_t n, uint32_t each)
{
    const uint32_t warps = (n + 32 * each - 1) / (32 * each);
    return warps < NORM_WARPS ? (warps ? warps : 1) * 32 : NORM_THREADS;
}

/* `sums`: NORM_WARPS floats of shared memory. `warps`: of the block; the sum has the bits of
 * NORM_WARPS of them, all without elements but these. */
static __device__ __forceinline__ float block_sum(float v, float *sums, uint32_t warps = NORM_WARPS)
{
    v = warp_sum(v);
    __syncthreads(); /* all threads have read the last result */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = sums[0];
    for (uint32_t i = 1; i < NORM_WARPS; i++)
        v += i < warps ? sums[i] : 0.0f;
    return v;
}

static __device__ __forceinline__ void add_four(float4 f, float *sum, float *square)
{
    *sum += f.x, *square = fmaf(f.x, f.x, *square);
    *sum += f.y, *square = fmaf(f.y, f.y, *square);
    *sum += f.z, *square = fmaf(f.z, f.z, *square);
    *sum += f.w, *square = fmaf(f.w, f.w, *square);
}

/* f - mean; zeros past the end of the row. */
static __device__ __forceinline__ float4 apart_from(float4 f, float mean, uint32_t k, uint32_t n)
{
    return float4{k < n ? f.x - mean : 0.0f, k + 1 < n ? f.y - mean : 0.0f,
                  k + 2 < n ? f.z - mean : 0.0f, k + 3 < n ? f.w - mean : 0.0f};
}

/* A thread's part of a row, and of the weights. */
struct norm_part {
    float4 x[NORM_KEPT], w[NORM_KEPT];
    float mean, scale;

    /* The weights do not depend on any kernel before: a block loads them before it waits. */
    __device__ __forceinline__ void load_weights(const norm_args &a)
    {
#pragma unroll
        for (uint32_t j = 0; j < NORM_KEPT; j++)
            w[j] = four_of(a.w, 4 * threadIdx.x + j * NORM_STEP, a.n);
    }

    /* read(k) is called once for each four of the row, and may store it; again(k) later. `sums`:
     * NORM_WARPS floats of shared memory. */
    template <typename READ, typename AGAIN>
    __device__ __forceinline__ void take(const norm_args &a, float *sums, READ read, AGAIN again)
    {
        const uint32_t first = 4 * threadIdx.x, rest = first + NORM_KEPT * NORM_STEP;
        float sum = 0.0f, square = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < NORM_KEPT; j++)
            x[j] = first + j * NORM_STEP < a.n ? read(first + j * NORM_STEP) : float4{};
#pragma unroll
        for (uint32_t j = 0; j < NORM_KEPT; j++)
            add_four(x[j], &sum, &square);
        for (uint32_t k = rest; k < a.n; k += NORM_STEP)
            add_four(read(k), &sum, &square);
        mean = 0.0f;
        if (a.layer) {
            mean = block_sum(sum, sums, blockDim.x / 32) / (float)a.n;
            square = 0.0f;
#pragma unroll
            for (uint32_t j = 0; j < NORM_KEPT; j++)
                add_four(apart_from(x[j], mean, first + j * NORM_STEP, a.n), &sum, &square);
            for (uint32_t k = rest; k < a.n; k += NORM_STEP)
                add_four(apart_from(again(k), mean, k, a.n), &sum, &square);
        }
        scale = 1.0f / sqrtf(block_sum(square, sums, blockDim.x / 32) / (float)a.n + a.eps);
    }

    /* Calls put(k, four) with the results, zeros past the end of the row, for k below `most`. */
    template <typename AGAIN, typename PUT>
    __device__ __forceinline__ void give(const norm_args &a, uint32_t most, AGAIN again,
                                         PUT put) const
    {
        const uint32_t first = 4 * threadIdx.x;
#pragma unroll
        for (uint32_t j = 0; j < NORM_KEPT; j++)
            if (first + j * NORM_STEP < most)
                put(first + j * NORM_STEP, result(a, first + j * NORM_STEP, x[j], w[j]));
        for (uint32_t k = first + NORM_KEPT * NORM_STEP; k < most; k += NORM_STEP)
            put(k, k < a.n ? result(a, k, again(k), four_of(a.w, k, a.n)) : float4{});
    }

  private:
    __device__ __forceinline__ float4 result(const norm_args &a, uint32_t k, float4 v,
                                             float4 by) const
    {
        const float4 b = a.b ? four_of(a.b, k, a.n) : float4{};
        const float4 f = apart_from(v, mean, k, a.n);
        return float4{one(a, f.x, by.x, b.x), one(a, f.y, by.y, b.y), one(a, f.z, by.z, b.z),
                      one(a, f.w, by.w, b.w)};
    }
    __device__ __forceinline__ float one(const norm_args &a, float v, float by, float b) const
    {
        return a.b ? fmaf(v * scale, by, b) : v * scale * by;
    }
};
#endif
