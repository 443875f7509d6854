/* attention_any.cu - attention for every head dimension (keys up to 576, values up to 512) and
 * every type of K and V, in fp32 arithmetic. It is the reference, and the kernel for shapes and
 * scores that those on tensor cores do not support.
 *
 * One block of 128 threads for each token and head. A thread has one key of the segment for the
 * scores (a chain over the dimensions), then one dimension in 128 for the values (a chain over
 * the keys). Every query head reads K and V again: groups are not exploited. Shared memory: q and
 * the weights, 2.6 KiB. */
#include "model-server/backend/cuda/kernels/attention_block.cuh"
#include "model-server/backend/cuda/kernels/hadamard.cuh"

static __device__ float scale_of(const attn_args &a, const char *stream, const key_place &at)
{
    if (!a.kv.scales)
        return 1.0f;
    return ((const float *)(stream + at.block + a.kv.scales))[at.row];
}

/* Number i of a head's row, without its scale. */
static __device__ __forceinline__ float cached(const attn_args &a, const char *block, size_t row,
                                               uint32_t i)
{
    if (a.kv.dtype == KV_I4)
        return number_of_4_bits(block + row * (kv_row_numbers(KV_I4, a.head_dim) / 2), i);
    return number_of(block, a.kv.dtype, row * a.head_dim + i);
}

static __device__ float dot(const attn_args &a, const any_shared *s, const key_place &at)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < a.head_dim; i++)
        sum = fmaf(cached(a, a.kv.k + at.block, at.row, i), s->q[i], sum);
    return sum * scale_of(a, a.kv.k, at);
}

static __device__ float weighted(const attn_args &a, float p, const key_place &at, uint32_t dim,
                                 float v)
{
    return fmaf(p, cached(a, a.kv.v + at.block, at.row, dim), v);
}

/* See `near` in struct attn. */
static __device__ float near_bias(const attn_args &a, uint32_t head, uint32_t key, uint32_t pos)
{
    const int reach = (int)a.reach, far = (int)key - (int)pos;
    const int at = far < -reach ? 0 : far > reach ? 2 * reach : far + reach;
    return a.near[(size_t)head * (2 * a.reach + 1) + at];
}

/* See `apart` in struct attn; for rows of the step. */
static __device__ float apart_bias(const attn_args &a, uint32_t head, uint32_t query, uint32_t key,
                                   int far)
{
    const int reach = (int)a.reach, near = far < -reach ? -reach : far > reach ? reach : far;
    const uint32_t at = a.at[near + reach];
    if (a.apart_bias) {
        const float *of = a.apart + ((size_t)query * a.n_heads + head) * a.buckets;
        const float *bias = a.apart_bias + (size_t)head * a.buckets;
        const bool other = a.kinds && a.kinds[query] != a.kinds[key];
        return of[at] + bias[at] + (other ? of[a.buckets - 1] + bias[a.buckets - 1] : 0.0f);
    }
    const size_t each = (size_t)3 * a.n_heads * a.buckets;
    return a.apart[query * each + (size_t)head * a.buckets + at] +
           a.apart[key * each + (size_t)(a.n_heads + head) * a.buckets + at];
}

/* As score(), plus a bias by distance and a bias by position in bfloat16, which the tensor-core
 * kernels omit because of their register use. */
static __device__ float any_score(const attn_args &a, float dot, uint32_t head, uint32_t key,
                                  uint32_t pos)
{
    if (a.near)
        return (dot * a.scale + near_bias(a, head, key, pos)) * EXP_LOG2E;
    if (!a.alibi || !a.alibi_bf16)
        return score(a, dot, head, key, pos, EXP_LOG2E);
    const float bias = f32_of_bf16(bf16_of_f32(a.alibi[head] * (float)key));
    return fmaf(bias, a.scale, dot * a.scale) * EXP_LOG2E;
}

/* The numbers that were selected for a key-value head, or NULL if it attends to all positions up to
 * `end`, the end of the sequence. */
static __device__ const uint32_t *selected(const attn_args &a, uint32_t row, uint32_t kv_head,
                                           uint32_t end)
{
    const bool by_head = a.top_block && !a.top_tail;
    const size_t set = by_head ? (size_t)row * a.n_kv_heads + kv_head : row;
    const uint32_t whole = a.n_top * (a.top_block ? a.top_block : 1) - (a.top_tail ? 1 : 0);
    return a.top && end > whole ? a.top + set * a.n_top : NULL;
}

/* The position of the selected key number i. */
static __device__ uint32_t selected_key(const attn_args &a, const uint32_t *top, uint32_t i)
{
    return a.top_block ? top[i / a.top_block] * a.top_block + i % a.top_block : top[i];
}

/* grid: (tokens, heads): a large picture has more tokens than the second dimension takes. With
 * `top`, keys are numbered as they were selected. */
static __global__ void __launch_bounds__(THREADS, 8) attn_any_kernel(attn_args a)
{
    any_shared *s = dynamic_shared<any_shared>();
    depend();
    const uint32_t head = blockIdx.y, row = blockIdx.x, tid = threadIdx.x;
    const span_view span = a.spans[a.span_of[row]];
    const uint32_t kv_head = head / (a.n_heads / a.n_kv_heads);
    const uint32_t pos = span.kv_len - span.n + (row - span.first);
    const key_range keys = keys_of(a, span.kv_len, row, pos);
    const uint32_t lo = keys.begin;
    uint32_t hi = keys.end;
    const uint32_t *top = selected(a, row, kv_head, hi);
    if (top)
        hi = !a.top_block ? a.n_top
             : a.top_tail ? (a.n_top - 1) * a.top_block + (pos + 1) % a.top_block
                          : (a.n_top - 1) * a.top_block + pos % a.top_block + 1;
    const uint32_t *table = a.tables + span.table;
    float o[DIMS] = {}, max = -INFINITY, sum = 0.0f;
    for (uint32_t i = tid; i < a.head_dim; i += THREADS)
        s->q[i] = a.q[(size_t)row * a.q_stride + (size_t)head * a.head_dim + i];
    __syncthreads();
    for (uint32_t base = lo / SEGMENT * SEGMENT; base < hi; base += SEGMENT) {
        const uint32_t key = base + tid;
        const key_place place = key_at(a, table, kv_head,
                                       !top       ? key
                                       : key < hi ? selected_key(a, top, key)
                                                  : 0);
        float x = -INFINITY;
        if (key >= lo && key < hi)
            x = any_score(a, dot(a, s, place), head, key, pos);
        if (a.apart && key >= lo && key < hi)
            x = fmaf(apart_bias(a, head, row, span.first + key, (int)pos - (int)key),
                     a.scale * EXP_LOG2E, x);
        const float m = block_fold<true>(x, s);
        const float p = exp2_fast(x - m); /* at least one key is visible: m is finite */
        s->p[tid] = x == -INFINITY ? 0.0f : p * scale_of(a, a.kv.v, place);
        const float l = block_fold<false>(p, s);
        const merge_weights w = merge(max, m);
        const uint32_t begin = lo > base ? lo - base : 0;
        const uint32_t end = hi - base < SEGMENT ? hi - base : (uint32_t)SEGMENT;
#pragma unroll
        for (int c = 0; c < DIMS; c++) {
            const uint32_t dim = c * THREADS + tid;
            float v = 0.0f;
            for (uint32_t i = begin; dim < a.v_dim && i < end; i++)
                v = weighted(
                    a, s->p[i],
                    key_at(a, table, kv_head, top ? selected_key(a, top, base + i) : base + i), dim,
                    v);
            o[c] = fmaf(v, w.fresh, o[c] * w.old);
        }
        sum = fmaf(l, w.fresh, sum * w.old);
        max = w.max;
        __syncthreads(); /* the weights have been read */
    }
    store_head_row(a, row, head, o, max, sum);
}

extern "C" cudaError_t attn_any_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_any_kernel, dim3(a->tokens, a->n_heads), THREADS, sizeof(any_shared),
                  l->stream, l->overlap, *a);
}
