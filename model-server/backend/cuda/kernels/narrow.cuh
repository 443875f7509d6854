/* narrow.cuh - results in 16 bits for the product that reads them next: struct narrow_rows. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_NARROW_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_NARROW_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/rows.h"

/* Columns k and k + 1 of a row, k even: in each order such pairs stay together. */
static __device__ __forceinline__ void store_pair(const narrow_rows &n, size_t row, uint32_t k,
                                                  float lo, float hi)
{
    *(uint32_t *)(n.to + row * n.pitch + narrow_place(k, n.order)) =
        n.dtype == DT_F16 ? F16::pack(lo, hi) : Bf16::pack(lo, hi);
}

/* Column k. */
static __device__ __forceinline__ void store_one(const narrow_rows &n, size_t row, uint32_t k,
                                                 float f)
{
    n.to[row * n.pitch + narrow_place(k, n.order)] =
        (uint16_t)(n.dtype == DT_F16 ? F16::pack(f, f) : Bf16::pack(f, f));
}

/* Columns k .. k + 3. */
static __device__ __forceinline__ void store_four(const narrow_rows &n, size_t row, uint32_t k,
                                                  float4 f)
{
    store_pair(n, row, k, f.x, f.y);
    store_pair(n, row, k + 2, f.z, f.w);
}
#endif
