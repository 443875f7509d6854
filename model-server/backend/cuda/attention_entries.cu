/* attention_entries.cu - attention to entries and to the keys of a window, in one softmax: see
 * entries.h. One key-value head, whose keys are its values. In fp32, for every type of cache.
 *
 * One block of 128 threads for each token and head, as in attention_any.cu. Keys are numbered:
 * first the entries, then the positions of the window. */
#include "model-server/backend/cuda/attention_block.cuh"

/* What a token attends to. */
struct seen {
    const uint32_t *table, *top; /* top: NULL, or the entries */
    uint32_t entries, first, n;  /* entries; first position of the window; entries and positions */
};

static __device__ seen seen_of(const attn_args &a, uint32_t row)
{
    const span_view span = a.spans[a.span_of[row]];
    const uint32_t pos = span.kv_len - span.n + (row - span.first);
    const uint32_t n = entries_seen(a.entries, a.top ? a.n_top : 0, pos);
    const uint32_t first = first_key(a, pos);
    return seen{a.tables + span.table,
                n < (pos + 1) / a.entries ? a.top + (size_t)row * a.n_top : NULL, n, first,
                n + pos + 1 - first};
}

/* A key: its block, its row there, its scale. */
struct key_row {
    const char *block;
    size_t row;
    float scale;
};

static __device__ key_row key_of(const attn_args &a, const seen &s, uint32_t i)
{
    const bool entry = i < s.entries;
    const uint32_t number = entry && s.top ? s.top[i] : i;
    const uint32_t pos = entry ? (number + 1) * a.entries - 1 : s.first + i - s.entries;
    const uint32_t offset = pos & (a.kv.block_size - 1);
    const kv_view &kv = entry ? a.entry_kv : a.kv;
    const char *block = kv.k + (size_t)s.table[pos >> a.kv.block_shift] * kv.block_bytes;
    const size_t row = entry ? entry_row(offset, a.entries) : offset;
    return key_row{block, row, kv.scales ? ((const float *)(block + kv.scales))[row] : 1.0f};
}

static __device__ float number_at(const attn_args &a, const key_row &k, uint32_t i)
{
    return number_of(k.block, a.kv.dtype, k.row * a.head_dim + i);
}

/* grid: (heads, tokens) */
static __global__ void __launch_bounds__(THREADS) attn_entries_kernel(attn_args a)
{
    any_shared *s = dynamic_shared<any_shared>();
    depend();
    const uint32_t head = blockIdx.x, row = blockIdx.y, tid = threadIdx.x;
    const seen keys = seen_of(a, row);
    float o[DIMS] = {}, max = -INFINITY, sum = 0.0f;
    for (uint32_t i = tid; i < a.head_dim; i += THREADS)
        s->q[i] = a.q[(size_t)row * a.q_stride + (size_t)head * a.head_dim + i];
    __syncthreads();
    for (uint32_t base = 0; base < keys.n; base += SEGMENT) {
        const uint32_t n = keys.n - base < SEGMENT ? keys.n - base : (uint32_t)SEGMENT;
        float x = -INFINITY, by = 0.0f;
        if (tid < n) {
            const key_row k = key_of(a, keys, base + tid);
            float dot = 0.0f;
            for (uint32_t i = 0; i < a.head_dim; i++)
                dot = fmaf(number_at(a, k, i), s->q[i], dot);
            by = k.scale;
            x = dot * by * (a.scale * EXP_LOG2E);
        }
        const float m = block_fold<true>(x, s);
        const float p = exp2_fast(x - m);
        s->p[tid] = x == -INFINITY ? 0.0f : p * by;
        const float l = block_fold<false>(p, s);
        const merge_weights w = merge(max, m);
#pragma unroll
        for (int c = 0; c < DIMS; c++) {
            const uint32_t dim = c * THREADS + tid;
            float v = 0.0f;
            for (uint32_t i = 0; dim < a.v_dim && i < n; i++)
                v = fmaf(s->p[i], number_at(a, key_of(a, keys, base + i), dim), v);
            o[c] = fmaf(v, w.fresh, o[c] * w.old);
        }
        sum = fmaf(l, w.fresh, sum * w.old);
        max = w.max;
        __syncthreads(); /* the weights have been read */
    }
    float *to = a.o + ((size_t)row * a.n_heads + head) * a.v_dim;
    const float factor = row_factor(a, head, max, sum);
#pragma unroll
    for (int c = 0; c < DIMS; c++)
        if (c * THREADS + tid < a.v_dim)
            to[c * THREADS + tid] = o[c] * factor;
}

extern "C" cudaError_t attn_entries_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_entries_kernel, dim3(a->n_heads, a->tokens), THREADS, sizeof(any_shared),
                  l->stream, l->overlap, *a);
}
