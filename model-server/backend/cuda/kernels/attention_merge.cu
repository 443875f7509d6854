/* attention_merge.cu - selects the kernel for a cache and head dimension; merges the segments of
 * attn_split. */
#include "model-server/backend/cuda/kernels/attention.cuh"

bool attn_mma_has(uint32_t head_dim, enum kv_dtype t)
{
    switch (head_dim) {
#define X(dim) case dim:
        ATTN_MMA_DIMS(X)
#undef X
        return t != KV_F32 && t < KV_N && (t != KV_I4 || head_dim % 32 == 0);
    default:
        return false;
    }
}

static cudaError_t start(const struct launch *l, const attn_args *a, bool split)
{
    static attn_start_fn *const of[KV_N] = {NULL, attn_start_f16, attn_start_bf16, attn_start_i8,
                                            attn_start_fp8, attn_start_i4};
    return of[a->kv.dtype](l, a, split);
}

extern "C" cudaError_t attn_split_launch(const struct launch *l, const void *args)
{
    return start(l, (const attn_args *)args, true);
}

extern "C" cudaError_t attn_shared_launch(const struct launch *l, const void *args)
{
    return start(l, (const attn_args *)args, false);
}

/* grid: (kv heads, tiles, rows); 4 dimensions per thread */
static __global__ void __launch_bounds__(64) attn_merge_kernel(attn_args a)
{
    depend();
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x, 0);
    if (blockIdx.z < t.n)
        merge_segments(a, t, blockIdx.y, blockIdx.z, threadIdx.x * 4);
}

extern "C" cudaError_t attn_merge_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_merge_kernel, dim3(a->n_kv_heads, a->n_tiles, a->rows), a->head_dim / 4, 0,
                  l->stream, l->overlap, *a);
}
