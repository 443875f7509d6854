/* attention_split.cuh - decode attention: a block takes segments of one tile of up to 16 rows and
 * one K/V head; the last block of a tile, or attn_merge, adds them.
 *
 * A segment is one step of the block's 4 warps. Keys are dealt out to them for the scores, 32 to
 * each, and dimensions for the values, 16 or 32 at a time; maxima and weights are exchanged through
 * shared memory. All copies of the segment's keys and values are issued at once: 64 KiB for 128
 * dimensions in 16 bits, and three blocks on a multiprocessor of sm_90. Beyond that size values
 * take the place of the keys when their scores are done.
 *
 * Keys and values of earlier steps are loaded before the block waits for the preceding kernel
 * (a.ahead, set if each sequence of the step has one token). Nothing in this step writes them: a
 * step writes only its own positions, which are loaded after the wait. The kernels of earlier steps
 * are complete, and so is the copy of this step's batch record, with the tables and tiles that are
 * read here. Kernels overlap only with kernels of the same step: a step begins with the copy of its
 * record, or with a graph, and either waits for everything before it in the stream (record.c). The
 * first kernel waits for these in the ordinary way, and each following one starts after its
 * predecessor has started. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_SPLIT_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_ATTENTION_SPLIT_CUH
#include "model-server/backend/cuda/kernels/attention_mma.cuh"
#include "model-server/backend/cuda/kernels/last_block.cuh"

enum : uint32_t { SPLIT_WARPS = PIECES, SPLIT_THREADS = SPLIT_WARPS * 32 };

template <bool> struct segment_scales {
    float k_scale[SEGMENT], v_scale[SEGMENT];
};
template <> struct segment_scales<false> {
    float *k_scale, *v_scale; /* not used */
};
template <typename C, int DIM> struct split_memory {
    enum { ROW = DIM * C::BITS / 8, CHUNKS = ROW / 16, APART = ROW <= 256 };
    tile<ROW> k[APART ? 2 * PIECES : PIECES];
    segment_scales<C::SCALED> scales;
    size_t place[SEGMENT]; /* offset of each key's row in K, and in V */
    /* pairs of weights; rows 16 bytes further apart than they are long, without bank conflicts */
    alignas(16) uint32_t p[TILE_Q][SEGMENT / 2 + 4];
    float max[SPLIT_WARPS][TILE_Q], sum[SPLIT_WARPS][TILE_Q][4];
    uint32_t word; /* of last_block() */
    __device__ __forceinline__ tile<ROW> *v(void) { return APART ? k + PIECES : k; }
};

/* Keys of a segment: [lo, hi) are attended to, of which those from `fresh` on are not copied before
 * the wait; the warp's piece begins at `first`. */
struct split_keys {
    uint32_t base, first, lo, hi, fresh;
    __device__ __forceinline__ bool has(uint32_t piece) const
    {
        const uint32_t key = base + piece * KEYS;
        return key < hi && key + KEYS > lo;
    }
};

/* Finds where the keys of the warp's piece are. */
template <typename C, int DIM>
static __device__ __forceinline__ void find_keys(const attn_args &a, const tile_rows &t,
                                                 const split_keys &s, split_memory<C, DIM> *m)
{
    const uint32_t key = s.first + threadIdx.x % 32;
    size_t at = 0;
    if (key >= s.lo && key < s.hi) {
        const key_place p = key_at(a, a.tables + t.span.table, t.kv_head, key);
        at = p.block + p.row * split_memory<C, DIM>::ROW;
    }
    m->place[threadIdx.x] = at;
    __syncwarp();
}

/* Starts copying the warp's 32 rows of K or V; those without a key become zeros, because the cache
 * may contain anything there. Not of keys from s.fresh on. */
template <typename C, int DIM>
static __device__ __forceinline__ void copy_old(const split_keys &s, split_memory<C, DIM> *m,
                                                tile<DIM * C::BITS / 8> *to, const char *stream)
{
    enum { CHUNKS = split_memory<C, DIM>::CHUNKS };
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const uint32_t row = (i * 32 + lane) / CHUNKS, c = (i * 32 + lane) % CHUNKS;
        const uint32_t key = s.first + row;
        if (key < s.fresh || key >= s.hi)
            copy_async(to[warp].chunk(row, c), stream + m->place[warp * KEYS + row] + 16 * c,
                       key >= s.lo && key < s.hi);
    }
}

/* The same of keys from s.fresh on. */
template <typename C, int DIM>
static __device__ __forceinline__ void copy_fresh(const split_keys &s, split_memory<C, DIM> *m,
                                                  tile<DIM * C::BITS / 8> *to, const char *stream)
{
    enum { CHUNKS = split_memory<C, DIM>::CHUNKS };
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t from = s.fresh > s.first ? s.fresh - s.first : 0;
    const uint32_t end = s.hi < s.first + KEYS ? s.hi > s.first ? s.hi - s.first : 0 : KEYS;
    for (uint32_t i = from * CHUNKS + lane; i < end * CHUNKS; i += 32)
        copy_async(to[warp].chunk(i / CHUNKS, i % CHUNKS),
                   stream + m->place[warp * KEYS + i / CHUNKS] + 16 * (i % CHUNKS), true);
}

/* The scales of the warp's keys, SCALES_AT_ONCE for each copy; `fresh`: those of which a key is not
 * of an earlier step, else the others. */
template <typename C, int DIM>
static __device__ __forceinline__ void copy_scales(const attn_args &a, const tile_rows &t,
                                                   const split_keys &s, split_memory<C, DIM> *m,
                                                   bool fresh)
{
    const uint32_t lane = threadIdx.x % 32, key = s.first + lane, end = key + SCALES_AT_ONCE;
    const bool has_fresh = s.fresh < s.hi && end > s.fresh && key < s.hi;
    if (lane % SCALES_AT_ONCE || has_fresh != fresh)
        return;
    const bool valid = end > s.lo && key < s.hi;
    const key_place p = valid ? key_at(a, a.tables + t.span.table, t.kv_head, key) : key_place{};
    const size_t at = p.block + a.kv.scales + p.row * sizeof(float);
    copy_async(m->scales.k_scale + threadIdx.x, a.kv.k + at, valid);
    copy_async(m->scales.v_scale + threadIdx.x, a.kv.v + at, valid);
}

/* Issues the copies of a segment, and waits for the preceding kernel unless `waited`; returns when
 * the warp's keys are there. */
template <typename C, int DIM>
static __device__ __forceinline__ void load_segment(const attn_args &a, const tile_rows &t,
                                                    const split_keys &s, split_memory<C, DIM> *m,
                                                    queries<C, DIM> *q, bool waited)
{
    typedef split_memory<C, DIM> M;
    const bool mine = s.has(threadIdx.x / 32);
    if (mine) {
        find_keys<C, DIM>(a, t, s, m);
        if constexpr (C::SCALED)
            copy_scales<C, DIM>(a, t, s, m, false);
        copy_old<C, DIM>(s, m, m->k, a.kv.k);
    }
    copy_commit();
    if (M::APART && mine)
        copy_old<C, DIM>(s, m, m->v(), a.kv.v);
    copy_commit();
    if (!waited)
        depend_wait();
    const bool fresh = mine && s.fresh < s.hi && s.fresh < s.first + KEYS;
    if (fresh) {
        if constexpr (C::SCALED)
            copy_scales<C, DIM>(a, t, s, m, true);
        copy_fresh<C, DIM>(s, m, m->k, a.kv.k);
    }
    copy_commit();
    if (M::APART && fresh)
        copy_fresh<C, DIM>(s, m, m->v(), a.kv.v);
    copy_commit();
    q->fill(a, t);
    if (fresh)
        copy_wait<1>();
    else
        copy_wait<3>();
    __syncwarp();
}

/* Scores and weights of the warp's keys; leaves the weights in shared memory. */
template <typename C, int DIM>
static __device__ __forceinline__ void weigh_segment(const attn_args &a, const lane_rows &r,
                                                     const split_keys &s, split_memory<C, DIM> *m,
                                                     const queries<C, DIM> &q)
{
    typedef split_memory<C, DIM> M;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const score_form form(a);
    split_keys all = s;
    float x[KEYS / 8][4];
    if (s.has(warp))
        score_piece<C, DIM>(a, form, r, q, m->k[warp], m->scales.k_scale + warp * KEYS, s.first, x);
    else
        no_piece(x);
    if (!M::APART && s.has(warp)) {
        all.fresh = all.hi;
        __syncwarp(); /* all have read the keys */
        copy_old<C, DIM>(all, m, m->v(), a.kv.v);
    }
    copy_commit();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float most = piece_max(x, i);
        if (t == 0)
            m->max[warp][g + 8 * i] = most;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = g + 8 * i;
        float most = m->max[0][row];
#pragma unroll
        for (uint32_t w = 1; w < SPLIT_WARPS; w++)
            most = fmaxf(most, m->max[w][row]);
        m->sum[warp][row][t] = weigh_piece(form, x, i, form.max(most));
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            m->p[row][(warp * KEYS + 8 * n) / 2 + t] =
                pack_weights<C>(x[n], i, m->scales.v_scale + warp * KEYS, n);
    }
}

/* The warp's dimensions of the weighted values, for merge_segments(). */
template <typename C, int DIM>
static __device__ __forceinline__ void sum_segment(const attn_args &a, const tile_rows &t,
                                                   const split_keys &s, split_memory<C, DIM> *m,
                                                   size_t part)
{
    enum : uint32_t { GROUPS = DIM / C::GROUP, MINE = (GROUPS + SPLIT_WARPS - 1) / SPLIT_WARPS };
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float o[MINE][C::GROUP / 8][4] = {};
#pragma unroll
    for (uint32_t piece = 0; piece < PIECES; piece++) {
        if (!s.has(piece))
            continue;
        uint32_t p[KEYS / 16][4];
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
            load_matrix(p[j], &m->p[lane % 16][piece * KEYS / 2 + 8 * j + lane / 16 * 4]);
#pragma unroll
        for (uint32_t i = 0; i < MINE; i++)
            if (warp + SPLIT_WARPS * i < GROUPS) /* opaque: nvcc 13.0 drops a rounding otherwise */
                C::template values<C::GROUP>(o[i], p, m->v()[piece],
                                             C::GROUP * opaque(warp + SPLIT_WARPS * i));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + 8 * half;
        float *to = a.part_o + (part * a.rows + row) * DIM;
#pragma unroll
        for (uint32_t i = 0; i < MINE; i++)
            if (row < t.n && warp + SPLIT_WARPS * i < GROUPS)
                C::template pairs<C::GROUP>(o[i], half, [&](uint32_t dim, float lo, float hi) {
                    *(float2 *)(to + C::GROUP * (warp + SPLIT_WARPS * i) + dim) =
                        make_float2(lo, hi);
                });
    }
    if (threadIdx.x < t.n) {
        const uint32_t row = threadIdx.x;
        float most = m->max[0][row], l[4];
#pragma unroll
        for (uint32_t w = 1; w < SPLIT_WARPS; w++)
            most = fmaxf(most, m->max[w][row]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            l[i] =
                ((m->sum[0][row][i] + m->sum[1][row][i]) + m->sum[2][row][i]) + m->sum[3][row][i];
        *(float2 *)(a.part_ml + (part * a.rows + row) * 2) =
            make_float2(score_form(a).max(most), (l[0] + l[1]) + (l[2] + l[3]));
    }
}

/* grid: (kv heads, tiles, a.walkers). With tickets, one for each tile and K/V head, the last block
 * merges the segments. */
template <typename C, int DIM>
static __global__ void __launch_bounds__(SPLIT_THREADS, DIM <= 128 ? 3 : 1)
    attn_split_kernel(attn_args a)
{
    typedef split_memory<C, DIM> M;
    M *m = dynamic_shared<M>();
    depend_start();
    bool waited = !a.ahead;
    if (waited)
        depend_wait();
    const tile_rows t = rows_of(a, blockIdx.y, blockIdx.x, 0);
    const lane_rows r = lane_of(a, t, 0);
    const size_t part = ((size_t)blockIdx.y * a.n_kv_heads + blockIdx.x) * a.segments;
    for (uint32_t i = r.first / SEGMENT + blockIdx.z; i * SEGMENT < r.end; i += a.walkers) {
        const uint32_t base = i * SEGMENT, end = base + SEGMENT;
        split_keys s = {base, base + threadIdx.x / 32 * KEYS, r.first > base ? r.first : base,
                        r.end < end ? r.end : end, 0};
        const uint32_t old = t.span.kv_len - t.span.n;
        s.fresh = waited || old > s.hi ? s.hi : old;
        queries<C, DIM> q;
        load_segment<C, DIM>(a, t, s, m, &q, waited);
        waited = true;
        weigh_segment<C, DIM>(a, r, s, m, q);
        copy_wait<0>();
        __syncthreads(); /* all weights and values are there */
        sum_segment<C, DIM>(a, t, s, m, part + i);
        __syncthreads(); /* they have been read */
    }
    if (!waited)
        depend_wait();
    if (!a.tickets ||
        !last_block(a.tickets + blockIdx.y * a.n_kv_heads + blockIdx.x, gridDim.z, &m->word))
        return;
    for (uint32_t i = threadIdx.x; i < t.n * (DIM / 4); i += SPLIT_THREADS)
        merge_segments(a, t, blockIdx.y, i / (DIM / 4), i % (DIM / 4) * 4);
}
#endif
