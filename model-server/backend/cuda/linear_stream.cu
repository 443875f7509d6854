/* linear_stream.cu - products of few rows, on tensor cores: a decode step, bound by reading the
 * weights once; with what comes before and after them, so that it needs no launch of its own.
 *
 * The weights are the M operand: a tile has 16 outputs, the 8 warps of its block one slice of k
 * each (see linear_mma.cuh), 8 or 16 rows of x are the N operand. Weights go from global memory to
 * registers and no further: lane (g, t) reads 16 bytes of rows g and g + 8, 64 bytes of a row by
 * four lanes, which are its fragments once x is read at the same columns; quantised ones are
 * widened there (5 to 9 instructions for 4 weights of 8 bits, 5 or 6 of 4 bits). AHEAD such loads
 * of each row are in flight all the time, the first of them issued before the wait for the
 * preceding kernel, since weights do not depend on it. For 2 blocks of 8 warps a multiprocessor
 * that is 64 KiB in flight; 26 KiB are needed by Little's law on an H200 (4.3 TB/s, 0.8 us). Two
 * blocks a multiprocessor stay for the whole product: a tile's first loads are issued while the
 * last steps of the tile before are multiplied, and what comes before the product is done once by
 * each.
 *
 *   before  x is the norm of something: every block takes the norm for itself, into shared memory
 * and rounded as the product has it (stream_x.cuh).
 *   after   a row's sum goes to the residual
 * stream; or a tile has 8 outputs of a gate and the 8 that they gate; or the last block of a head
 * of q, k or v rotates it and writes the cache.
 *
 * Each has the bits of the operation by itself. Shared memory: 2 x 4 (8) KiB for the sum of slices,
 * a few rows of x. Written after: calm (zeux) and Megakernels (Hazy Research) for the streaming and
 * the fusions, MARLIN for weights as M and for widening integers by way of a constant's mantissa.
 */
#include "model-server/backend/cuda/heads.cuh"
#include "model-server/backend/cuda/last_block.cuh"
#include "model-server/backend/cuda/stream_x.cuh"

enum { THREADS = SLICES * 32, OUTS = STREAM_OUTS };
static_assert((int)THREADS == (int)NORM_THREADS, "a block takes norms");

/* A lane's weights of a step: rows g and g + 8, and their scales if there are groups. */
struct step_weights {
    uint4 row[2];
    uint2 scales[2], offsets[2];
};

/* ---------------------------------------------------------------- tiles */

/* With a gate: outputs of each half. */
static __host__ __device__ __forceinline__ uint32_t outputs(const linear_args &a)
{
    return a.gate ? a.w.rows / 2 : a.w.rows;
}
static __host__ __device__ __forceinline__ uint32_t tile_outs(const linear_args &a)
{
    return a.gate ? OUTS / 2 : OUTS;
}
static __host__ __device__ __forceinline__ uint32_t tiles_of(const linear_args &a)
{
    return (outputs(a) + tile_outs(a) - 1) / tile_outs(a);
}

/* Row g + 8 i of a tile as a row of W. Past the end the last row is repeated, and its results are
 * not used. */
static __device__ __forceinline__ uint32_t weight_row(const linear_args &a, uint32_t tile,
                                                      uint32_t g, uint32_t i)
{
    const uint32_t out = a.gate ? tile * 8 + g : tile * OUTS + g + 8 * i, n = outputs(a);
    return (out < n ? out : n - 1) + (a.gate ? i * n : 0);
}

/* Offsets of this lane's rows of a tile: of W in units of 16 bytes, of the scales of 8, so that
 * 32 bits suffice. */
struct tile_place {
    uint32_t row[2], scales[2];
};
template <class F>
static __device__ __forceinline__ tile_place place_of(const linear_args &a, uint32_t tile)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    tile_place p;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = weight_row(a, tile, g, i);
        p.row[i] = row * (uint32_t)(row_bytes(a.w.cols, DT_F16, F::QUANT) / 16) + t;
        p.scales[i] = F::GROUPED ? (uint32_t)(group_at(row, 0, a.w.cols, F::QUANT) / 4) : 0;
    }
    return p;
}

template <class F>
static __device__ __forceinline__ void load_step(step_weights *to, const linear_args &a,
                                                 const char *w, const tile_place &p, uint32_t step)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        to->row[i] = load_streaming(w + (size_t)(p.row[i] + 4 * step) * 16);
        if constexpr (F::GROUPED) {
            const char *s = w + scales_at(a.w.rows, a.w.cols, F::QUANT) +
                            (size_t)(p.scales[i] + 16 * step) * 8;
            to->scales[i] = load_streaming8(s);
            if (F::OFFSETS && a.w.offsets)
                to->offsets[i] = load_streaming8(s + groups_bytes(a.w.rows, a.w.cols, F::QUANT));
        }
    }
}

/* The steps of this warp's slice. */
template <class F> static __device__ uint32_t first_step(const linear_args &a, uint32_t slice)
{
    return slice_begin(a.w.cols, slice, F::QUANT) / F::STEP;
}

template <class F>
static __device__ void stream_start(const linear_args &a, const char *w, tile_place *here,
                                    step_weights (&ahead)[F::AHEAD])
{
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t begin = first_step<F>(a, warp), end = first_step<F>(a, warp + 1);
    *here = place_of<F>(a, blockIdx.x);
#pragma unroll
    for (int s = 0; s < F::AHEAD; s++)
        if (begin + s < end)
            load_step<F>(&ahead[s], a, w, *here, begin + s);
}

/* This warp's slice of a tile for 8 * TILES rows; `x` provides the lane's fragments. Step begin +
 * i is in ahead[i % AHEAD]. After its use the slot is refilled with the step that follows AHEAD
 * later. From step `turn` on the slots get the first steps of tile `next`, which becomes
 * *here. */
template <class F, int TILES, class X>
static __device__ __forceinline__ void
stream_slice(const linear_args &a, const char *w, const X (&x)[TILES], tile_place *here,
             uint32_t next, step_weights (&ahead)[F::AHEAD], typename F::T::sum (&acc)[TILES][4])
{
    /* otherwise registers do not suffice */
    enum { UNROLL = F::GROUPED && TILES > 1 ? 1 : F::OFFSETS ? 2 : F::PARTS };
    const uint32_t warp = threadIdx.x / 32, t = threadIdx.x % 4;
    const uint32_t begin = first_step<F>(a, warp), end = first_step<F>(a, warp + 1);
    const bool more = next < tiles_of(a);
    const uint32_t turn = end - begin > F::AHEAD ? end - F::AHEAD : begin;
    for (uint32_t at = begin; at < end; at += F::AHEAD) {
#pragma unroll
        for (int s = 0; s < F::AHEAD; s++) {
            if (at + s >= end)
                break;
            const step_weights &now = ahead[s];
#pragma unroll UNROLL
            for (int p = 0; p < F::PARTS; p++) {
                const uint4 w0 = F::widen(a.w, now.row[0], p), w1 = F::widen(a.w, now.row[1], p);
                part_scales<F> rows[2];
                if constexpr (F::GROUPED)
                    rows[0].take(now.scales[0], now.offsets[0], p),
                        rows[1].take(now.scales[1], now.offsets[1], p);
                /* a lane's columns of a part: 16 bytes of x as it is multiplied */
                uint32_t k = (at + s) * F::STEP + p * (64 / F::T::BYTES) + t * (16 / F::T::BYTES);
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    const uint4 fragment = x[i].at(k, a.w.cols);
                    part_sums<F> sums;
                    sums.take(a.w, fragment);
                    multiply_part<F>(acc[i], w0, w1, fragment, rows, sums);
                }
            }
            /* After the products: if the old and the new contents were live together, the
             * compiler would copy the new ones at once, and the warp would wait for the load that
             * it has just issued. */
            if (at + s == turn && more)
                *here = place_of<F>(a, next);
            if (at + s < turn || more)
                load_step<F>(&ahead[s], a, w, *here, at + s < turn ? at + s + F::AHEAD : begin + s);
        }
    }
}

/* ---------------------------------------------------------------- results */

/* Output `out` of row `row` of a tile, its slices added. */
template <class F, int TILES>
static __device__ __forceinline__ float
total(const stream_args &s, const char *w, const stream_rows &rows, const typename F::T::sum *sums,
      uint32_t tile, uint32_t row, uint32_t out)
{
    typename F::T::sum sum = 0;
    for (int i = 0; i < SLICES; i++)
        sum += sums[i * OUTS * 8 * TILES + row * OUTS + out];
    return finish<F>(s.l, sum, w, rows.x(s.l, row), weight_row(s.l, tile, out % 8, out / 8));
}

template <class F, int TILES>
static __device__ void store_tile(const stream_args &s, const char *w, const stream_rows &rows,
                                  const typename F::T::sum *sums, uint32_t tile)
{
    const uint32_t outs = tile_outs(s.l), n = outputs(s.l);
    for (uint32_t i = threadIdx.x; i < outs * 8 * TILES; i += THREADS) {
        const uint32_t row = i / outs, out = tile * outs + i % outs;
        if (!rows.has(row) || out >= n)
            continue;
        float y = total<F, TILES>(s, w, rows, sums, tile, row, i % outs);
        const size_t at = rows.y(row) * n + out;
        if (s.l.gate)
            y = math_gate(y, total<F, TILES>(s, w, rows, sums, tile, row, i % outs + 8),
                          (enum act)s.l.act);
        if (s.sum)
            s.sum[at] = fmaf(s.scale, y, s.sum[at]);
        else
            s.l.y[at] = y;
    }
}

/* The last of the blocks with tiles of a head finishes it. */
static __device__ void head_of_tile(const stream_args &s, uint32_t tile, uint32_t *word)
{
    const uint32_t head = tile * OUTS / s.rope.head_dim;
    if (!last_block(s.tickets + head, s.rope.head_dim / OUTS, word))
        return;
    for (uint32_t row = threadIdx.x / 32; row < s.l.rows; row += THREADS / 32)
        finish_head(s.rope, row, head, threadIdx.x % 32);
}

/* Prefetches what the next product reads first, when this product's block has nothing more to
 * read: of this block's tile, the beginning of each row of this warp's slice. A warp issues the
 * prefetches one after the other. */
static __device__ void fetch_next(const next_weights &n)
{
    const uint32_t i = threadIdx.x % 32, slice = threadIdx.x / 32, tile = blockIdx.x;
    const uint32_t outs = n.gate ? n.rows / 2 : n.rows;
    const uint32_t out = n.gate ? tile * (OUTS / 2) + i % 8 : tile * OUTS + i;
    if (!n.bytes || i >= OUTS || out >= outs)
        return;
    const uint32_t begin = (uint32_t)row_bytes(slice_begin(n.cols, slice, n.quant), DT_F16, n.quant);
    const uint32_t end =
        (uint32_t)row_bytes(slice_begin(n.cols, slice + 1, n.quant), DT_F16, n.quant);
    const size_t row = out + (n.gate ? i / 8 * outs : 0);
    const uint32_t most = end - begin, bytes = n.bytes < most ? n.bytes : most;
    if (bytes)
        prefetch_l2((const char *)n.data + row * row_bytes(n.cols, DT_F16, n.quant) + begin, bytes);
}

/* The tiles of this block. Shared memory: two alternating sets of sums, so that one barrier per
 * tile suffices. */
template <class F, int TILES, class X>
static __device__ void stream_tiles(const stream_args &s, const char *w, const stream_rows &rows,
                                    const X (&x)[TILES], tile_place here,
                                    step_weights (&ahead)[F::AHEAD], typename F::T::sum *sums)
{
    typedef typename F::T::sum SUM;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t set = SLICES * OUTS * 8 * TILES;
    uint32_t turn = 0;
    for (uint32_t tile = blockIdx.x; tile < tiles_of(s.l); tile += gridDim.x, turn ^= 1) {
        SUM acc[TILES][4] = {};
        stream_slice<F, TILES>(s.l, w, x, &here, tile + gridDim.x, ahead, acc);
        if (tile + gridDim.x >= tiles_of(s.l))
            fetch_next(s.next);
        SUM *now = sums + turn * set, *mine = now + warp * OUTS * 8 * TILES;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) /* [row][output] */
                mine[(8 * i + 2 * t + c % 2) * OUTS + g + c / 2 * 8] = acc[i][c];
        __syncthreads();
        store_tile<F, TILES>(s, w, rows, now, tile);
        if (s.rope.qkv)
            head_of_tile(s, tile, (uint32_t *)(sums + 2 * set));
    }
}

/* ---------------------------------------------------------------- kernels */

/* After the sums: a word for last_block(), then x. */
template <class F> static __host__ __device__ constexpr size_t sums_bytes(int tiles)
{
    return 2 * SLICES * OUTS * 8 * tiles * sizeof(typename F::T::sum) + 64;
}

/* grid: any number of blocks; up to 8 * TILES rows */
template <class F, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) linear_stream_kernel(stream_args s)
{
    step_weights ahead[F::AHEAD];
    tile_place here;
    const char *w = (const char *)s.l.w.data;
    depend_start();
    stream_start<F>(s.l, w, &here, ahead);
    depend_wait();
    const stream_rows rows{NULL, s.l.rows, 0};
    x_rows<F> x[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++)
        x[i].init(s.l, rows, 8 * i + threadIdx.x % 32 / 4);
    stream_tiles<F, TILES>(s, w, rows, x, here, ahead, dynamic_shared<typename F::T::sum>());
}

/* The same for up to 8 rows in shared memory, or up to NORM_ROWS rows whose norm is computed
 * first. Loads of x from global memory, step by step, would be awaited together with those of the
 * weights. */
template <class F>
static __global__ void __launch_bounds__(THREADS, 2) linear_stream_shared_kernel(stream_args s)
{
    step_weights ahead[F::AHEAD];
    tile_place here;
    const char *w = (const char *)s.l.w.data;
    unsigned char *shared = dynamic_shared<unsigned char>(), *room = shared + sums_bytes<F>(1);
    depend_start();
    stream_start<F>(s.l, w, &here, ahead);
    depend_wait();
    x_shared<F> x[1];
    x[0].init(s.l, room, threadIdx.x % 32 / 4);
    if (s.norm.y) {
        take_norms<F>(s, room, (float *)shared);
        __syncthreads();
    } else {
        take_rows<F>(s.l, room);
    }
    stream_tiles<F, 1>(s, w, stream_rows{NULL, s.l.rows, 0}, x, here, ahead,
                       (typename F::T::sum *)shared);
}

/* grid: (tiles, experts); 8 pairs at a time; after the first time the weights come from the L2
 * cache. */
template <class F>
static __global__ void __launch_bounds__(THREADS, 2) linear_experts_kernel(stream_args s)
{
    step_weights ahead[F::AHEAD];
    tile_place here;
    depend();
    const char *w = (const char *)s.l.table[blockIdx.y];
    const uint32_t first = s.l.begin[blockIdx.y], n = s.l.begin[blockIdx.y + 1] - first;
    for (uint32_t i = 0; i < n; i += 8) {
        const stream_rows rows{s.l.list + first, n, i};
        x_rows<F> x[1];
        x[0].init(s.l, rows, threadIdx.x % 32 / 4);
        stream_start<F>(s.l, w, &here, ahead);
        stream_tiles<F, 1>(s, w, rows, x, here, ahead, dynamic_shared<typename F::T::sum>());
        __syncthreads(); /* the sums have been read */
    }
}

template <class F> static cudaError_t start(const struct launch *l, const stream_args *s)
{
    const linear_args &a = s->l;
    const uint32_t tiles = tiles_of(a), blocks = tiles < a.blocks ? tiles : a.blocks;
    if (a.table)
        return launch(linear_experts_kernel<F>, dim3(tiles, a.experts), THREADS, sums_bytes<F>(1),
                      l->stream, l->overlap, *s);
    if constexpr (F::T::BYTES == 2)
        if (s->norm.y || s->shared_x)
            return launch(linear_stream_shared_kernel<F>, blocks, THREADS,
                          sums_bytes<F>(1) + stream_x_bytes(&a), l->stream, l->overlap, *s);
    if (a.rows <= 8)
        return launch(linear_stream_kernel<F, 1>, blocks, THREADS, sums_bytes<F>(1), l->stream,
                      l->overlap, *s);
    return launch(linear_stream_kernel<F, 2>, blocks, THREADS, sums_bytes<F>(2), l->stream,
                  l->overlap, *s);
}

extern "C" cudaError_t linear_stream_launch(const struct launch *l, const void *args)
{
    const stream_args *s = (const stream_args *)args;
    return with_format(s->l.w, [=](auto f) { return start<decltype(f)>(l, s); });
}
