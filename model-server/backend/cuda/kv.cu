/* kv.cu - filling and copying the paged cache of K and V. */
#include "model-server/backend/cuda/heads.cuh"

enum { WARPS = 4 };

/* One warp a head of a token; grid: (tokens, heads / WARPS). */
static __global__ void __launch_bounds__(WARPS * 32) rope_kernel(rope_args a)
{
    depend();
    uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t heads = a.n_heads + 2 * a.n_kv_heads;
    if (head >= heads)
        return;
    finish_head(a, blockIdx.x, head, lane);
}

extern "C" cudaError_t rope_launch(const struct launch *l, const void *args)
{
    const rope_args *a = (const rope_args *)args;
    uint32_t heads = a->n_heads + 2 * a->n_kv_heads;
    return launch(rope_kernel, dim3(a->tokens, (heads + WARPS - 1) / WARPS), WARPS * 32, 0,
                  l->stream, l->overlap, *a);
}

/* Block dst[i] = block src[i] in every stream (layer x {K, V}); grid: (streams, n). T: uint4 where
 * the blocks are multiples of 16 bytes. */
template <typename T> static __global__ void __launch_bounds__(256) kv_copy_kernel(kv_copy_args a)
{
    depend();
    char *stream = (char *)a.data + blockIdx.x * a.stream_bytes;
    const T *from = (const T *)(stream + a.src[blockIdx.y] * a.block_bytes);
    T *to = (T *)(stream + a.dst[blockIdx.y] * a.block_bytes);
    if (from == to)
        return;
    for (size_t i = threadIdx.x; i < a.block_bytes / sizeof(T); i += 256)
        to[i] = from[i];
}

extern "C" cudaError_t kv_copy_launch(const struct launch *l, const void *args)
{
    const kv_copy_args *a = (const kv_copy_args *)args;
    dim3 grid(a->streams, a->n);
    if (a->block_bytes % 16)
        return launch(kv_copy_kernel<uint16_t>, grid, 256, 0, l->stream, l->overlap, *a);
    return launch(kv_copy_kernel<uint4>, grid, 256, 0, l->stream, l->overlap, *a);
}
