/* attention_bf16.cu - attention_start.cuh's kernels for caches in bfloat16. */
#include "model-server/backend/cuda/kernels/attention_start.cuh"

extern "C" cudaError_t attn_start_bf16(const struct launch *l, const struct attn_args *a,
                                       bool split)
{
    return start<Cache16<Bf16>>(l, a, split);
}
