/* attention_mma.cu - paged attention on tensor cores, for head dimensions 64 and 128 and
 * 16-bit K and V.
 *
 * The query heads of one K/V head are rows of one product (GQA packing). A warp has 16 rows and
 * takes keys 32 at a time: scores by m16n8k16, softmax in registers, weights (rounded to 16 bits)
 * times values by m16n8k16. Two kernels around the same steps:
 *
 *   split    decode: a warp takes one segment of one tile of rows, its keys through 2 stages of its
 *            own shared memory; attn_merge adds the segments. Enough warps even for one sequence.
 *   shared   prefill and large batches: 4 warps of 16 rows walk all segments of the tile together,
 *            keys through 3 stages of shared memory; sums of the segment and of all before it are
 *            in registers.
 *
 * Keys lie in shared memory as [32 dims][key][64 bytes], 16-byte chunk c of a key at c ^ key / 2 %
 * 4: free of bank conflicts for the copies, for the 16-byte fragment loads of K and for ldmatrix of
 * V. K's dimensions are dealt to the MMAs as linear_mma.cuh deals columns.
 *
 * head dim 128: 16 KiB a stage; split 64 KiB a block of 2 warps, shared 48 KiB. Order of the sums:
 * attention.cuh. After FlashAttention-2 (Dao 2023) and FlashInfer (Ye et al. 2025). */
#include "model-server/backend/cuda/attention.cuh"

enum { WARPS = 4, THREADS = WARPS * 32, KEYS = 32, SPLIT_STAGES = 2, SHARED_STAGES = 3 };
enum { SPLIT_WARPS = 2 }; /* 64 KiB of shared memory: three blocks on sm_90, one on sm_86 and 89 */

/* One step's K or V. */
template <int DIM> struct tile {
    unsigned char b[DIM / 32][KEYS][64];
    __device__ __forceinline__ void *chunk(uint32_t key, uint32_t c)
    {
        return &b[c / 4][key][(c % 4 ^ key / 2 % 4) * 16];
    }
};
template <int DIM> struct stage {
    tile<DIM> k, v;
};

/* What a warp knows of its 16 rows; a lane has rows g and g + 8 of them. */
struct lane_rows {
    uint32_t lo[2], hi[2]; /* keys seen: [lo, hi); none: hi = 0 */
    uint32_t head[2];
    uint32_t first, end; /* of all 16 rows */
};

/* One chain. o: [dim / 8] fragments of 16 x 8. */
template <int DIM> struct chain {
    float o[DIM / 8][4], max[2], sum[2];
    __device__ __forceinline__ void reset()
    {
#pragma unroll
        for (int i = 0; i < DIM / 8 * 4; i++)
            o[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
            max[i] = -INFINITY, sum[i] = 0.0f;
    }
};

struct tile_rows {
    const span_view span;
    uint32_t group, kv_head, first, n;
    __device__ uint32_t token(uint32_t r) const { return (first + r) / group; }
    __device__ uint32_t head(uint32_t r) const { return kv_head * group + (first + r) % group; }
    __device__ uint32_t pos(uint32_t r) const { return span.kv_len - span.n + token(r); }
};

static __device__ tile_rows rows_of(const attn_args &a, uint32_t index, uint32_t kv_head)
{
    const row_tile t = a.tiles[index];
    return tile_rows{a.spans[t.span], a.n_heads / a.n_kv_heads, kv_head, t.first, t.n};
}

static __device__ lane_rows lane_of(const attn_args &a, const tile_rows &t, uint32_t warp_row)
{
    lane_rows r = {};
    for (int i = 0; i < 2; i++) {
        uint32_t row = warp_row + threadIdx.x % 32 / 4 + 8 * i;
        if (row < t.n) {
            r.lo[i] = first_key(a, t.pos(row));
            r.hi[i] = t.pos(row) + 1;
            r.head[i] = t.head(row);
        }
    }
    if (warp_row < t.n) {
        uint32_t last = warp_row + TILE_Q < t.n ? warp_row + TILE_Q : t.n;
        r.first = first_key(a, t.pos(warp_row));
        r.end = t.pos(last - 1) + 1;
    }
    return r;
}

/* The warp's 16 rows of q as fragments: registers 2 j and 2 j + 1 belong to dims 32 j .. 32 j + 31.
 */
template <typename T, int DIM>
static __device__ void load_q(const attn_args &a, const tile_rows &t, uint32_t warp_row,
                              uint32_t (&q)[DIM / 16][4])
{
    const uint32_t lane = threadIdx.x % 32;
    for (int i = 0; i < 2; i++) {
        const uint32_t row = warp_row + lane / 4 + 8 * i;
        const float *src = NULL;
        if (row < t.n)
            src = a.q + (size_t)(t.span.first + t.token(row)) * a.q_stride +
                  (size_t)t.head(row) * DIM + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < DIM / 32; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) /* dims 8t + 2c, + 1: MMA c / 2, half c % 2 */
                q[2 * j + c / 2][i + c % 2 * 2] =
                    src ? T::pack(src[32 * j + 2 * c], src[32 * j + 2 * c + 1]) : 0;
    }
}

/* Keys [key, key + 32) of the tile's K/V head on their way, by `threads` threads of which this is
 * number `self`. Keys past the sequence's end are zeros: they may be anything in the cache. */
template <int DIM>
static __device__ void load_stage(const attn_args &a, const tile_rows &t, stage<DIM> *s,
                                  uint32_t first, uint32_t self, uint32_t threads)
{
    const uint32_t *table = a.tables + t.span.table;
    for (uint32_t i = self; i < KEYS * (DIM / 8); i += threads) {
        uint32_t key = i / (DIM / 8), c = i % (DIM / 8);
        bool valid = first + key < t.span.kv_len;
        size_t at = valid ? key_at(a, table, t.kv_head, first + key) + 8 * c : 0;
        copy_async(s->k.chunk(key, c), (const uint16_t *)a.k + at, valid);
        copy_async(s->v.chunk(key, c), (const uint16_t *)a.v + at, valid);
    }
}

/* Scores of the 32 keys in log2, -inf where a row does not see the key. */
template <typename T, int DIM>
static __device__ __forceinline__ void score_step(const attn_args &a, const lane_rows &r,
                                                  const uint32_t (&q)[DIM / 16][4], stage<DIM> *s,
                                                  uint32_t first, float (&x)[KEYS / 8][4])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0.0f;
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
            const uint4 k = *(const uint4 *)s->k.chunk(8 * n + g, 4 * j + t);
            T::mma(x[n], q[2 * j], k.x, k.y);
            T::mma(x[n], q[2 * j + 1], k.z, k.w);
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint32_t key = first + 8 * n + 2 * t + c % 2, i = c / 2;
            bool seen = key >= r.lo[i] && key < r.hi[i];
            x[n][c] = seen ? score(a, x[n][c], r.head[i], key, r.hi[i] - 1, EXP_LOG2E) : -INFINITY;
        }
    }
}

/* 32 more keys into the chain. */
template <typename T, int DIM>
static __device__ __forceinline__ void attend_step(const attn_args &a, const lane_rows &r,
                                                   const uint32_t (&q)[DIM / 16][4], stage<DIM> *s,
                                                   uint32_t first, chain<DIM> &h)
{
    const uint32_t lane = threadIdx.x % 32;
    float x[KEYS / 8][4];
    score_step<T, DIM>(a, r, q, s, first, x);
#pragma unroll
    for (int i = 0; i < 2; i++) { /* rows g, g + 8 */
        float m = h.max[i];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            m = fmaxf(m, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
        const float at = m == -INFINITY ? 0.0f : m, old = exp2_fast(h.max[i] - at);
        h.max[i] = m;
        h.sum[i] *= old;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            x[n][2 * i] = exp2_fast(x[n][2 * i] - at);
            x[n][2 * i + 1] = exp2_fast(x[n][2 * i + 1] - at);
            h.sum[i] += x[n][2 * i] + x[n][2 * i + 1];
        }
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            h.o[d][2 * i] *= old, h.o[d][2 * i + 1] *= old;
    }
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
        const uint32_t p[4] = {T::pack(x[2 * j][0], x[2 * j][1]), T::pack(x[2 * j][2], x[2 * j][3]),
                               T::pack(x[2 * j + 1][0], x[2 * j + 1][1]),
                               T::pack(x[2 * j + 1][2], x[2 * j + 1][3])};
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            uint32_t v[4];
            load_matrix_trans(v, s->v.chunk(16 * j + lane % 16, 2 * d + lane / 16));
            T::mma(h.o[2 * d], p, v[0], v[1]);
            T::mma(h.o[2 * d + 1], p, v[2], v[3]);
        }
    }
}

/* The four lanes of a row have its sum in parts. */
template <int DIM> static __device__ __forceinline__ void fold_sums(chain<DIM> &h)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        h.sum[i] += __shfl_xor_sync(~0u, h.sum[i], 1);
        h.sum[i] += __shfl_xor_sync(~0u, h.sum[i], 2);
    }
}

/* ---------------------------------------------------------------- split */

/* grid: (kv heads, tiles, segments / SPLIT_WARPS) */
template <typename T, int DIM>
static __global__ void __launch_bounds__(SPLIT_WARPS * 32) attn_split_kernel(attn_args a)
{
    depend();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t segment = blockIdx.z * SPLIT_WARPS + warp;
    stage<DIM> *ring = dynamic_shared<stage<DIM>>() + warp * SPLIT_STAGES;
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x);
    const lane_rows r = lane_of(a, t, 0);
    uint32_t begin = segment * SEGMENT, end = begin + SEGMENT < r.end ? begin + SEGMENT : r.end;
    if (begin < r.first)
        begin = r.first / KEYS * KEYS;
    if (begin >= end) /* the whole warp: nobody waits for it */
        return;
    uint32_t q[DIM / 16][4];
    load_q<T, DIM>(a, t, 0, q);
    chain<DIM> h;
    h.reset();
    load_stage<DIM>(a, t, &ring[0], begin, lane, 32);
    copy_commit();
    for (uint32_t key = begin, at = 0; key < end; key += KEYS, at ^= 1) {
        if (key + KEYS < end)
            load_stage<DIM>(a, t, &ring[at ^ 1], key + KEYS, lane, 32);
        copy_commit();
        copy_wait<1>();
        __syncwarp();
        attend_step<T, DIM>(a, r, q, &ring[at], key, h);
        __syncwarp(); /* all have read the stage */
    }
    fold_sums<DIM>(h);
    const size_t part = ((size_t)blockIdx.y * a.n_kv_heads + blockIdx.x) * a.segments + segment;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        float *o = a.part_o + (part * a.rows + row) * DIM + lane % 4 * 2;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            *(float2 *)(o + 8 * d) = make_float2(h.o[d][2 * i], h.o[d][2 * i + 1]);
        if (lane % 4 == 0)
            *(float2 *)(a.part_ml + (part * a.rows + row) * 2) = make_float2(h.max[i], h.sum[i]);
    }
}

/* grid: (kv heads, tiles, rows); one thread a dimension */
static __global__ void __launch_bounds__(256) attn_merge_kernel(attn_args a)
{
    depend();
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x);
    const uint32_t row = blockIdx.z, dim = threadIdx.x;
    if (row >= t.n)
        return;
    const uint32_t pos = t.pos(row);
    const size_t part = ((size_t)blockIdx.y * a.n_kv_heads + blockIdx.x) * a.segments;
    float max = -INFINITY, sum = 0.0f, o = 0.0f;
    for (uint32_t s = first_key(a, pos) / SEGMENT; s <= pos / SEGMENT; s++) {
        const float *ml = a.part_ml + ((part + s) * a.rows + row) * 2;
        const merge_weights w = merge(max, ml[0]);
        o = fmaf(a.part_o[((part + s) * a.rows + row) * a.head_dim + dim], w.fresh, o * w.old);
        sum = fmaf(ml[1], w.fresh, sum * w.old);
        max = w.max;
    }
    const size_t to = (size_t)(t.span.first + t.token(row)) * a.n_heads + t.head(row);
    a.o[to * a.head_dim + dim] = o * (1.0f / sum);
}

/* ---------------------------------------------------------------- shared */

template <int DIM>
static __device__ __forceinline__ void merge_chain(chain<DIM> &all, chain<DIM> &segment)
{
    fold_sums<DIM>(segment);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const merge_weights w = merge(all.max[i], segment.max[i]);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int c = 2 * i; c < 2 * i + 2; c++)
                all.o[d][c] = fmaf(segment.o[d][c], w.fresh, all.o[d][c] * w.old);
        all.sum[i] = fmaf(segment.sum[i], w.fresh, all.sum[i] * w.old);
        all.max[i] = w.max;
    }
    segment.reset();
}

/* grid: (kv heads, tiles) */
template <typename T, int DIM>
static __global__ void __launch_bounds__(THREADS) attn_shared_kernel(attn_args a)
{
    depend();
    const uint32_t lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * TILE_Q;
    stage<DIM> *ring = dynamic_shared<stage<DIM>>();
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x);
    const lane_rows r = lane_of(a, t, warp_row);
    const uint32_t begin = first_key(a, t.pos(0)) / KEYS * KEYS, end = t.pos(t.n - 1) + 1;
    uint32_t q[DIM / 16][4];
    load_q<T, DIM>(a, t, warp_row, q);
    chain<DIM> all, h;
    all.reset(), h.reset();
    for (int i = 0; i < SHARED_STAGES - 1; i++) {
        if (begin + i * KEYS < end)
            load_stage<DIM>(a, t, &ring[i], begin + i * KEYS, threadIdx.x, THREADS);
        copy_commit();
    }
    int at = 0;
    for (uint32_t key = begin; key < end; key += KEYS) {
        copy_wait<SHARED_STAGES - 2>();
        __syncthreads(); /* the stage is there, and all have left the one that is filled next */
        const uint32_t next = key + (SHARED_STAGES - 1) * KEYS;
        if (next < end)
            load_stage<DIM>(a, t, &ring[(at + SHARED_STAGES - 1) % SHARED_STAGES], next,
                            threadIdx.x, THREADS);
        copy_commit();
        if (key % SEGMENT == 0 && key != begin)
            merge_chain<DIM>(all, h);
        if (key < r.end && key + KEYS > r.first) /* else no row of the warp sees any of them */
            attend_step<T, DIM>(a, r, q, &ring[at], key, h);
        at = (at + 1) % SHARED_STAGES;
    }
    merge_chain<DIM>(all, h);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = warp_row + lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        const float s = 1.0f / all.sum[i];
        float *o = a.o + ((size_t)(t.span.first + t.token(row)) * a.n_heads + t.head(row)) * DIM +
                   lane % 4 * 2;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            *(float2 *)(o + 8 * d) = make_float2(all.o[d][2 * i] * s, all.o[d][2 * i + 1] * s);
    }
}

/* ---------------------------------------------------------------- launching */

template <typename T, int DIM>
static cudaError_t start(const struct launch *l, const attn_args *a, bool split)
{
    if (split)
        return launch(
            attn_split_kernel<T, DIM>,
            dim3(a->n_kv_heads, a->n_tiles, (a->segments + SPLIT_WARPS - 1) / SPLIT_WARPS),
            SPLIT_WARPS * 32, SPLIT_WARPS * SPLIT_STAGES * sizeof(stage<DIM>), l->stream,
            l->overlap, *a);
    return launch(attn_shared_kernel<T, DIM>, dim3(a->n_kv_heads, a->n_tiles), THREADS,
                  SHARED_STAGES * sizeof(stage<DIM>), l->stream, l->overlap, *a);
}

static cudaError_t choose(const struct launch *l, const attn_args *a, bool split)
{
    if (a->head_dim == 64)
        return a->dtype == DT_F16 ? start<F16, 64>(l, a, split) : start<Bf16, 64>(l, a, split);
    return a->dtype == DT_F16 ? start<F16, 128>(l, a, split) : start<Bf16, 128>(l, a, split);
}

bool attn_mma_has(uint32_t head_dim, enum dtype t)
{
    return (head_dim == 64 || head_dim == 128) && (t == DT_F16 || t == DT_BF16);
}

extern "C" cudaError_t attn_split_launch(const struct launch *l, const void *args)
{
    return choose(l, (const attn_args *)args, true);
}

extern "C" cudaError_t attn_shared_launch(const struct launch *l, const void *args)
{
    return choose(l, (const attn_args *)args, false);
}

extern "C" cudaError_t attn_merge_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    return launch(attn_merge_kernel, dim3(a->n_kv_heads, a->n_tiles, a->rows), a->head_dim, 0,
                  l->stream, l->overlap, *a);
}
