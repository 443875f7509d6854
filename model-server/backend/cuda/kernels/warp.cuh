/* warp.cuh - sums over a warp. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_WARP_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_WARP_CUH
#include "model-server/backend/cuda/kernels/device.cuh"

/* Sum over the lanes of a warp by a butterfly; every lane has it. */
static __device__ __forceinline__ float warp_sum(float v)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}

#endif
