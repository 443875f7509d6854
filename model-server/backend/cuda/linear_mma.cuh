/* linear_mma.cuh - the order of a product on tensor cores, which all kernels keep, so that a row's
 * bits do not depend on how many rows there are.
 *
 * K, padded to a multiple of 64, is cut into SLICES slices at multiples of 64 that depend on K
 * alone. Within a slice: one chain of m16n8k16 MMAs into fp32, two for each 32 columns, the first
 * of columns 8t .. 8t + 3, the second of 8t + 4 .. 8t + 7 (t = 0 .. 3). The slices' sums are added
 * to 0 in ascending order, the bias last. An MMA's element depends on its row of weights and its
 * row of x alone; where in the tile it stands does not matter (assumed of the hardware; checked by
 * `make gpu-check`). */
#ifndef MODEL_SERVER_BACKEND_CUDA_LINEAR_MMA_CUH
#define MODEL_SERVER_BACKEND_CUDA_LINEAR_MMA_CUH
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"

/* First column of slice s; SLICES gives the padded K. */
static __host__ __device__ __forceinline__ uint32_t slice_begin(uint32_t k, uint32_t s)
{
    return (uint32_t)((uint64_t)(k_padded(k) / K_ALIGN) * s / SLICES) * K_ALIGN;
}

/* Columns 32 * step + 8 t of rows `row` and `row + apart`. Rows past the end repeat the last one:
 * nobody takes their results. */
static __device__ __forceinline__ void load_weights(uint4 to[2], const uint16_t *w,
                                                    const linear_args &a, uint32_t row,
                                                    uint32_t apart, uint32_t step, uint32_t t)
{
    size_t pitch = k_padded(a.k), at = (size_t)step * 32 + 8 * t;
    uint32_t r0 = row < a.n ? row : a.n - 1, r1 = row + apart < a.n ? row + apart : a.n - 1;
    to[0] = load_streaming(w + r0 * pitch + at);
    to[1] = load_streaming(w + r1 * pitch + at);
}

/* 32 columns: w0 and w1 are this lane's 8 of rows g and g + 8, x its 8 of row g of x. */
template <typename T>
static __device__ __forceinline__ void mma_pair(float c[4], uint4 w0, uint4 w1, uint4 x)
{
    const uint32_t first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
    T::mma(c, first, x.x, x.y);
    T::mma(c, second, x.z, x.w);
}
#endif
