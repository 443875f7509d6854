/* attention_fp8.cu - attention_start.cuh's kernels for caches in fp8. */
#include "model-server/backend/cuda/kernels/attention_start.cuh"

extern "C" cudaError_t attn_start_fp8(const struct launch *l, const struct attn_args *a, bool split)
{
    return start<Cache8<WidenFp8>>(l, a, split);
}
