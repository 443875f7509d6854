/* attention.cuh - shared by the attention kernels: the keys of a row, the address of a key, and
 * the order of a row's sums, which no kernel, batch, chunk or block table changes.
 *
 * Keys are processed in segments of SEGMENT positions that begin at multiples of it. A segment is
 * one step: all scores, their maximum m, weights 2^(score - m), the sum l of the weights, and o,
 * the weighted sums of the values, which begin at zero. Segments are merged in ascending order, a
 * sink last; the result is o / l. A masked key has weight 0 and changes no bit, so a kernel may
 * process or skip such keys. (The split: Flash-Decoding, Dao et al. 2023; the merge: Milakov,
 * Gimelshein 2018.)
 *
 * On tensor cores the orders within a segment are these. A score is a chain of MMAs over the
 * dimensions, o one over the keys, 16 at a time. For l, lane t of the four that have a row adds its
 * keys 8 n + 2 t and 8 n + 2 t + 1 over the n of each 32 keys, then these four sums, all in
 * ascending order; then (l0 + l1) + (l2 + l3). attn_any has one thread for each key: see there. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/narrow.cuh"
#include "model-server/backend/cuda/kernels/numbers.cuh"

/* Byte offsets of a key's head in K, and of its value in V. */
struct key_place {
    size_t block; /* of its block */
    size_t row;   /* of the heads of earlier tokens in the block */
};
static __device__ __forceinline__ key_place key_at(const attn_args &a, const uint32_t *table,
                                                   uint32_t kv_head, uint32_t key)
{
    return key_place{(size_t)table[key >> a.kv.block_shift] * a.kv.block_bytes,
                     (size_t)kv_head * a.kv.block_size + (key & (a.kv.block_size - 1))};
}

/* Element i of a block, without its scale. */
static __device__ __forceinline__ float number_of(const char *block, uint32_t dtype, size_t i)
{
    if (dtype == KV_I8)
        return (float)((const int8_t *)block)[i];
    if (dtype == KV_FP8)
        return f32_of_fp8(((const uint8_t *)block)[i]);
    if (dtype == KV_F32)
        return ((const float *)block)[i];
    const uint16_t h = ((const uint16_t *)block)[i];
    return dtype == KV_F16 ? f32_of_f16(h) : f32_of_bf16(h);
}

/* First key to which the token at `pos` attends. */
static __device__ __forceinline__ uint32_t first_key(const attn_args &a, uint32_t pos)
{
    if (a.chunk)
        return pos - pos % a.chunk;
    return a.window && pos + 1 > a.window ? pos + 1 - a.window : 0;
}

/* One past its last key in a sequence of kv_len tokens. */
static __device__ __forceinline__ uint32_t end_key(const attn_args &a, uint32_t kv_len,
                                                   uint32_t pos)
{
    if (!a.both)
        return pos + 1;
    const uint32_t ahead = a.window + a.beyond;
    return a.window && kv_len - pos > ahead ? pos + ahead : kv_len;
}

/* Keys [begin, end) of a row of the step whose token is at `pos`: before it, on both sides, and in
 * the range that it belongs to (struct attn). The range's keys are in the cache, also after kv_len.
 */
struct key_range {
    uint32_t begin, end;
};
static __device__ __forceinline__ key_range keys_of(const attn_args &a, uint32_t kv_len,
                                                    uint32_t row, uint32_t pos)
{
    key_range k = {first_key(a, pos), end_key(a, kv_len, pos)};
    const mutual of = a.mutual ? a.mutual[row] : mutual{0, 0};
    if (of.begin == of.end)
        return k;
    if (!a.mutual_ahead && (a.mutual_alone || of.begin < k.begin))
        k.begin = of.begin;
    if (a.mutual_alone || of.end > k.end)
        k.end = of.end;
    return k;
}

/* The score of a dot product: softcap and bias by distance; `log2e` 1 or log2(e). */
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

/* What softmax takes in the kernels on tensor cores: numbers whose score in log2 is the number
 * times `by`. A plain dot product is not scaled by itself, which saves an operation for each score.
 */
struct score_form {
    bool plain;
    float by;
    __device__ __forceinline__ score_form(const attn_args &a)
        : plain(a.softcap <= 0.0f && !a.alibi && a.scale > 0.0f),
          by(plain ? a.scale * EXP_LOG2E : 1.0f)
    {
    }
    __device__ __forceinline__ float number(const attn_args &a, float dot, uint32_t head,
                                            uint32_t key, uint32_t pos) const
    {
        return plain ? dot : score(a, dot, head, key, pos, EXP_LOG2E);
    }
    /* Of a segment, from the largest number. */
    __device__ __forceinline__ float max(float number) const { return number * by; }
    /* A key's weight; `at`: the maximum, or 0 if all keys are masked. */
    __device__ __forceinline__ float weight(float number, float at) const
    {
        return exp2_fast(fmaf(number, by, -at));
    }
};

/* Keys of several rows: those that at least one row attends to, and those that all of them do. */
struct tile_keys {
    key_range some, all;
};
/* Rows of one K/V head: see struct row_tile. */
struct tile_rows {
    const span_view span;
    uint32_t group, kv_head, first, n;
    __device__ uint32_t token(uint32_t r) const { return (first + r) / group; }
    __device__ uint32_t head(uint32_t r) const { return kv_head * group + (first + r) % group; }
    __device__ uint32_t pos(uint32_t r) const { return span.kv_len - span.n + token(r); }
    __device__ __forceinline__ key_range keys(const attn_args &a, uint32_t r) const
    {
        return keys_of(a, span.kv_len, span.first + token(r), pos(r));
    }
    /* Of the rows [r, r + count), at least one. Both ends ascend: ragged.mutual does. */
    __device__ __forceinline__ tile_keys all_keys(const attn_args &a, uint32_t r,
                                                  uint32_t count) const
    {
        const key_range low = keys(a, r), high = keys(a, r + count - 1);
        return tile_keys{{low.begin, high.end}, {high.begin, low.end}};
    }
};

/* The rows of a tile without its first `skip`. */
static __device__ tile_rows rows_of(const attn_args &a, uint32_t index, uint32_t kv_head,
                                    uint32_t skip)
{
    const row_tile t = a.tiles[index];
    return tile_rows{a.spans[t.span], a.n_heads / a.n_kv_heads, kv_head, t.first + skip,
                     t.n > skip ? t.n - skip : 0};
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

/* Final factor of a row's weighted values: a sink is one more term of the sum, merged last. `max`
 * in log2; `of`: the number of the sink. */
static __device__ __forceinline__ float row_factor(const attn_args &a, uint32_t of, float max,
                                                   float sum)
{
    if (!a.sinks)
        return 1.0f / sum;
    const float sink = a.sinks[of] * EXP_LOG2E;
    const merge_weights w = merge(max, sink);
    return w.old / fmaf(sum, w.old, w.fresh);
}

/* Two dimensions of a row's result, from `dim` on (even). */
static __device__ __forceinline__ void store_result(const attn_args &a, const tile_rows &t,
                                                    uint32_t row, uint32_t dim, float lo, float hi)
{
    const size_t token = t.span.first + t.token(row);
    const uint32_t k = t.head(row) * a.head_dim + dim;
    if (a.narrow.to)
        store_pair(a.narrow, token, k, lo, hi);
    if (!a.narrow.alone)
        *(float2 *)(a.o + token * a.n_heads * a.head_dim + k) = make_float2(lo, hi);
}

/* Merges four dimensions, from `dim` on, of row `row` of a tile, from the segments of
 * attn_split. */
static __device__ __forceinline__ void merge_segments(const attn_args &a, const tile_rows &t,
                                                      uint32_t tile, uint32_t row, uint32_t dim)
{
    const key_range keys = t.keys(a, row);
    const size_t part = ((size_t)tile * a.n_kv_heads + t.kv_head) * a.segments;
    float max = -INFINITY, sum = 0.0f, o[4] = {};
#pragma unroll 4
    for (uint32_t s = keys.begin / SEGMENT; s * SEGMENT < keys.end; s++) {
        const size_t at = (part + s) * a.rows + row;
        const float2 ml = *(const float2 *)(a.part_ml + at * 2);
        const float4 v = *(const float4 *)(a.part_o + at * a.head_dim + dim);
        const merge_weights w = merge(max, ml.x);
        o[0] = fmaf(v.x, w.fresh, o[0] * w.old), o[1] = fmaf(v.y, w.fresh, o[1] * w.old);
        o[2] = fmaf(v.z, w.fresh, o[2] * w.old), o[3] = fmaf(v.w, w.fresh, o[3] * w.old);
        sum = fmaf(ml.y, w.fresh, sum * w.old);
        max = w.max;
    }
    const float r = row_factor(a, t.head(row), max, sum);
    store_result(a, t, row, dim, o[0] * r, o[1] * r);
    store_result(a, t, row, dim + 2, o[2] * r, o[3] * r);
}
#endif
