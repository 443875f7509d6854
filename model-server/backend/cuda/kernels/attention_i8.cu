/* attention_i8.cu - attention_start.cuh's kernels for caches in int8. */
#include "model-server/backend/cuda/kernels/attention_start.cuh"

extern "C" cudaError_t attn_start_i8(const struct launch *l, const struct attn_args *a, bool split)
{
    return start<Cache8<WidenI8>>(l, a, split);
}
