/* hadamard.cu - rotates queries before attention to a cache in 4 bits, and its results back: see
 * hadamard.cuh. */
#include "model-server/backend/cuda/kernels/hadamard.cuh"

enum { WARPS = 4 };

/* One warp per head of a token; grid: (tokens, heads / WARPS). Shared memory: a head for each. */
static __global__ void __launch_bounds__(WARPS * 32) hadamard_kernel(hadamard_args a)
{
    float *v = dynamic_shared<float>() + threadIdx.x / 32 * a.dim;
    const uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    depend();
    if (head >= a.heads)
        return;
    const float *x = a.x + (size_t)blockIdx.x * a.stride + (size_t)head * a.dim;
    float *y = a.y + ((size_t)blockIdx.x * a.heads + head) * a.dim;
    for (uint32_t i = lane; i < a.dim; i += 32)
        v[i] = x[i];
    hadamard_warp(v, a.dim, a.size, lane);
    for (uint32_t i = lane; i < a.dim; i += 32)
        y[i] = v[i];
}

extern "C" cudaError_t hadamard_launch(const struct launch *l, const void *args)
{
    const hadamard_args *a = (const hadamard_args *)args;
    return launch(hadamard_kernel, dim3(a->tokens, (a->heads + WARPS - 1) / WARPS), WARPS * 32,
                  WARPS * a->dim * sizeof(float), l->stream, l->overlap, *a);
}
