/* attention_wgmma.cu - prefill attention on Hopper by wgmma, with the bits of attention_shared.cuh:
 * head dimensions 64 and 128, caches in 16 bits.
 *
 * A block has a tile of 128 rows of one K/V head. One warp of the first warpgroup copies the K and
 * V of a segment of 128 keys at a time, a block of the cache by each tensor copy, into two stages.
 * Two warpgroups have 64 rows each: scores of the whole segment with q and K from shared memory,
 * softmax in registers, weighted values with the weights as register operand and V from shared
 * memory. The sums of a segment begin at zero and are merged by one multiply-add each, while the
 * scores of the next one are computed. Softmax of one warpgroup overlaps with products of the
 * other.
 *
 * Full barriers end a phase when the bytes of a segment's K or V have arrived, empty ones when the
 * 8 warps no longer read them. Registers of a thread, for 128 dimensions: 64 scores (then 32
 * weights), 64 sums of the segment and 64 of all before it, of 240. So q is in shared memory.
 *
 * Order of sums: attention.cuh. A score's MMA has 16 dimensions in their order, as in
 * attention_cache.cuh. After FlashAttention-3 (Shah et al. 2024). */
#include "model-server/backend/cuda/kernels/attention_mma.cuh"
#include "model-server/backend/cuda/kernels/hopper.cuh"
#include "model-server/backend/cuda/tensor_map.h"

enum : uint32_t {
    GROUP = 128, /* threads of a warpgroup */
    MATH = SHARED_ROWS / MMA_ROWS,
    THREADS = (MATH + 1) * GROUP,
    STAGES = 2,
    HALF = 64, /* dimensions of a swizzled row */
    COPY_REGISTERS = 24,
    MATH_REGISTERS = 240,
    ALIGN = 1024 /* of swizzled tiles */
};
static_assert((COPY_REGISTERS + MATH * MATH_REGISTERS) * GROUP <= 65536, "a block's registers");

/* Swizzled rows of 128 bytes: 64 dimensions of each key, or row of q, then the next 64. */
template <int DIM> struct wide_memory {
    unsigned char q[MATH][DIM / HALF][MMA_ROWS][2 * HALF];
    unsigned char k[STAGES][DIM / HALF][SEGMENT][2 * HALF],
        v[STAGES][DIM / HALF][SEGMENT][2 * HALF];
    mbarrier k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    __device__ __forceinline__ void init(void)
    {
        for (uint32_t i = 0; i < STAGES; i++) {
            mbarrier_init(&k_full[i], 1), mbarrier_init(&v_full[i], 1);
            mbarrier_init(&k_empty[i], MATH * GROUP / 32);
            mbarrier_init(&v_empty[i], MATH * GROUP / 32);
        }
    }
};

/* A position in the stages: stage `i`, in the phase of this parity. */
struct stage_place {
    uint32_t i = 0, parity = 0;
    __device__ __forceinline__ void next(void)
    {
        if (++i == STAGES)
            i = 0, parity ^= 1;
    }
};

/* ---------------------------------------------------------------- the copying warp */

static __host__ __device__ __forceinline__ uint32_t box_keys(const attn_args &a)
{
    return a.kv.block_size < SEGMENT ? a.kv.block_size : (uint32_t)SEGMENT;
}

/* A lane copies one box: the keys of one block of the cache, 64 dimensions. Blocks without a key of
 * the tile are not read: the row after the last one is none, so the box becomes zeros. */
template <int DIM>
static __device__ __forceinline__ void copy_segments(const attn_args &a, const tile_rows &t,
                                                     const CUtensorMap *k, const CUtensorMap *v,
                                                     wide_memory<DIM> *m)
{
    const key_range keys = t.all_keys(a, 0, t.n).some;
    const uint32_t lane = threadIdx.x, box = box_keys(a), boxes = SEGMENT / box;
    const uint32_t half = lane / boxes, at = lane % boxes * box;
    stage_place p;
    for (uint32_t base = keys.begin / SEGMENT * SEGMENT; base < keys.end; base += SEGMENT) {
        const uint32_t key = base + at;
        uint32_t row = a.kv.rows;
        if (half < DIM / HALF && key < keys.end && key + box > keys.begin) {
            const uint32_t block = a.tables[t.span.table + (key >> a.kv.block_shift)];
            row = (block * a.n_kv_heads + t.kv_head) * a.kv.block_size +
                  (key & (a.kv.block_size - 1));
        }
        mbarrier_wait(&m->k_empty[p.i], p.parity ^ 1);
        if (lane == 0)
            mbarrier_expect(&m->k_full[p.i], sizeof(m->k[0]));
        __syncwarp();
        if (half < DIM / HALF)
            tile_load(m->k[p.i][half][at], k, &m->k_full[p.i], half * HALF, row);
        mbarrier_wait(&m->v_empty[p.i], p.parity ^ 1);
        if (lane == 0)
            mbarrier_expect(&m->v_full[p.i], sizeof(m->v[0]));
        __syncwarp();
        if (half < DIM / HALF)
            tile_load(m->v[p.i][half][at], v, &m->v_full[p.i], half * HALF, row);
        p.next();
    }
}

/* ---------------------------------------------------------------- the multiplying warpgroups */

/* Descriptors of swizzled rows of 128 bytes. Fields: address; distance of 64 columns to the next
 * 64, where columns run fastest (else not used); distance of eight rows to the next eight; the
 * 128-byte swizzle. */
static __device__ __forceinline__ uint64_t rows_tile(const void *rows, uint32_t dimension)
{
    const uint64_t address = shared_address(rows) + 2 * dimension, eight_rows = 8 * 2 * HALF;
    return address >> 4 | 1ull << 16 | eight_rows >> 4 << 32 | 1ull << 62;
}
static __device__ __forceinline__ uint64_t columns_tile(const void *rows, uint32_t first)
{
    const uint64_t address = shared_address(rows) + first * 2 * HALF;
    const uint64_t next_half = SEGMENT * 2 * HALF, eight_rows = 8 * 2 * HALF;
    return address >> 4 | next_half >> 4 << 16 | eight_rows >> 4 << 32 | 1ull << 62;
}

/* The warp no longer reads what the barrier is for. */
static __device__ __forceinline__ void release(mbarrier *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(empty);
}

/* The warpgroup's rows of q, rounded; rows that it does not have are zeros. */
template <typename T, int DIM>
static __device__ __forceinline__ void store_queries(const attn_args &a, const tile_rows &t,
                                                     unsigned char (*q)[MMA_ROWS][2 * HALF])
{
    for (uint32_t i = threadIdx.x % GROUP; i < MMA_ROWS * DIM / 8; i += GROUP) {
        const uint32_t row = i / (DIM / 8), c = i % (DIM / 8);
        const float *src = query_row(a, t, row);
        uint4 v = {};
        if (src) {
            const float4 lo = *(const float4 *)(src + 8 * c),
                         hi = *(const float4 *)(src + 8 * c + 4);
            v = make_uint4(T::pack(lo.x, lo.y), T::pack(lo.z, lo.w), T::pack(hi.x, hi.y),
                           T::pack(hi.z, hi.w));
        }
        *(uint4 *)&q[c / 8][row][(c % 8 ^ row % 8) * 16] = v;
    }
}

/* Values after the sequence's end become zeros, because the cache may contain anything there, and
 * even a weight of 0 would not hide what is not finite. Both warpgroups store the same. */
template <int DIM>
static __device__ __forceinline__ void clear_values(unsigned char (*v)[SEGMENT][2 * HALF],
                                                    uint32_t first)
{
    for (uint32_t i = threadIdx.x % GROUP; i < (SEGMENT - first) * (DIM / 8); i += GROUP) {
        const uint32_t row = first + i / (DIM / 8), c = i % (DIM / 8);
        *(uint4 *)&v[c / 8][row][c % 8 * 16] = make_uint4(0, 0, 0, 0);
    }
}

/* -inf where a row does not attend to a key of the segment. */
static __device__ __forceinline__ void mask(const lane_rows &r, uint32_t base,
                                            float (&x)[SEGMENT / 8][4])
{
#pragma unroll
    for (uint32_t n = 0; n < SEGMENT / 8; n++)
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const uint32_t key = base + 8 * n + threadIdx.x % 4 * 2 + c % 2;
            if (key < r.lo[c / 2] || key >= r.hi[c / 2])
                x[n][c] = -INFINITY;
        }
}

/* A thread's sums of the segments before the last one, and of the last one, which are merged later:
 * all = o * fresh + all * old. */
template <int DIM> struct wide_sums {
    float all[DIM / 8][4], o[DIM / 8][4], max[2], sum[2];
    merge_weights w[2];
    __device__ __forceinline__ void reset(void)
    {
#pragma unroll
        for (int i = 0; i < DIM / 8 * 4; i++)
            all[i / 4][i % 4] = o[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
            max[i] = -INFINITY, sum[i] = 0.0f, w[i] = merge_weights{-INFINITY, 1.0f, 0.0f};
    }
    __device__ __forceinline__ void merge_last(void)
    {
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                all[d][c] = fmaf(o[d][c], w[c / 2].fresh, all[d][c] * w[c / 2].old);
    }
    /* Of the segment whose values are computed next. */
    __device__ __forceinline__ void take(const float (&m)[2], const float (&l)[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            w[i] = merge(max[i], m[i]);
            sum[i] = fmaf(l[i], w[i].fresh, sum[i] * w[i].old);
            max[i] = w[i].max;
        }
    }
};

/* Segment `base` in stage `p`; `written`: one past the last key that the cache has. */
template <typename T, int DIM>
static __device__ __forceinline__ void attend(const attn_args &a, const lane_rows &r, bool masked,
                                              const unsigned char (*q)[MMA_ROWS][2 * HALF],
                                              wide_memory<DIM> *m, const stage_place &p,
                                              uint32_t base, uint32_t written, wide_sums<DIM> &s)
{
    const score_form form(a);
    float x[SEGMENT / 8][4], max[2], sum[2];
    uint32_t w[SEGMENT / 16][4];
    mbarrier_wait(&m->k_full[p.i], p.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < DIM / 16; i++)
        wgmma_tiles(T(), x, rows_tile(q[i / 4], i % 4 * 16),
                    rows_tile(m->k[p.i][i / 4], i % 4 * 16), i > 0);
    wgmma_commit();
    s.merge_last();
    wgmma_wait<0>();
    release(&m->k_empty[p.i]);
    if (masked)
        mask(r, base, x);
    weigh_rows(form, x, max, sum);
    s.take(max, sum);
#pragma unroll
    for (int j = 0; j < SEGMENT / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[j][i] = T::pack(x[2 * j + i / 2][i % 2 * 2], x[2 * j + i / 2][i % 2 * 2 + 1]);
    mbarrier_wait(&m->v_full[p.i], p.parity);
    if (base + SEGMENT > written) {
        clear_values<DIM>(m->v[p.i], written - base);
        async_fence();
        warpgroup_barrier(threadIdx.x / GROUP);
    }
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < SEGMENT / 16; j++)
        wgmma_columns(T(), s.o, w[j], columns_tile(m->v[p.i], 16 * j), j > 0);
    wgmma_commit();
    wgmma_wait<0>();
    release(&m->v_empty[p.i]);
}

template <int DIM>
static __device__ __forceinline__ void store_rows(const attn_args &a, const tile_rows &t,
                                                  uint32_t warp_row, const wide_sums<DIM> &s)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t row = warp_row + lane / 4 + 8 * i;
        if (row >= t.n)
            continue;
        const float factor = row_factor(a, t.head(row), s.max[i], s.sum[i]);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            store_result(a, t, row, 8 * d + lane % 4 * 2, s.all[d][2 * i] * factor,
                         s.all[d][2 * i + 1] * factor);
    }
}

/* All warpgroups of a tile take the same segments: the compiler cannot keep products of different
 * paths under way. A segment to which no row of one attends changes none of its bits. */
template <typename T, int DIM>
static __device__ __forceinline__ void multiply(const attn_args &a, uint32_t tile,
                                                wide_memory<DIM> *m)
{
    const uint32_t group = threadIdx.x / GROUP - 1;
    const uint32_t warp_row = threadIdx.x % GROUP / 32 * TILE_Q;
    const tile_rows both = rows_of(a, tile, blockIdx.x, 0);
    const key_range keys = both.all_keys(a, 0, both.n).some;
    tile_rows t = rows_of(a, tile, blockIdx.x, group * MMA_ROWS);
    t.n = t.n < MMA_ROWS ? t.n : MMA_ROWS;
    const lane_rows r = lane_of(a, t, warp_row);
    const key_range full = t.n ? t.all_keys(a, 0, t.n).all : key_range{0, 0};
    const uint32_t written = keys.end > t.span.kv_len ? keys.end : t.span.kv_len;
    store_queries<T, DIM>(a, t, m->q[group]);
    async_fence();
    warpgroup_barrier(group + 1);
    wide_sums<DIM> s;
    s.reset();
    stage_place p;
    for (uint32_t base = keys.begin / SEGMENT * SEGMENT; base < keys.end; base += SEGMENT) {
        attend<T, DIM>(a, r, base < full.begin || base + SEGMENT > full.end, m->q[group], m, p,
                       base, written, s);
        p.next();
    }
    s.merge_last();
    store_rows<DIM>(a, t, warp_row, s);
}

/* grid: (kv heads, tiles). The last tiles, which have the most keys, begin first. */
template <typename T, int DIM>
static __global__ void __launch_bounds__(THREADS, 1)
    attn_wgmma_kernel(attn_args a, const __grid_constant__ CUtensorMap k,
                      const __grid_constant__ CUtensorMap v)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    wide_memory<DIM> *m = (wide_memory<DIM> *)base;
    const uint32_t tile = gridDim.y - 1 - blockIdx.y;
    if (threadIdx.x == 0) {
        tile_prefetch(&k), tile_prefetch(&v);
        m->init();
        mbarrier_init_fence();
    }
    __syncthreads();
    depend();
    if (threadIdx.x < GROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x < 32)
            copy_segments<DIM>(a, rows_of(a, tile, blockIdx.x, 0), &k, &v, m);
    } else {
        registers_take<MATH_REGISTERS>();
        multiply<T, DIM>(a, tile, m);
    }
}

/* ---------------------------------------------------------------- launching */

template <typename T, int DIM> static cudaError_t start(const struct launch *l, const attn_args *a)
{
    CUtensorMap k, v;
    cudaError_t rc = tensor_map(&k, a->kv.k, DIM, a->kv.rows, HALF, box_keys(*a), true);
    if (rc == cudaSuccess)
        rc = tensor_map(&v, a->kv.v, DIM, a->kv.rows, HALF, box_keys(*a), true);
    if (rc != cudaSuccess)
        return rc;
    return launch(attn_wgmma_kernel<T, DIM>, dim3(a->n_kv_heads, a->n_tiles), THREADS,
                  sizeof(wide_memory<DIM>) + ALIGN, l->stream, l->overlap, *a, k, v);
}

extern "C" cudaError_t attn_wgmma_launch(const struct launch *l, const void *args)
{
    const attn_args *a = (const attn_args *)args;
    const bool f16 = a->kv.dtype == KV_F16;
    if (a->head_dim == 64)
        return f16 ? start<F16, 64>(l, a) : start<Bf16, 64>(l, a);
    return f16 ? start<F16, 128>(l, a) : start<Bf16, 128>(l, a);
}
