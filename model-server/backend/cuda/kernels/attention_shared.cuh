/* attention_shared.cuh - prefill attention by mma.sync: the warps of 4 times 16 rows walk all
 * segments of the tile together.
 *
 * Pieces of 32 keys go through a ring in shared memory: the up to four of K of a segment, then
 * those of V. The numbers of a segment's 128 keys, its sums and those of all segments before it are
 * in registers; q's fragments are in shared memory. Beyond 128 dimensions two warps have the same
 * rows: both take the scores, each half of the values. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_SHARED_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_SHARED_CUH
#include "model-server/backend/cuda/kernels/attention_mma.cuh"

enum { ROW_GROUPS = MMA_ROWS / TILE_Q };

/* Scales of two segments, which alternate. */
template <bool> struct shared_scales {
    float k[2][SEGMENT], v[2][SEGMENT];
};
template <> struct shared_scales<false> {
};
/* Parameters of a head dimension. */
template <typename C, int DIM> struct plan {
    enum {
        LARGE = DIM > 128,
        PARTS = LARGE ? 2 : 1, /* warps with the same rows */
        PART = DIM / PARTS,    /* dimensions of the values of each */
        RING = LARGE ? 4 : 6,
        THREADS = ROW_GROUPS * PARTS * 32,
        BLOCKS = LARGE ? 1 : 2, /* on a multiprocessor at least; 255 registers a thread */
    };
    static_assert(PART % 16 == 0, "");
};
template <typename C, int DIM> struct shared_memory {
    typedef tile<DIM * C::BITS / 8> piece;
    piece ring[plan<C, DIM>::RING];
    uint4 q[ROW_GROUPS][DIM / 16 * 32];
    alignas(16) shared_scales<C::SCALED> scales;
};

/* The pieces of a tile with keys [begin, end) in the order of the ring. */
struct piece_walk {
    uint32_t begin, end, base;
    uint32_t piece, values; /* of the segment; of V */
    __device__ __forceinline__ piece_walk(uint32_t b, uint32_t e)
        : begin(b), end(e), base(b / SEGMENT * SEGMENT), piece(0), values(0)
    {
        piece = first();
    }
    __device__ __forceinline__ uint32_t first(void) const
    {
        return begin > base ? (begin - base) / KEYS : 0;
    }
    __device__ __forceinline__ uint32_t last(void) const
    {
        const uint32_t n = (end - base + KEYS - 1) / KEYS;
        return n < PIECES ? n : PIECES;
    }
    __device__ __forceinline__ bool over(void) const { return base >= end; }
    __device__ __forceinline__ void next(void)
    {
        if (++piece < last())
            return;
        base += values ? SEGMENT : 0, values ^= 1;
        piece = first();
    }
};

/* Starts copying the walk's piece, if any, and with keys all scales; keys before the tile's first
 * and after its last become zeros, because the cache may contain anything there. */
template <typename C, int DIM>
static __device__ __forceinline__ void load_piece(const attn_args &a, const tile_rows &t,
                                                  const piece_walk &w, shared_memory<C, DIM> *m,
                                                  uint32_t at)
{
    enum { ROW = DIM * C::BITS / 8, CHUNKS = ROW / 16, THREADS = plan<C, DIM>::THREADS };
    if (w.over())
        return;
    const uint32_t *table = a.tables + t.span.table;
    const char *stream = w.values ? a.kv.v : a.kv.k;
    const uint32_t first = w.base + w.piece * KEYS;
    for (uint32_t i = threadIdx.x; i < KEYS * CHUNKS; i += THREADS) {
        const uint32_t key = i / CHUNKS, c = i % CHUNKS;
        const bool valid = first + key >= w.begin && first + key < w.end;
        const key_place p = valid ? key_at(a, table, t.kv_head, first + key) : key_place{};
        copy_async(m->ring[at].chunk(key, c), stream + p.block + p.row * ROW + 16 * c, valid);
    }
    if constexpr (C::SCALED)
        for (uint32_t key = SCALES_AT_ONCE * threadIdx.x; key < KEYS && !w.values;
             key += SCALES_AT_ONCE * THREADS) {
            const bool valid = first + key + SCALES_AT_ONCE > w.begin && first + key < w.end;
            const key_place p = valid ? key_at(a, table, t.kv_head, first + key) : key_place{};
            const size_t from = p.block + a.kv.scales + p.row * sizeof(float);
            const uint32_t slot = first / SEGMENT % 2, to = (first + key) % SEGMENT;
            copy_async(m->scales.k[slot] + to, a.kv.k + from, valid);
            copy_async(m->scales.v[slot] + to, a.kv.v + from, valid);
        }
}

/* The ring, and the walk of what is copied. */
template <typename C, int DIM> struct piece_ring {
    enum { RING = plan<C, DIM>::RING };
    shared_memory<C, DIM> *m;
    piece_walk ahead;
    uint32_t now;
    __device__ __forceinline__ piece_ring(const attn_args &a, const tile_rows &t,
                                          shared_memory<C, DIM> *memory, uint32_t begin,
                                          uint32_t end)
        : m(memory), ahead(begin, end), now(0)
    {
        for (uint32_t i = 0; i < RING - 1; i++) {
            load_piece<C, DIM>(a, t, ahead, m, i);
            copy_commit();
            ahead.next();
        }
    }
    /* The next piece; the one before it is no longer read. All threads. */
    __device__ __forceinline__ typename shared_memory<C, DIM>::piece &next(const attn_args &a,
                                                                           const tile_rows &t)
    {
        copy_wait<RING - 2>();
        __syncthreads(); /* it is complete, and no warp reads the one that is filled next */
        load_piece<C, DIM>(a, t, ahead, m, now == 0 ? RING - 1 : now - 1);
        copy_commit();
        ahead.next();
        const uint32_t at = now;
        now = now + 1 == RING ? 0 : now + 1;
        return m->ring[at];
    }
};

/* ---------------------------------------------------------------- a segment */

/* Sums of the segments so far. o: fragments of 16 x 8 in the layout of the cache's type. */
template <int DIMS> struct row_sums {
    float o[DIMS / 8][4], max[2], sum[2];
    __device__ __forceinline__ void reset(void)
    {
#pragma unroll
        for (int i = 0; i < DIMS / 8 * 4; i++)
            o[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
            max[i] = -INFINITY, sum[i] = 0.0f;
    }
};

/* The numbers of the segment of the walk `w`. */
template <typename C, int DIM>
static __device__ __forceinline__ void
score_segment(const attn_args &a, const score_form &form, const tile_rows &t, const lane_rows &r,
              const shared_queries<C, DIM> &q, piece_ring<C, DIM> *ring, const piece_walk &w,
              float (&x)[SEGMENT / 8][4])
{
#pragma unroll
    for (uint32_t c = 0; c < PIECES; c++) {
        const uint32_t first = w.base + c * KEYS;
        float(*now)[4] = x + c * (KEYS / 8);
        const float *k_scale = NULL;
        no_piece(now);
        if (c < w.first() || c >= w.last())
            continue;
        auto &k = ring->next(a, t);
        if constexpr (C::SCALED)
            k_scale = ring->m->scales.k[w.base / SEGMENT % 2] + c * KEYS;
        if (first < r.end && first + KEYS > r.first)
            score_piece<C, DIM>(a, form, r, q, k, k_scale, first, now);
    }
}

/* Adds the segment of the walk `w`, which ends after it, to the sums. */
template <typename C, int DIM, int DIMS>
static __device__ __forceinline__ void
attend_segment(const attn_args &a, const tile_rows &t, const lane_rows &r,
               const shared_queries<C, DIM> &q, piece_ring<C, DIM> *ring, const piece_walk &w,
               uint32_t part, row_sums<DIMS> &all)
{
    const score_form form(a);
    float x[SEGMENT / 8][4], max[2], sum[2];
    score_segment<C, DIM>(a, form, t, r, q, ring, w, x);
    weigh_rows(form, x, max, sum);
    uint32_t p[SEGMENT / 16][4];
#pragma unroll
    for (int j = 0; j < SEGMENT / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = 2 * j + i / 2;
            const float *v_scale = NULL;
            if constexpr (C::SCALED)
                v_scale = ring->m->scales.v[w.base / SEGMENT % 2];
            p[j][i] = pack_weights<C>(x[n], i % 2, v_scale, n);
        }
    float o[DIMS / 8][4] = {};
#pragma unroll
    for (uint32_t c = 0; c < PIECES; c++) {
        const uint32_t first = w.base + c * KEYS;
        if (c < w.first() || c >= w.last())
            continue;
        auto &v = ring->next(a, t);
        if (first < r.end && first + KEYS > r.first)
            C::template values<DIMS>(o, &p[c * (KEYS / 16)], v, part);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const merge_weights m = merge(all.max[i], max[i]);
#pragma unroll
        for (int d = 0; d < DIMS / 8; d++)
#pragma unroll
            for (int c = 2 * i; c < 2 * i + 2; c++)
                all.o[d][c] = fmaf(o[d][c], m.fresh, all.o[d][c] * m.old);
        all.sum[i] = fmaf(sum[i], m.fresh, all.sum[i] * m.old);
        all.max[i] = m.max;
    }
}

/* grid: (kv heads, tiles, halves of a tile) */
template <typename C, int DIM>
static __global__ void __launch_bounds__(plan<C, DIM>::THREADS, plan<C, DIM>::BLOCKS)
    attn_shared_kernel(attn_args a)
{
    typedef plan<C, DIM> P;
    depend();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t group = warp / P::PARTS, warp_row = group * TILE_Q;
    const uint32_t part = warp % P::PARTS * P::PART;
    tile_rows t = rows_of(a, blockIdx.y, blockIdx.x, blockIdx.z * MMA_ROWS);
    t.n = t.n < MMA_ROWS ? t.n : MMA_ROWS;
    if (!t.n)
        return;
    const lane_rows r = lane_of(a, t, warp_row);
    const key_range keys = t.all_keys(a, 0, t.n).some;
    shared_memory<C, DIM> *m = dynamic_shared<shared_memory<C, DIM>>();
    const shared_queries<C, DIM> q = {m->q[group]};
    piece_ring<C, DIM> ring(a, t, m, keys.begin, keys.end);
    if (part == 0) /* other warps read it after the first barrier */
        q.fill(a, t, warp_row);
    row_sums<P::PART> all;
    all.reset();
    piece_walk w(keys.begin, keys.end);
    for (; !w.over(); w.base += SEGMENT)
        attend_segment<C, DIM, P::PART>(a, t, r, q, &ring, w, part, all);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = warp_row + lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        const float factor = row_factor(a, t.head(row), all.max[i], all.sum[i]);
        C::template pairs<P::PART>(all.o, i, [&](uint32_t dim, float lo, float hi) {
            store_result(a, t, row, part + dim, lo * factor, hi * factor);
        });
    }
}
#endif
