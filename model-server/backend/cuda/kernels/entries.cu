/* entries.cu - rotations of parts of heads, and keys that stand for several positions in the cache:
 * see entries.h. */
#include "model-server/backend/cuda/kernels/heads.cuh"

enum { WARPS = 4 };

/* One warp for each head of a token; grid: (tokens, heads / WARPS). */
static __global__ void __launch_bounds__(WARPS * 32) turn_kernel(turn_args a)
{
    depend();
    const uint32_t token = blockIdx.x, lane = threadIdx.x % 32, half = a.rot_dim / 2;
    const uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32;
    if (head >= a.n_heads)
        return;
    float *x = a.x + ((size_t)token * a.n_heads + head) * a.dim + a.at;
    const float *rope = a.rope + (size_t)token * a.rot_dim;
    for (uint32_t i = lane; i < half; i += 32) {
        const uint32_t i0 = a.interleaved ? 2 * i : i, i1 = a.interleaved ? 2 * i + 1 : i + half;
        const float x0 = x[i0], x1 = x[i1], c = rope[i], s = a.back ? -rope[half + i] : rope[half + i];
        x[i0] = fmaf(-x1, s, x0 * c), x[i1] = fmaf(x0, s, x1 * c);
    }
}

extern "C" cudaError_t turn_launch(const struct launch *l, const void *args)
{
    const turn_args *a = (const turn_args *)args;
    return launch(turn_kernel, dim3(a->tokens, (a->n_heads + WARPS - 1) / WARPS), WARPS * 32, 0,
                  l->stream, l->overlap, *a);
}

/* grid: (tokens) */
static __global__ void __launch_bounds__(32) keep_kernel(keep_args a)
{
    depend();
    const uint32_t token = blockIdx.x;
    uint32_t slot = a.slots[token];
    if (a.every) {
        const span_view span = a.spans[a.span_of[token]];
        const uint32_t end = span.kv_len - span.n + (token - span.first) + 1;
        if (end % a.every)
            return;
        slot = slot / a.block_size * a.kv.block_size + slot % a.block_size / a.every; /* entry_row() */
    }
    rope_args r = {};
    r.kv = a.kv;
    r.head_dim = a.dim;
    store_head(r, a.kv.k, 0, slot, a.x + (size_t)token * a.dim, a.dim, threadIdx.x);
}

extern "C" cudaError_t keep_launch(const struct launch *l, const void *args)
{
    const keep_args *a = (const keep_args *)args;
    return launch(keep_kernel, a->tokens, 32, 0, l->stream, l->overlap, *a);
}
