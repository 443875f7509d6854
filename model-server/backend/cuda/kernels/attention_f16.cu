/* attention_f16.cu - attention_start.cuh's kernels for caches in float16. */
#include "model-server/backend/cuda/kernels/attention_start.cuh"

extern "C" cudaError_t attn_start_f16(const struct launch *l, const struct attn_args *a, bool split)
{
    return start<Cache16<F16>>(l, a, split);
}
