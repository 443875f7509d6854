/* attention_start.cuh - launches the mma.sync kernels of one type of cache, for each head
 * dimension. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_START_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_START_CUH
#include "model-server/backend/cuda/kernels/attention_shared.cuh"
#include "model-server/backend/cuda/kernels/attention_split.cuh"

template <typename C, int DIM>
static cudaError_t start_dim(const struct launch *l, const attn_args *a, bool split)
{
    if constexpr (DIM % C::GROUP == 0) {
        typedef plan<C, DIM> P;
        typedef shared_memory<C, DIM> M;
        static_assert(sizeof(split_memory<C, DIM>) <= SHARED_MOST && sizeof(M) <= SHARED_MOST, "");
        if (split)
            return launch(attn_split_kernel<C, DIM>, dim3(a->n_kv_heads, a->n_tiles, a->walkers),
                          SPLIT_THREADS, sizeof(split_memory<C, DIM>), l->stream, l->overlap, *a);
        return launch(attn_shared_kernel<C, DIM>,
                      dim3(a->n_kv_heads, a->n_tiles, SHARED_ROWS / MMA_ROWS), P::THREADS,
                      sizeof(M), l->stream, l->overlap, *a);
    }
    return cudaErrorInvalidValue;
}

template <typename C>
static cudaError_t start(const struct launch *l, const attn_args *a, bool split)
{
    switch (a->head_dim) {
#define X(dim)                                                                                     \
    case dim:                                                                                      \
        return start_dim<C, dim>(l, a, split);
        ATTN_MMA_DIMS(X)
#undef X
    default:
        return cudaErrorInvalidValue;
    }
}
#endif
