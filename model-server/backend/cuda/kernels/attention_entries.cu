/* attention_entries.cu - attention to entries and to the keys of a window, in one softmax: see
 * entries.h. One key-value head, whose keys are its values. In fp32, for every type of cache.
 *
 * One block of 128 threads for each token and head, as in attention_any.cu. Keys are numbered:
 * first the entries, then the positions of the window. */
#include "model-server/backend/cuda/kernels/attention_block.cuh"

/* What a token attends to. */
struct seen {
    const uint32_t *table, *top; /* top: NULL, or the entries */
    uint32_t entries, first, n;  /* entries; first position of the window; entries and positions */
};

static __device__ seen seen_of(const attn_args &a, uint32_t row)
{
    const span_view span = a.spans[a.span_of[row]];
    const uint32_t pos = span.kv_len - span.n + (row - span.first);
    const uint32_t complete = (pos + 1) / a.entries, first = first_key(a, pos);
    const bool some = a.top && complete > a.n_top;
    const uint32_t n = some ? a.n_top : complete; /* entries_seen() */
    return seen{a.tables + span.table, some ? a.top + (size_t)row * a.n_top : NULL, n, first,
                n + pos + 1 - first};
}

/* With the places of a segment's keys: their blocks, their rows there. */
struct entries_shared {
    any_shared s;
    const char *block[SEGMENT];
    uint32_t row[SEGMENT];
};

/* Finds key number i, in place `at` of its segment. Returns its scale. */
static __device__ float find_key(const attn_args &a, const seen &s, uint32_t i, uint32_t at,
                                 entries_shared *room)
{
    const bool entry = i < s.entries;
    const uint32_t number = entry && s.top ? s.top[i] : i;
    const uint32_t pos = entry ? (number + 1) * a.entries - 1 : s.first + i - s.entries;
    const uint32_t offset = pos & (a.kv.block_size - 1);
    const size_t bytes = entry ? a.entry_kv.block_bytes : a.kv.block_bytes;
    const uint32_t scales = entry ? a.entry_kv.scales : a.kv.scales;
    const char *block = (entry ? a.entry_kv.k : a.kv.k) + s.table[pos >> a.kv.block_shift] * bytes;
    const uint32_t row = entry ? offset / a.entries : offset; /* entry_row() */
    room->block[at] = block, room->row[at] = row;
    return scales ? ((const float *)(block + scales))[row] : 1.0f;
}

static __device__ float number_at(const attn_args &a, const entries_shared *room, uint32_t key,
                                  uint32_t i)
{
    return number_of(room->block[key], a.kv.dtype, (size_t)room->row[key] * a.head_dim + i);
}

/* grid: (tokens, heads) */
static __global__ void __launch_bounds__(THREADS) attn_entries_kernel(attn_args a)
{
    entries_shared *room = dynamic_shared<entries_shared>();
    any_shared *s = &room->s;
    depend();
    const uint32_t head = blockIdx.y, row = blockIdx.x, tid = threadIdx.x;
    const seen keys = seen_of(a, row);
    float o[DIMS] = {}, max = -INFINITY, sum = 0.0f;
    for (uint32_t i = tid; i < a.head_dim; i += THREADS)
        s->q[i] = a.q[(size_t)row * a.q_stride + (size_t)head * a.head_dim + i];
    __syncthreads();
    for (uint32_t base = 0; base < keys.n; base += SEGMENT) {
        const uint32_t n = keys.n - base < SEGMENT ? keys.n - base : (uint32_t)SEGMENT;
        float x = -INFINITY, by = 0.0f;
        if (tid < n) {
            float dot = 0.0f;
            by = find_key(a, keys, base + tid, tid, room);
            for (uint32_t i = 0; i < a.head_dim; i++)
                dot = fmaf(number_at(a, room, tid, i), s->q[i], dot);
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
                v = fmaf(s->p[i], number_at(a, room, i, dim), v);
            o[c] = fmaf(v, w.fresh, o[c] * w.old);
        }
        sum = fmaf(l, w.fresh, sum * w.old);
        max = w.max;
        __syncthreads(); /* the weights have been read */
    }
    store_head_row(a, row, head, o, max, sum);
}

extern "C" cudaError_t attn_entries_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_entries_kernel, dim3(a->tokens, a->n_heads), THREADS, sizeof(entries_shared),
                  l->stream, l->overlap, *a);
}
