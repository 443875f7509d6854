/* attention_mma.cuh - paged attention on tensor cores, for head dimensions 64 to 256 and K and V of
 * 16 or 8 bits; attention_<type>.cu makes the kernels of one type of cache.
 *
 * The query heads of one K/V head are rows of one product (GQA packing). A warp has 16 rows and
 * takes keys 32 at a time: scores by m16n8k16, softmax in registers, weights (rounded to 16 bits)
 * times values by m16n8k16. Two kernels around the same steps:
 *
 *   split    decode: a warp takes one segment of one tile of rows, its keys through 2 stages of its
 *            own shared memory; the last block of a tile, or attn_merge, adds the segments. Enough
 *            warps even for one sequence.
 *   shared   prefill and large batches: the warps of 4 times 16 rows walk all segments of the tile
 *            together, keys through 2 or 3 stages of shared memory; sums of the segment and of all
 *            before it are in registers. Beyond 128 dimensions two warps have the same rows: both
 *            take the scores, each half of the values; q's fragments are in shared memory.
 *
 * How keys and values lie in shared memory, and what a type of cache makes of them there:
 * attention_cache.cuh. A key's scale multiplies its scores, a value's its weight, before that is
 * rounded.
 *
 * No more than 99 KiB of shared memory a block, which sm_86 and 89 have: static_assert below. Order
 * of the sums: attention.cuh. After FlashAttention-2 (Dao 2023) and FlashInfer (Ye et al. 2025). */
#ifndef MODEL_SERVER_BACKEND_CUDA_ATTENTION_MMA_CUH
#define MODEL_SERVER_BACKEND_CUDA_ATTENTION_MMA_CUH
#include "model-server/backend/cuda/attention.cuh"
#include "model-server/backend/cuda/attention_cache.cuh"
#include "model-server/backend/cuda/last_block.cuh"

enum { ROW_GROUPS = SHARED_ROWS / TILE_Q, SPLIT_STAGES = 2, SHARED_MOST = 99 << 10 };

/* ---------------------------------------------------------------- what shared memory holds */

template <bool> struct scales {
    float k_scale[KEYS], v_scale[KEYS];
};
template <> struct scales<false> {
};
template <typename C, int DIM> struct stage : scales<C::SCALED> {
    tile<DIM * C::BYTES> k, v;
};

/* Parameters of a head dimension. */
template <typename C, int DIM> struct plan {
    enum {
        LARGE = DIM > 128,
        PARTS = LARGE ? 2 : 1,       /* shared: warps with the same rows */
        PART = DIM / PARTS,          /* dimensions of the values of each */
        STAGES = LARGE ? 2 : 3,      /* shared */
        SPLIT_WARPS = LARGE ? 1 : 2, /* of a block; 64 KiB: three blocks on sm_90 */
        THREADS = ROW_GROUPS * PARTS * 32,
        BLOCKS = LARGE ? 1 : 2, /* shared: on a multiprocessor at least; 255 registers a thread */
        QUERIES = LARGE ? DIM / 16 * 32 * 16 : 0, /* bytes of 16 rows in shared memory */
        SPLIT_BYTES = SPLIT_WARPS * (SPLIT_STAGES * (int)sizeof(stage<C, DIM>) + QUERIES),
        SHARED_BYTES = STAGES * (int)sizeof(stage<C, DIM>) + ROW_GROUPS * QUERIES
    };
    static_assert((int)SPLIT_BYTES <= SHARED_MOST && (int)SHARED_BYTES <= SHARED_MOST, "");
    static_assert(PART % 16 == 0, "");
};

/* ---------------------------------------------------------------- rows */

/* A warp's state of its 16 rows; a lane has rows g and g + 8 of them. */
struct lane_rows {
    uint32_t lo[2], hi[2]; /* keys of the rows: [lo, hi); none: hi = 0 */
    uint32_t head[2];
    uint32_t first, end; /* of all 16 rows */
};

/* One chain. o: fragments of 16 x 8 in the layout of the cache's type. */
template <int DIMS> struct chain {
    float o[DIMS / 8][4], max[2], sum[2];
    __device__ __forceinline__ void reset()
    {
#pragma unroll
        for (int i = 0; i < DIMS / 8 * 4; i++)
            o[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
            max[i] = -INFINITY, sum[i] = 0.0f;
    }
};

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

/* ---------------------------------------------------------------- queries */

/* First of the 4 dimensions that a lane has in fragment m. */
template <int DIM> static __device__ __forceinline__ uint32_t query_dim(int m, uint32_t t)
{
    return m / 2 < DIM / 32 ? 32 * (m / 2) + 8 * t + 4 * (m % 2) : 16 * m + 4 * t;
}

static __device__ __forceinline__ const float *query_row(const attn_args &a, const tile_rows &t,
                                                         uint32_t row)
{
    if (row >= t.n)
        return NULL;
    return a.q + (size_t)(t.span.first + t.token(row)) * a.q_stride +
           (size_t)t.head(row) * a.head_dim;
}

/* The warp's 16 rows of q as A fragments: in registers or, if LARGE, in shared memory, where each
 * lane reads what the same lane of the writing warp stored. */
template <typename C, int DIM, bool LARGE> struct queries {
    uint32_t r[DIM / 16][4];
    __device__ __forceinline__ void fill(const attn_args &a, const tile_rows &t, uint32_t warp_row)
    {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *src = query_row(a, t, warp_row + lane / 4 + 8 * i);
#pragma unroll
            for (int m = 0; m < DIM / 16; m++) {
                const uint32_t d = query_dim<DIM>(m, lane % 4);
                r[m][i] = src ? C::Mma::pack(src[d], src[d + 1]) : 0;
                r[m][i + 2] = src ? C::Mma::pack(src[d + 2], src[d + 3]) : 0;
            }
        }
    }
    __device__ __forceinline__ void get(int m, uint32_t (&f)[4]) const
    {
        f[0] = r[m][0], f[1] = r[m][1], f[2] = r[m][2], f[3] = r[m][3];
    }
};
template <typename C, int DIM> struct queries<C, DIM, true> {
    uint4 *at; /* [DIM / 16][32] */
    __device__ __forceinline__ void fill(const attn_args &a, const tile_rows &t, uint32_t warp_row)
    {
        const uint32_t lane = threadIdx.x % 32;
        const float *lo = query_row(a, t, warp_row + lane / 4);
        const float *hi = query_row(a, t, warp_row + lane / 4 + 8);
        for (int m = 0; m < DIM / 16; m++) {
            const uint32_t d = query_dim<DIM>(m, lane % 4);
            uint4 f = {};
            if (lo)
                f.x = C::Mma::pack(lo[d], lo[d + 1]), f.z = C::Mma::pack(lo[d + 2], lo[d + 3]);
            if (hi)
                f.y = C::Mma::pack(hi[d], hi[d + 1]), f.w = C::Mma::pack(hi[d + 2], hi[d + 3]);
            at[m * 32 + lane] = f;
        }
    }
    __device__ __forceinline__ void get(int m, uint32_t (&f)[4]) const
    {
        const uint4 v = at[m * 32 + threadIdx.x % 32];
        f[0] = v.x, f[1] = v.y, f[2] = v.z, f[3] = v.w;
    }
};

/* ---------------------------------------------------------------- one step: 32 keys */

/* Starts copying keys [first, first + 32) of the tile's K/V head, by `threads` threads of which
 * this is number `self`. Keys after the sequence's end become zeros, because the cache may
 * contain anything there. */
template <typename C, int DIM>
static __device__ void load_stage(const attn_args &a, const tile_rows &t, stage<C, DIM> *s,
                                  uint32_t first, uint32_t self, uint32_t threads)
{
    enum { ROW = DIM * C::BYTES, CHUNKS = ROW / 16 };
    const uint32_t *table = a.tables + t.span.table;
    for (uint32_t i = self; i < KEYS * CHUNKS; i += threads) {
        const uint32_t key = i / CHUNKS, c = i % CHUNKS;
        const bool valid = first + key < t.span.kv_len;
        const key_place p = valid ? key_at(a, table, t.kv_head, first + key) : key_place{};
        const size_t at = p.block + p.row * ROW + 16 * c;
        copy_async(s->k.chunk(key, c), a.kv.k + at, valid);
        copy_async(s->v.chunk(key, c), a.kv.v + at, valid);
    }
    if constexpr (C::SCALED)
        for (uint32_t key = SCALES_AT_ONCE * self; key < KEYS; key += SCALES_AT_ONCE * threads) {
            const bool valid = first + key < t.span.kv_len;
            const key_place p = valid ? key_at(a, table, t.kv_head, first + key) : key_place{};
            const size_t at = p.block + a.kv.scales + p.row * sizeof(float);
            copy_async(s->k_scale + key, a.kv.k + at, valid);
            copy_async(s->v_scale + key, a.kv.v + at, valid);
        }
}

/* Scores of the 32 keys in log2, -inf if a row does not attend to the key. */
template <typename C, int DIM, typename Q>
static __device__ __forceinline__ void score_step(const attn_args &a, const lane_rows &r,
                                                  const Q &q, stage<C, DIM> *s, uint32_t first,
                                                  float (&x)[KEYS / 8][4])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t q0[4], q1[4], k[4];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0.0f;
#pragma unroll
    for (int j = 0; j < DIM / 32; j++) {
        q.get(2 * j, q0), q.get(2 * j + 1, q1);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            C::keys8(s->k, 8 * n + g, j, t, k);
            C::Mma::mma(x[n], q0, k[0], k[1]);
            C::Mma::mma(x[n], q1, k[2], k[3]);
        }
    }
    if constexpr (DIM % 32 != 0) {
        q.get(DIM / 16 - 1, q0);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            C::keys4(s->k, 8 * n + g, DIM / 32, t, k);
            C::Mma::mma(x[n], q0, k[0], k[1]);
        }
    }
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint32_t in_step = 8 * n + 2 * t + c % 2, key = first + in_step, i = c / 2;
            const bool seen = key >= r.lo[i] && key < r.hi[i];
            if constexpr (C::SCALED)
                x[n][c] *= s->k_scale[in_step];
            x[n][c] = seen ? score(a, x[n][c], r.head[i], key, r.hi[i] - 1, EXP_LOG2E) : -INFINITY;
        }
}

/* Converts scores to weights, and rescales the earlier sums to the new maximum. */
template <int DIMS>
static __device__ __forceinline__ void weigh_step(float (&x)[KEYS / 8][4], chain<DIMS> &h)
{
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
        for (int d = 0; d < DIMS / 8; d++)
            h.o[d][2 * i] *= old, h.o[d][2 * i + 1] *= old;
    }
}

/* A masked key has weight 0, whatever its scale is. */
static __device__ __forceinline__ float scaled(float weight, float scale)
{
    return weight == 0.0f ? 0.0f : weight * scale;
}

/* Adds 32 keys to the chain, which has the values' dimensions from `part` on. */
template <typename C, int DIM, int DIMS, typename Q>
static __device__ __forceinline__ void attend_step(const attn_args &a, const lane_rows &r,
                                                   const Q &q, stage<C, DIM> *s, uint32_t first,
                                                   uint32_t part, chain<DIMS> &h)
{
    const uint32_t t = threadIdx.x % 4;
    float x[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    score_step<C, DIM>(a, r, q, s, first, x);
    weigh_step<DIMS>(x, h);
    if constexpr (C::SCALED) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                x[n][c] = scaled(x[n][c], s->v_scale[8 * n + 2 * t + c % 2]);
    }
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float *pair = &x[2 * j + c / 2][c % 2 * 2];
            p[j][c] = C::Mma::pack(pair[0], pair[1]);
        }
    C::template values<DIMS>(h.o, p, s->v, part);
}

/* Adds the partial sums of the four lanes of a row. */
template <int DIMS> static __device__ __forceinline__ void fold_sums(chain<DIMS> &h)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        h.sum[i] += __shfl_xor_sync(~0u, h.sum[i], 1);
        h.sum[i] += __shfl_xor_sync(~0u, h.sum[i], 2);
    }
}

/* ---------------------------------------------------------------- split */

/* This warp's segment; stores its partial results for merge_segments(). */
template <typename C, int DIM>
static __device__ __forceinline__ void split_segment(const attn_args &a, const tile_rows &t,
                                                     uint32_t segment)
{
    typedef plan<C, DIM> P;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned char *mine =
        dynamic_shared<unsigned char>() + warp * (P::SPLIT_BYTES / P::SPLIT_WARPS);
    stage<C, DIM> *ring = (stage<C, DIM> *)mine;
    const lane_rows r = lane_of(a, t, 0);
    uint32_t begin = segment * SEGMENT, end = begin + SEGMENT < r.end ? begin + SEGMENT : r.end;
    if (begin < r.first)
        begin = r.first / KEYS * KEYS;
    if (begin >= end) /* the whole warp */
        return;
    queries<C, DIM, P::LARGE> q;
    if constexpr (P::LARGE)
        q.at = (uint4 *)(ring + SPLIT_STAGES);
    q.fill(a, t, 0);
    chain<DIM> h;
    h.reset();
    load_stage<C, DIM>(a, t, &ring[0], begin, lane, 32);
    copy_commit();
    for (uint32_t key = begin, at = 0; key < end; key += KEYS, at ^= 1) {
        if (key + KEYS < end)
            load_stage<C, DIM>(a, t, &ring[at ^ 1], key + KEYS, lane, 32);
        copy_commit();
        copy_wait<1>();
        __syncwarp();
        attend_step<C, DIM, DIM>(a, r, q, &ring[at], key, 0, h);
        __syncwarp(); /* all have read the stage */
    }
    fold_sums<DIM>(h);
    const size_t part = ((size_t)blockIdx.y * a.n_kv_heads + blockIdx.x) * a.segments + segment;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        C::template put<DIM>(a.part_o + (part * a.rows + row) * DIM, h.o, i, 1.0f);
        if (lane % 4 == 0)
            *(float2 *)(a.part_ml + (part * a.rows + row) * 2) = make_float2(h.max[i], h.sum[i]);
    }
}

/* grid: (kv heads, tiles, segments / SPLIT_WARPS). With tickets, one for each tile and K/V head,
 * the last block merges the segments; never for 8-bit caches. */
template <typename C, int DIM>
static __global__ void __launch_bounds__(plan<C, DIM>::SPLIT_WARPS * 32)
    attn_split_kernel(attn_args a)
{
    typedef plan<C, DIM> P;
    depend();
    split_segment<C, DIM>(a, rows_of(a, blockIdx.y, blockIdx.x),
                          blockIdx.z * P::SPLIT_WARPS + threadIdx.x / 32);
    if constexpr (!C::SCALED) { /* otherwise registers do not suffice */
        uint32_t *word = (uint32_t *)(dynamic_shared<unsigned char>() + P::SPLIT_BYTES);
        if (!a.tickets ||
            !last_block(a.tickets + blockIdx.y * a.n_kv_heads + blockIdx.x, gridDim.z, word))
            return;
        const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x);
        for (uint32_t i = threadIdx.x; i < t.n * (DIM / 4); i += P::SPLIT_WARPS * 32)
            merge_segments(a, t, blockIdx.y, i / (DIM / 4), i % (DIM / 4) * 4);
    }
}

/* ---------------------------------------------------------------- shared */

template <int DIMS>
static __device__ __forceinline__ void merge_chain(chain<DIMS> &all, chain<DIMS> &segment)
{
    fold_sums<DIMS>(segment);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const merge_weights w = merge(all.max[i], segment.max[i]);
#pragma unroll
        for (int d = 0; d < DIMS / 8; d++)
#pragma unroll
            for (int c = 2 * i; c < 2 * i + 2; c++)
                all.o[d][c] = fmaf(segment.o[d][c], w.fresh, all.o[d][c] * w.old);
        all.sum[i] = fmaf(segment.sum[i], w.fresh, all.sum[i] * w.old);
        all.max[i] = w.max;
    }
    segment.reset();
}

/* grid: (kv heads, tiles) */
template <typename C, int DIM>
static __global__ void __launch_bounds__(plan<C, DIM>::THREADS, plan<C, DIM>::BLOCKS)
    attn_shared_kernel(attn_args a)
{
    typedef plan<C, DIM> P;
    depend();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t group = warp / P::PARTS, warp_row = group * TILE_Q;
    const uint32_t part = warp % P::PARTS * P::PART;
    stage<C, DIM> *ring = dynamic_shared<stage<C, DIM>>();
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x);
    const lane_rows r = lane_of(a, t, warp_row);
    const uint32_t begin = first_key(a, t.pos(0)) / KEYS * KEYS, end = t.pos(t.n - 1) + 1;
    queries<C, DIM, P::LARGE> q;
    if constexpr (P::LARGE)
        q.at = (uint4 *)(ring + P::STAGES) + group * (P::QUERIES / 16);
    if (part == 0) /* other warps read it after the first barrier */
        q.fill(a, t, warp_row);
    chain<P::PART> all, h;
    all.reset(), h.reset();
    for (int i = 0; i < P::STAGES - 1; i++) {
        if (begin + i * KEYS < end)
            load_stage<C, DIM>(a, t, &ring[i], begin + i * KEYS, threadIdx.x, P::THREADS);
        copy_commit();
    }
    int at = 0;
    for (uint32_t key = begin; key < end; key += KEYS) {
        copy_wait<P::STAGES - 2>();
        __syncthreads(); /* the stage is complete, and no warp reads the one that is filled next */
        const uint32_t next = key + (P::STAGES - 1) * KEYS;
        if (next < end)
            load_stage<C, DIM>(a, t, &ring[(at + P::STAGES - 1) % P::STAGES], next, threadIdx.x,
                               P::THREADS);
        copy_commit();
        if (key % SEGMENT == 0 && key != begin)
            merge_chain<P::PART>(all, h);
        /* else no row of the warp attends to any of them */
        if (key < r.end && key + KEYS > r.first)
            attend_step<C, DIM, P::PART>(a, r, q, &ring[at], key, part, h);
        at = (at + 1) % P::STAGES;
    }
    merge_chain<P::PART>(all, h);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = warp_row + lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        float *o = a.o + ((size_t)(t.span.first + t.token(row)) * a.n_heads + t.head(row)) * DIM;
        C::template put<P::PART>(o + part, all.o, i,
                                 row_factor(a, t.head(row), all.max[i], all.sum[i]));
    }
}

/* ---------------------------------------------------------------- launching */

template <typename C, int DIM>
static cudaError_t start_dim(const struct launch *l, const attn_args *a, bool split)
{
    typedef plan<C, DIM> P;
    if (split)
        return launch(
            attn_split_kernel<C, DIM>,
            dim3(a->n_kv_heads, a->n_tiles, (a->segments + P::SPLIT_WARPS - 1) / P::SPLIT_WARPS),
            P::SPLIT_WARPS * 32, P::SPLIT_BYTES + sizeof(uint4), l->stream, l->overlap, *a);
    return launch(attn_shared_kernel<C, DIM>, dim3(a->n_kv_heads, a->n_tiles), P::THREADS,
                  P::SHARED_BYTES, l->stream, l->overlap, *a);
}

template <typename C>
static cudaError_t start(const struct launch *l, const attn_args *a, bool split)
{
    switch (a->head_dim) {
#define X(dim)                                                                                     \
    case dim:                                                                                      \
        return start_dim<C, dim>(l, a, split);
        ATTN_MMA_DIMS(X)
#undef X
    default:
        return cudaErrorInvalidValue;
    }
}
#endif
