/* attention_block.cuh - for attention by one block of threads for each token and head, in fp32:
 * attention_any.cu, attention_entries.cu. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_BLOCK_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_BLOCK_CUH
#include "model-server/backend/cuda/kernels/attention.cuh"

enum { THREADS = SEGMENT, DIMS = ANY_VALUE_DIM / THREADS };

struct any_shared {
    float q[ANY_HEAD_DIM], p[SEGMENT], fold[THREADS / 32];
};

/* Maximum or sum over the block, the same in all threads: a butterfly, then the warps in order. */
template <bool MAX> static __device__ float block_fold(float v, any_shared *s)
{
    v = warp_fold(v, [](float a, float b) { return MAX ? (a > b ? a : b) : a + b; });
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        s->fold[threadIdx.x / 32] = v;
    __syncthreads();
    v = s->fold[0];
    for (int i = 1; i < THREADS / 32; i++)
        v = MAX ? (v > s->fold[i] ? v : s->fold[i]) : v + s->fold[i];
    return v;
}

/* Stores a head's result: o[c] of each thread, its numbers c * THREADS + threadIdx.x. */
static __device__ __forceinline__ void store_head_row(const attn_args &a, uint32_t row,
                                                      uint32_t head, const float *o, float max,
                                                      float sum)
{
    float *to = a.o + ((size_t)row * a.n_heads + head) * a.v_dim;
    const uint32_t sink = a.sinks_by_token ? row * a.n_heads + head : head;
    const float factor = row_factor(a, sink, max, sum);
#pragma unroll
    for (int c = 0; c < DIMS; c++)
        if (c * THREADS + threadIdx.x < a.v_dim)
            to[c * THREADS + threadIdx.x] = o[c] * factor;
    if (a.sums && !threadIdx.x)
        *(float2 *)(a.sums + ((size_t)row * a.n_heads + head) * ATTN_SUMS) = make_float2(max, sum);
}
#endif
