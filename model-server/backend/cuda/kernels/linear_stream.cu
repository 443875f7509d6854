/* linear_stream.cu - products of few rows, on tensor cores: a decode step, bound by reading the
 * weights once; with what comes before and after them, so that it needs no launch of its own.
 *
 * The weights are the M operand: a tile has 16 outputs, the 8 warps of its block one slice of k
 * each (see linear_mma.cuh), 8 or 16 rows of x are the N operand. Weights come through a warp's
 * ring in shared memory (stream_ring.cuh). Lane (g, t) reads 16 bytes of rows g and g + 8 there, 64
 * bytes of a row by four lanes, which are its fragments once x is read at the same columns.
 * Quantised ones are widened on the way (7 to 9 instructions for 4 weights of 8 bits, 5 to 7 of 4
 * bits). The first copies are issued before the wait for the preceding kernel, since weights do not
 * depend on it. 26 KiB in flight are needed by Little's law on an H200 (4.3 TB/s, 0.8 us); a
 * multiprocessor has 48 to 176. Two blocks a multiprocessor stay for the whole product: a tile's
 * first weights are copied while the last steps of the tile before are multiplied, and what comes
 * before the product is done once by each.
 *
 * Before it, x may be the norm of something: every block takes the norm for itself, into shared
 * memory and rounded as the product has it (stream_x.cuh). After it, a row's sum may go to the
 * residual stream; a tile may have 8 outputs of a gate and the 8 that they gate; or the last block
 * of a head of q, k or v rotates it and writes the cache.
 *
 * Each has the bits of the operation by itself. Shared memory: 2 x 4 (8) KiB for the sum of slices,
 * a few rows of x. Written after: calm (zeux) and Megakernels (Hazy Research) for the streaming and
 * the fusions, MARLIN for weights as M and for widening integers by way of a constant's mantissa.
 */
#include "model-server/backend/cuda/kernels/heads.cuh"
#include "model-server/backend/cuda/kernels/last_block.cuh"
#include "model-server/backend/cuda/kernels/narrow.cuh"
#include "model-server/backend/cuda/kernels/stream_slice.cuh"

static_assert((int)THREADS == (int)NORM_THREADS, "a block takes norms");

/* ---------------------------------------------------------------- results */

/* A thread's results of a tile are of one output, or of one and the other that it gates: their
 * terms are loaded before the product. */
template <class F> struct tile_result {
    uint32_t out; /* of the tile */
    output_terms terms[2];

    __device__ __forceinline__ tile_result(const stream_args &s, uint32_t tile)
    {
        out = threadIdx.x % tile_outs(s.l);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (!i || s.l.gate)
                terms[i] = terms_of<F>(s.l, s.l.w.data, output_row(s.l, tile, out + 8 * i));
    }
};

template <class F, int TILES>
static __device__ __forceinline__ void store_tile(const stream_args &s, const stream_rows &rows,
                                                  const tile_result<F> &of,
                                                  const typename F::T::sum *sums, uint32_t tile)
{
    const uint32_t outs = tile_outs(s.l), n = outputs(s.l), out = tile * outs + of.out;
    if (out >= n)
        return;
    for (uint32_t row = threadIdx.x / outs; rows.has(row); row += THREADS / outs) {
        float y = total<F, TILES>(s, of.terms[0], rows, sums, row, of.out);
        const size_t at = rows.y(row) * n + out;
        if (s.l.gate)
            y = math_gate(y, total<F, TILES>(s, of.terms[1], rows, sums, row, of.out + 8),
                          (enum act)s.l.act);
        if (s.sum)
            s.sum[at] = fmaf(s.scale, y, s.sum[at]);
        else if (!s.l.gated.alone)
            s.l.y[at] = y;
        if (s.l.gated.to)
            store_one(s.l.gated, rows.y(row), out, y);
    }
}

/* The last of the blocks with tiles of a head finishes it. */
static __device__ void head_of_tile(const stream_args &s, uint32_t tile, uint32_t *word)
{
    const uint32_t head = tile * OUTS / s.rope.head_dim;
    if (!last_block(s.tickets + head, s.rope.head_dim / OUTS, word))
        return;
    for (uint32_t row = threadIdx.x / 32; row < s.l.rows; row += THREADS / 32)
        finish_head<false>(s.rope, row, head, threadIdx.x % 32);
}

/* The tiles of this block. Shared memory: two alternating sets of sums, so that one barrier per
 * tile suffices. */
template <class F, int TILES, class X>
static __device__ void stream_tiles(const stream_args &s, const stream_rows &rows,
                                    const X (&x)[TILES], weight_ring<F> *ring,
                                    typename F::T::sum *sums)
{
    typedef typename F::T::sum SUM;
    const uint32_t set = SLICES * OUTS * 8 * TILES;
    uint32_t turn = 0;
    for (uint32_t tile = blockIdx.x; tile < tiles_of(s.l); tile += gridDim.x, turn ^= 1) {
        const tile_result<F> of(s, tile);
        SUM acc[TILES][4] = {};
        stream_slice<F, TILES>(s, ring, x, acc);
        SUM *now = sums + turn * set;
        leave_sums<F, TILES>(now, acc);
        __syncthreads();
        store_tile<F, TILES>(s, rows, of, now, tile);
        if (s.rope.qkv)
            head_of_tile(s, tile, (uint32_t *)(sums + 2 * set));
    }
}

/* ---------------------------------------------------------------- kernels */

/* grid: any number of blocks; up to 8 * TILES rows */
template <class F, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) linear_stream_kernel(stream_args s)
{
    weight_ring<F> ring;
    depend_start();
    ring.start(s, tile_walk{blockIdx.x}, ring_room<TILES>());
    depend_wait();
    const stream_rows rows{NULL, s.l.rows, 0};
    x_rows<F> x[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++)
        x[i].init(s.l, rows, 8 * i + threadIdx.x % 32 / 4);
    stream_tiles<F, TILES>(s, rows, x, &ring, dynamic_shared<typename F::T::sum>());
}

/* The same with x in shared memory: its rows, or up to NORM_ROWS rows whose norm is computed
 * first. */
template <class F, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) linear_stream_shared_kernel(stream_args s)
{
    weight_ring<F> ring;
    unsigned char *slots = ring_room<TILES>();
    unsigned char *room = slots + SLICES * s.slots * stream_slot_bytes(F::QUANT);
    depend_start();
    ring.start(s, tile_walk{blockIdx.x}, slots);
    norm_part part;
    if (s.norm.y)
        part.load_weights(s.norm);
    depend_wait();
    x_shared<F> x[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t row = 8 * i + threadIdx.x % 32 / 4;
        x[i].init(s.l, room, row < s.l.rows ? row : 0);
    }
    if (s.norm.y) {
        take_norms<F>(s, &part, room, dynamic_shared<float>());
        __syncthreads();
    } else if (s.l.narrow) {
        take_narrow<F>(s.l, room);
    } else {
        take_rows<F, 4>(s.l, room);
    }
    stream_tiles<F, TILES>(s, stream_rows{NULL, s.l.rows, 0}, x, &ring,
                           dynamic_shared<typename F::T::sum>());
}

template <class F, int TILES>
static cudaError_t start_rows(const struct launch *l, const stream_args *s, uint32_t blocks)
{
    const size_t bytes = stream_shared_bytes(s);
    if constexpr (F::T::BYTES == 2)
        if (s->norm.y || s->shared_x)
            return launch(linear_stream_shared_kernel<F, TILES>, blocks, THREADS, bytes, l->stream,
                          l->overlap, *s);
    return launch(linear_stream_kernel<F, TILES>, blocks, THREADS, bytes, l->stream, l->overlap,
                  *s);
}

template <class F> static cudaError_t start(const struct launch *l, const stream_args *s)
{
    const linear_args &a = s->l;
    const uint32_t tiles = tiles_of(a), blocks = tiles < a.blocks ? tiles : a.blocks;
    return a.rows <= 8 ? start_rows<F, 1>(l, s, blocks) : start_rows<F, 2>(l, s, blocks);
}

extern "C" cudaError_t linear_stream_launch(const struct launch *l, const void *args)
{
    const stream_args *s = (const stream_args *)args;
    if (s->l.table)
        return experts_stream_launch(l, args);
    return with_format(s->l.w, [=](auto f) { return start<decltype(f)>(l, s); });
}
