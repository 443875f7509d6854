/* attention_any.cu - attention for every head dimension up to 512 and every type of K and V, in
 * fp32 arithmetic: the plain meaning, and the kernel of the shapes that tensor cores do not take.
 *
 * One block of 128 threads for each token and head. A thread has one key of the segment for the
 * scores (a chain over the dimensions), then one dimension in 128 for the values (a chain over the
 * keys). Every query head reads K and V again: no use is made of groups. Shared memory: q and the
 * weights, 2.6 KiB. */
#include "model-server/backend/cuda/attention.cuh"

enum { THREADS = SEGMENT, DIMS = ANY_HEAD_DIM / THREADS };

struct any_shared {
    float q[ANY_HEAD_DIM], p[SEGMENT], fold[THREADS / 32];
};

/* Maximum or sum over the block, the same in all threads: a butterfly, then the warps in order. */
template <bool MAX> static __device__ float block_fold(float v, any_shared *s)
{
    for (int i = 16; i; i /= 2) {
        float o = __shfl_xor_sync(~0u, v, i);
        v = MAX ? (v > o ? v : o) : v + o;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        s->fold[threadIdx.x / 32] = v;
    __syncthreads();
    v = s->fold[0];
    for (int i = 1; i < THREADS / 32; i++)
        v = MAX ? (v > s->fold[i] ? v : s->fold[i]) : v + s->fold[i];
    return v;
}

static __device__ float dot(const attn_args &a, const any_shared *s, size_t at)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < a.head_dim; i++)
        sum = fmaf(number_at(a.k, (enum dtype)a.dtype, (int64_t)(at + i)), s->q[i], sum);
    return sum;
}

/* grid: (heads, tokens) */
static __global__ void __launch_bounds__(THREADS, 8) attn_any_kernel(attn_args a)
{
    any_shared *s = dynamic_shared<any_shared>();
    depend();
    const uint32_t head = blockIdx.x, row = blockIdx.y, tid = threadIdx.x;
    const span_view span = a.spans[a.span_of[row]];
    const uint32_t kv_head = head / (a.n_heads / a.n_kv_heads);
    const uint32_t pos = span.kv_len - span.n + (row - span.first), lo = first_key(a, pos);
    const uint32_t *table = a.tables + span.table;
    float o[DIMS] = {}, max = -INFINITY, sum = 0.0f;
    for (uint32_t i = tid; i < a.head_dim; i += THREADS)
        s->q[i] = a.q[(size_t)row * a.q_stride + (size_t)head * a.head_dim + i];
    __syncthreads();
    for (uint32_t base = lo / SEGMENT * SEGMENT; base <= pos; base += SEGMENT) {
        const uint32_t key = base + tid;
        float x = -INFINITY;
        if (key >= lo && key <= pos)
            x = score(a, dot(a, s, key_at(a, table, kv_head, key)), head, key, pos, EXP_LOG2E);
        const float m = block_fold<true>(x, s);
        const float p = s->p[tid] = exp2_fast(x - m); /* at least one key is seen: m is finite */
        const float l = block_fold<false>(p, s);
        const merge_weights w = merge(max, m);
        const uint32_t begin = lo > base ? lo - base : 0;
        const uint32_t end = pos - base + 1 < SEGMENT ? pos - base + 1 : (uint32_t)SEGMENT;
#pragma unroll
        for (int c = 0; c < DIMS; c++) {
            const uint32_t dim = c * THREADS + tid;
            float v = 0.0f;
            for (uint32_t i = begin; dim < a.head_dim && i < end; i++)
                v = fmaf(s->p[i],
                         number_at(a.v, (enum dtype)a.dtype,
                                   (int64_t)(key_at(a, table, kv_head, base + i) + dim)),
                         v);
            o[c] = fmaf(v, w.fresh, o[c] * w.old);
        }
        sum = fmaf(l, w.fresh, sum * w.old);
        max = w.max;
        __syncthreads(); /* the weights have been read */
    }
    float *to = a.o + ((size_t)row * a.n_heads + head) * a.head_dim;
#pragma unroll
    for (int c = 0; c < DIMS; c++)
        if (c * THREADS + tid < a.head_dim)
            to[c * THREADS + tid] = o[c] * (1.0f / sum);
}

extern "C" cudaError_t attn_any_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_any_kernel, dim3(a->n_heads, a->tokens), THREADS, sizeof(any_shared),
                  l->stream, l->overlap, *a);
}
