/* attention.cuh - what the attention kernels share: which keys a row sees, where a key lies, and
 * the order of a row's sums, which no kernel, batch, chunk or block table changes.
 *
 * Keys are taken in segments of SEGMENT positions that lie at multiples of it. A segment has its
 * own maximum m, sum of weights l and weighted values o, in one chain of ascending keys; segments
 * are merged in ascending order, the result is o / l. A key that a row may not see has weight 0 and
 * changes nothing, bit for bit, so a kernel may take or leave such keys. (The split:
 * Flash-Decoding, Dao et al. 2023; the merge: Milakov, Gimelshein 2018.) */
#ifndef MODEL_SERVER_BACKEND_CUDA_ATTENTION_CUH
#define MODEL_SERVER_BACKEND_CUDA_ATTENTION_CUH
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"

/* First element of a key's head: [block][kv head][position][dim]. */
static __device__ __forceinline__ size_t key_at(const attn_args &a, const uint32_t *table,
                                                uint32_t kv_head, uint32_t key)
{
    size_t block = table[key / a.block_size];
    return ((block * a.n_kv_heads + kv_head) * a.block_size + key % a.block_size) * a.head_dim;
}

/* First key that the token at `pos` sees. */
static __device__ __forceinline__ uint32_t first_key(const attn_args &a, uint32_t pos)
{
    return a.window && pos + 1 > a.window ? pos + 1 - a.window : 0;
}

/* A score from a dot product: softcap and bias by distance; `log2e` 1 or log2(e). */
static __device__ __forceinline__ float score(const attn_args &a, float dot, uint32_t head,
                                              uint32_t key, uint32_t pos, float log2e)
{
    if (a.softcap <= 0.0f && !a.alibi)
        return dot * (a.scale * log2e);
    float s = dot * a.scale;
    if (a.softcap > 0.0f)
        s = math_soft_cap(s, 1.0f, a.softcap);
    if (a.alibi)
        s = fmaf(a.alibi[head], (float)(int32_t)(key - pos), s);
    return s * log2e;
}

/* Merging segments whose maxima are in log2: weights of the sum so far and of the new segment. */
struct merge_weights {
    float max, old, fresh;
};
static __device__ __forceinline__ merge_weights merge(float max, float segment)
{
    float m = max > segment ? max : segment, at = m == -INFINITY ? 0.0f : m;
    return merge_weights{m, exp2_fast(max - at), exp2_fast(segment - at)};
}
#endif
