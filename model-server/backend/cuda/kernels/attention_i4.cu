/* attention_i4.cu - attention_start.cuh's kernels for caches in int4. */
#include "model-server/backend/cuda/kernels/attention_start.cuh"

extern "C" cudaError_t attn_start_i4(const struct launch *l, const struct attn_args *a, bool split)
{
    return start<Cache4>(l, a, split);
}
