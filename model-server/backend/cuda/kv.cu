/* kv.cu - filling and copying the paged cache of K and V.
 *
 * A layer's K (and V) is [block][kv head][position][dim]: what a head reads of a block is one run
 * of block_size * head_dim elements, 4 KiB for 16 positions of 128 in 16 bits. */
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"

enum { WARPS = 4 };

static __device__ void store(void *p, uint32_t dtype, size_t i, float f)
{
    if (dtype == DT_F32)
        ((float *)p)[i] = f;
    else
        ((uint16_t *)p)[i] = dtype == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
}

/* 1 / rms of one head, the same in all lanes. */
static __device__ float inverse_rms(const float *x, uint32_t n, float eps, uint32_t lane)
{
    float sum = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    for (int i = 16; i; i /= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    return 1.0f / sqrtf(sum / (float)n + eps);
}

/* One warp a head of a token; grid: (tokens, heads / WARPS). The lanes take pairs that rotate
 * together, so q may be written where it was read. */
static __global__ void __launch_bounds__(WARPS * 32) rope_kernel(rope_args a)
{
    depend();
    uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t heads = a.n_heads + 2 * a.n_kv_heads, dim = a.head_dim, half = a.rot_dim / 2;
    if (head >= heads)
        return;
    float *x = a.qkv + ((size_t)blockIdx.x * heads + head) * dim;
    bool q = head < a.n_heads, v = head >= a.n_heads + a.n_kv_heads;
    uint32_t kv_head = q ? 0 : (head - a.n_heads) % a.n_kv_heads, slot = a.slots[blockIdx.x];
    size_t block = slot / a.block_size, at = slot % a.block_size;
    size_t to = ((block * a.n_kv_heads + kv_head) * a.block_size + at) * dim;
    void *cache = v ? a.v : a.k;
    const float *w = q ? a.q_norm : v ? NULL : a.k_norm;
    float s = w ? inverse_rms(x, dim, a.eps, lane) : 1.0f;
    const float *rope = a.rope + (size_t)blockIdx.x * a.rot_dim;
    uint32_t pairs = !v && a.rope ? half : 0;
    for (uint32_t i = lane; i < pairs; i += 32) {
        uint32_t i0 = a.interleaved ? 2 * i : i, i1 = a.interleaved ? 2 * i + 1 : i + half;
        float x0 = w ? x[i0] * s * w[i0] : x[i0], x1 = w ? x[i1] * s * w[i1] : x[i1];
        float c = rope[i], sn = rope[half + i];
        float y0 = fmaf(-x1, sn, x0 * c), y1 = fmaf(x0, sn, x1 * c);
        if (q) {
            x[i0] = y0, x[i1] = y1;
        } else {
            store(cache, a.dtype, to + i0, y0);
            store(cache, a.dtype, to + i1, y1);
        }
    }
    for (uint32_t i = 2 * pairs + lane; i < dim; i += 32) { /* what does not rotate */
        float f = w ? x[i] * s * w[i] : x[i];
        if (q)
            x[i] = f;
        else
            store(cache, a.dtype, to + i, f);
    }
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
