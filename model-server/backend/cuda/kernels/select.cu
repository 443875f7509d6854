/* select.cu - sparse attention's indexer: index keys in the cache, the scores of all positions of a
 * sequence, and the best of them, in ascending order.
 *
 * A score is a chain over the even heads, plus one over the odd heads; with blocks each head has
 * its own scores, and a block the greatest of its positions. A token's threshold, the score of its
 * last selected position, is found byte by byte by counting (a radix selection). */
#include "model-server/backend/cuda/kernels/attention.cuh"
#include "model-server/backend/cuda/kernels/heads.cuh"

enum { WARPS = 4, SCORE_THREADS = 2 * INDEX_KEYS, SCORE_HEADS = 8, CHOOSE_THREADS = 256 };

/* One warp per query of a token, one more for its key; grid: (tokens, (heads + 1) / WARPS). */
static __global__ void __launch_bounds__(WARPS * 32) index_kernel(index_args a)
{
    depend();
    const uint32_t token = blockIdx.x, lane = threadIdx.x % 32;
    const uint32_t head = blockIdx.y * WARPS + threadIdx.x / 32;
    if (head > a.n_heads)
        return;
    float *x = head < a.n_heads ? a.q + ((size_t)token * a.n_heads + head) * a.dim
                                : a.k + (size_t)token * a.dim;
    if (a.rope && (head < a.n_heads || !a.turned))
        rotate_into(x + a.rot_at, x + a.rot_at, a.rope + (size_t)token * a.rot_dim, a.rot_dim,
                    a.interleaved, lane);
    if (head < a.n_heads)
        return;
    __syncwarp(); /* the other lanes' numbers */
    rope_args r = {};
    r.kv = a.kv;
    r.head_dim = a.dim;
    store_head(r, a.kv.k, 0, a.slots[token], x, a.dim, lane);
}

extern "C" cudaError_t index_launch(const struct launch *l, const void *args)
{
    const index_args *a = (const index_args *)args;
    return launch(index_kernel, dim3(a->tokens, a->n_heads / WARPS + 1), WARPS * 32, 0, l->stream,
                  l->overlap, *a);
}

/* ---------------------------------------------------------------- scores */

/* Keys of a block, one row after the other, further apart than their length: a thread has a row. */
static __host__ __device__ uint32_t key_pitch(const select_args &a) { return a.dim + 1; }

/* Positions of a token, itself included. */
static __device__ uint32_t positions_of(const select_args &a, const span_view &span, uint32_t token)
{
    return span.kv_len - span.n + (token - span.first) + 1;
}

/* Positions, or blocks, of n keys. */
static __device__ uint32_t units_of(const select_args &a, uint32_t n)
{
    return a.complete ? n / a.block : a.block ? (n + a.block - 1) / a.block : n;
}

/* True if a token with n positions selects: select_some_of(). */
static __device__ bool selects(const select_args &a, uint32_t n)
{
    return a.pooled ? n / a.block >= a.top + a.complete : units_of(a, n) > a.top;
}

/* A key's block and its row there. */
static __device__ const char *index_block(const select_args &a, const span_view &span, uint32_t key)
{
    const uint32_t block = a.tables[span.table + (key >> a.kv.block_shift)];
    return a.kv.k + (size_t)block * a.kv.block_bytes;
}

static __device__ float index_scale(const select_args &a, const char *block, uint32_t key)
{
    return a.kv.scales ? ((const float *)(block + a.kv.scales))[key & (a.kv.block_size - 1)] : 1.0f;
}

static __device__ void take_keys(const select_args &a, const span_view &span, uint32_t base,
                                 uint32_t n, float *keys)
{
    for (uint32_t i = threadIdx.x; i < n * a.dim; i += SCORE_THREADS) {
        const uint32_t key = i / a.dim, at = i % a.dim;
        const size_t row = (base + key) & (a.kv.block_size - 1);
        keys[key * key_pitch(a) + at] =
            number_of(index_block(a, span, base + key), a.kv.dtype, row * a.dim + at);
    }
}

/* Two threads per key, one for even heads and one for odd ones; grid: (tiles of keys, rows). */
static __global__ void __launch_bounds__(SCORE_THREADS) index_score_kernel(select_args a)
{
    float *keys = dynamic_shared<float>(), *q = keys + INDEX_KEYS * key_pitch(a);
    float *odd = q + SCORE_HEADS * a.dim;
    depend();
    const uint32_t token = a.first + blockIdx.y, base = blockIdx.x * INDEX_KEYS;
    const span_view span = a.spans[a.span_of[token]];
    const uint32_t all = positions_of(a, span, token);
    if (!selects(a, all) || base >= all)
        return;
    const uint32_t n = all - base < INDEX_KEYS ? all - base : (uint32_t)INDEX_KEYS;
    const uint32_t key = threadIdx.x % INDEX_KEYS, part = threadIdx.x / INDEX_KEYS;
    const float scale = key < n ? index_scale(a, index_block(a, span, base + key), base + key) : 0;
    take_keys(a, span, base, n, keys);
    float sum = 0.0f;
    for (uint32_t first = 0; first < a.n_heads; first += SCORE_HEADS) {
        const uint32_t heads = a.n_heads - first < SCORE_HEADS ? a.n_heads - first : SCORE_HEADS;
        const size_t at = (size_t)token * a.n_heads + first;
        __syncthreads(); /* the heads before have been read */
        for (uint32_t i = threadIdx.x; i < heads * a.dim; i += SCORE_THREADS)
            q[i] = a.q[at * a.dim + i];
        __syncthreads();
        for (uint32_t h = part; key < n && h < heads; h += 2) {
            float dot = 0.0f;
            for (uint32_t i = 0; i < a.dim; i++)
                dot = fmaf(keys[key * key_pitch(a) + i], q[h * a.dim + i], dot);
            dot *= scale;
            if (a.by_head)
                a.scores[((size_t)blockIdx.y * a.sets + first + h) * a.pitch + base + key] = dot;
            else
                sum = fmaf(a.weights ? a.weights[at + h] : 1.0f, dot < 0.0f ? 0.0f : dot, sum);
        }
    }
    if (a.by_head)
        return;
    if (part)
        odd[key] = sum;
    __syncthreads();
    if (!part && key < n)
        a.scores[(size_t)blockIdx.y * a.pitch + base + key] = sum + odd[key];
}

extern "C" cudaError_t index_score_launch(const struct launch *l, const void *args)
{
    const select_args *a = (const select_args *)args;
    const size_t floats =
        (size_t)INDEX_KEYS * key_pitch(*a) + (size_t)SCORE_HEADS * a->dim + INDEX_KEYS;
    return launch(index_score_kernel, dim3(a->pitch / INDEX_KEYS, a->rows), SCORE_THREADS,
                  floats * sizeof(float), l->stream, l->overlap, *a);
}

/* ---------------------------------------------------------------- the best */

struct choose_shared {
    uint32_t count[CHOOSE_THREADS]; /* of each value of a byte */
    uint32_t byte, left;            /* of the threshold */
    uint32_t warps[CHOOSE_THREADS / 32];
};
static_assert(CHOOSE_THREADS == 256, "a thread clears the count of one value");

/* Ascending with the score; both zeros are one. */
static __device__ uint32_t order_of(float score)
{
    const uint32_t bits = bits_of(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The order of the score number *left, from the greatest on; *left becomes the number of scores of
 * this order among the first *left. The same in all threads. */
static __device__ uint32_t threshold_of(const float *s, uint32_t n, uint32_t *left,
                                        choose_shared *room)
{
    uint32_t value = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        room->count[threadIdx.x] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
            const uint32_t o = order_of(s[i]);
            if ((o & known) == value)
                atomicAdd(&room->count[o >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t byte = 255, rest = *left;
            for (; room->count[byte] < rest; byte--)
                rest -= room->count[byte];
            room->byte = byte, room->left = rest;
        }
        __syncthreads();
        value |= room->byte << shift, known |= 255u << shift;
        *left = room->left;
        __syncthreads(); /* all have read them */
    }
    return value;
}

/* How many lower threads have it; *all: how many of the block. */
static __device__ uint32_t count_before(bool has, choose_shared *room, uint32_t *all)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t mask = __ballot_sync(~0u, has);
    uint32_t before = __popc(mask & ((1u << lane) - 1));
    if (lane == 0)
        room->warps[warp] = __popc(mask);
    __syncthreads();
    *all = 0;
    for (uint32_t i = 0; i < CHOOSE_THREADS / 32; i++) {
        before += i < warp ? room->warps[i] : 0;
        *all += room->warps[i];
    }
    __syncthreads(); /* all have read them */
    return before;
}

/* The scores of blocks, from those of their n positions, in place. The positions that a turn of the
 * loop overwrites belong to blocks of this turn or of one before it. */
static __device__ void pool_blocks(const select_args &a, float *s, uint32_t n)
{
    const uint32_t blocks = units_of(a, n);
    for (uint32_t base = 0; base < blocks; base += CHOOSE_THREADS) {
        const uint32_t b = base + threadIdx.x;
        float most = -INFINITY;
        for (uint32_t i = b * a.block; b < blocks && i < n && i < (b + 1) * a.block; i++)
            most = a.pooled || s[i] > most ? s[i] : most;
        if (a.pooled && (b + 1) * a.block > n)
            most = INFINITY;
        __syncthreads();
        if (b < blocks)
            s[b] = a.pooled || b + a.local < blocks ? most : INFINITY;
        __syncthreads();
    }
}

/* grid: (rows, sets) */
static __global__ void __launch_bounds__(CHOOSE_THREADS) index_choose_kernel(select_args a)
{
    choose_shared *room = dynamic_shared<choose_shared>();
    depend();
    const uint32_t token = a.first + blockIdx.x;
    const uint32_t keys = positions_of(a, a.spans[a.span_of[token]], token);
    const uint32_t n = units_of(a, keys);
    float *s = a.scores + ((size_t)blockIdx.x * a.sets + blockIdx.y) * a.pitch;
    uint32_t *chosen = a.chosen + ((size_t)token * a.sets + blockIdx.y) * a.top;
    uint32_t left = a.top - (a.pooled && !a.complete && keys % a.block == 0);
    uint32_t done = 0, passed = 0;
    if (!selects(a, keys))
        return;
    if (a.block)
        pool_blocks(a, s, keys);
    const uint32_t least = threshold_of(s, n, &left, room);
    for (uint32_t base = 0; base < n; base += CHOOSE_THREADS) {
        const uint32_t i = base + threadIdx.x, o = i < n ? order_of(s[i]) : 0;
        const bool equal = i < n && o == least;
        uint32_t equals, takes;
        const uint32_t before = passed + count_before(equal, room, &equals);
        const bool take = i < n && (o > least || (equal && before < left));
        const uint32_t at = done + count_before(take, room, &takes);
        if (take)
            chosen[at] = i;
        passed += equals, done += takes;
    }
}

extern "C" cudaError_t index_choose_launch(const struct launch *l, const void *args)
{
    const select_args *a = (const select_args *)args;
    return launch(index_choose_kernel, dim3(a->rows, a->sets), CHOOSE_THREADS,
                  sizeof(choose_shared), l->stream, l->overlap, *a);
}
