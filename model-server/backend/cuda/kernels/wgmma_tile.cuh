/* wgmma_tile.cuh - products of more than 16 rows on Hopper, by wgmma: prefill and large batches.
 *
 * A block processes tiles of 128 outputs x 64, 128 or 192 rows. With a gate a tile has 64 outputs
 * of the gate and the 64 that they gate, and only the gated result is stored, in fp32, in 16 bits
 * for the next product, or both. One thread of the first warpgroup fills a ring of stages, 64
 * columns of weights and of x each (128 of weights in 4 bits), by tensor maps; two warpgroups
 * multiply 64 outputs each. full[i] ends a phase when a stage's bytes have arrived, empty[i] when
 * the 8 warps no longer read them. The ring continues from tile to tile, so the next tile's first
 * stages arrive early. A tile's results are stored, in parts, while the first slice of the next
 * tile is multiplied: its sums are in registers that are not needed before that slice ends.
 *
 * The order of sums is that of linear_mma.cuh, as far as the instruction allows: the same slices,
 * and in each step of 16 columns the same columns at the same places of the MMA. So the weights,
 * the M operand, are read from shared memory into registers, 16 bytes of a plain row at a time.
 * (For this a row's stage is two rows of 64 bytes, without bank conflicts.) Quantised weights are
 * widened there; a group of columns with a scale is a chain of its own. wgmma reads x from
 * shared memory in swizzled rows of 128 bytes, so narrow stores x in the order NARROW_WGMMA.
 * Whether sums of 16 products have the bits of mma.sync depends on the hardware: wgmma.c tests
 * it.
 *
 * w8a8: the same bytes in stages of 128 columns, and sums of integers, which are exact in any
 * order. Codes with offsets: x's sums over the groups come with a stage, made by group_sums.cu.
 *
 * Tile 128 x 192: two sets of sums (slices are added separately) are 2 x 96 registers of a
 * thread's 240, which rules out 256 rows; 5 stages of 40 KiB. 128 x 128: 6 of 32 KiB. Multiplying
 * a stage takes 768 (512) cycles at the instruction's rate. Shared memory needs 832 (640) for it,
 * at 128 bytes a cycle: the copies, the weights once, x for either warpgroup. Tensor units are busy
 * 80 (69) % of the time. Pairs of blocks that bring x for each other by multicast do not change
 * that, and were not faster. Written after: CUTLASS' description of warp-specialised, persistent
 * kernels. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_WGMMA_TILE_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_WGMMA_TILE_CUH
#include "model-server/backend/cuda/kernels/wgmma_ring.cuh"

/* One of a block's tasks: slices [first, last) of a tile, whose first band begins at `out`. Tiles
 * are processed in groups of GROUP_TILES tiles of rows; within a group rows advance fastest. So
 * concurrent blocks share weights, and the group's x stays in the L2 cache. */
enum { GROUP_TILES = 8 };
struct job {
    uint32_t out, row, first, last;
};
struct jobs {
    uint32_t outs, tiles, n; /* tiles of outputs, of rows; tasks */
    jobs(const linear_args &a, uint32_t rows)
    {
        const uint32_t width = tile_outs(a);
        outs = (outputs(a) + width - 1) / width, tiles = (a.rows + rows - 1) / rows;
        n = outs * tiles * (a.part ? SLICES : 1);
    }
};
template <class RING>
static __device__ job job_at(const linear_args &a, const jobs &all, uint32_t i)
{
    const uint32_t tile = a.part ? i / SLICES : i;
    const uint32_t first = a.part ? i % SLICES : 0, last = a.part ? first + 1 : SLICES;
    const uint32_t group = tile / (GROUP_TILES * all.outs), in = tile % (GROUP_TILES * all.outs);
    const uint32_t left = all.tiles - group * GROUP_TILES;
    const uint32_t wide = left < GROUP_TILES ? left : GROUP_TILES;
    return job{in / wide * tile_outs(a), (group * GROUP_TILES + in % wide) * RING::ROWS, first,
               last};
}
/* Calls fn(job) for each of this block's tasks. */
template <class RING, typename FN>
static __device__ __forceinline__ void each_job(const linear_args &a, const jobs &all, FN fn)
{
    for (uint32_t i = blockIdx.x; i < all.n; i += gridDim.x)
        fn(job_at<RING>(a, all, i));
}

/* ---------------------------------------------------------------- the copying warpgroup */

/* Where x is copied from, and with offsets its sums. */
struct x_maps {
    CUtensorMap rows, sums;
};

/* What is copied for a stage. */
template <class RING> static __device__ uint32_t stage_bytes(const linear_args &a)
{
    return RING::stage::OTHER_BYTES + sizeof(RING::stage::x) +
           (a.w.offsets ? (uint32_t)RING::stage::OFFSETS_BYTES : 0);
}

/* The weights of the first task's first stages, which do not depend on the kernel before. Returns
 * the number of stages. */
template <class RING>
static __device__ __forceinline__ uint32_t copy_early(const linear_args &a, const jobs &all,
                                                      const weight_maps *w, RING *r)
{
    typedef typename RING::format F;
    if (blockIdx.x >= all.n)
        return 0;
    const job j = job_at<RING>(a, all, blockIdx.x);
    uint32_t n = 0;
    for (uint32_t k = slice_begin(a.w.cols, j.first, F::QUANT);
         k < slice_begin(a.w.cols, j.last, F::QUANT) && n < RING::STAGES;
         k += RING::stage::COLUMNS, n++) {
        mbarrier_expect(&r->full[n], stage_bytes<RING>(a));
        load_weights<F, RING::ROWS>(a, &r->at[n], w, &r->full[n], k, j.out);
    }
    return n;
}

template <class RING>
static __device__ void copy_stages(const linear_args &a, const jobs &all, const weight_maps *w,
                                   const x_maps *x, RING *r)
{
    typedef typename RING::format F;
    typedef typename RING::stage stage_type;
    enum { COLUMNS = stage_type::COLUMNS };
    place<RING::STAGES> p;
    uint32_t early = copy_early<RING>(a, all, w, r), n = 0;
    depend_wait(); /* for x */
    each_job<RING>(a, all, [&](const job &j) {
        for (uint32_t k = slice_begin(a.w.cols, j.first, F::QUANT);
             k < slice_begin(a.w.cols, j.last, F::QUANT); k += COLUMNS, n++) {
            stage_type *s = &r->at[p.i];
            mbarrier *full = &r->full[p.i];
            if (n >= early) {
                r->await(p.i, p.parity);
                mbarrier_expect(full, stage_bytes<RING>(a));
                load_weights<F, RING::ROWS>(a, s, w, full, k, j.out);
            }
            for (uint32_t i = 0; i < stage_type::X_PIECES; i++)
                tile_load(s->x[i], &x->rows, full, k * F::T::BYTES / 2 + i * X_COLUMNS, j.row);
            if constexpr (F::OFFSETS)
                if (a.w.offsets)
                    tile_load(s->sums, &x->sums, full, 2 * j.row, k / COLUMNS * 4);
            p.next();
        }
    });
}

/* ---------------------------------------------------------------- the multiplying ones */

/* What is stored of a tile: sums, or act(gate) * the gated output. */
enum ending { SUMS, SILU, GELU };

/* math_act() of the two: the same operations but for the division, which here has no branch. The
 * quotient is rounded correctly, as a division is: an approximate reciprocal is corrected once, the
 * quotient twice. A divisor above 2^64 is scaled, because its reciprocal may be subnormal; the
 * quotient is not, since x is beyond -9 then. */
template <int END> static __device__ __forceinline__ float act_of(float x)
{
    const float u = END == SILU ? x : GELU_TWO_C * fmaf(GELU_CUBIC * x * x, x, x);
    const float d = 1.0f + math_exp(-u), scale = d > 0x1p64f ? 0x1p-64f : 1.0f, by = d * scale;
    float r = reciprocal_fast(by);
    r = fmaf(r, fmaf(-by, r, 1.0f), r);
    float q = x * r;
    q = fmaf(r, fmaf(-by, q, x), q);
    q = fmaf(r, fmaf(-by, q, x), q) * scale;
    return d == INFINITY ? x * 0.0f : fabsf(x) == INFINITY ? x : q;
}

/* The first slice's sum as what is kept of a tile. Integers of w8a8 are the sum of all slices of
 * the task, and become the float that finish() would make of them, or with parallel slices the
 * integer that linear_sum reads. */
static __device__ __forceinline__ float kept(const linear_args &, float sum) { return 0.0f + sum; }
static __device__ __forceinline__ float kept(const linear_args &a, int32_t sum)
{
    return a.part ? __uint_as_float((uint32_t)sum) : (float)sum;
}

/* Stores sums of two outputs, j.out + in_band in either band, and of rows `row` and `row` + 1 of
 * the tile. It keeps nothing in registers for the next call. */
template <class F, int END>
static __device__ __forceinline__ void store_rows(const linear_args &a, const job &j, uint32_t row,
                                                  const float (&sum)[4])
{
    typedef typename F::T T;
    const uint32_t width = outputs(a);
    const uint32_t out = j.out + band_output(opaque(threadIdx.x)), other = out + band_apart(a);
    const bool has = out < width, has_other = other < a.w.rows;
    output_terms terms = {1.0f, -0.0f}, terms_other = terms;
    if (!a.part) {
        if (has)
            terms = terms_of<F>(a, a.w.data, out);
        if (has_other)
            terms_other = terms_of<F>(a, a.w.data, other);
    }
    row += opaque(j.row);
    float *y = END == SUMS && a.part ? a.part + (size_t)j.first * a.rows * width : a.y, gated[2];
    y += (size_t)row * width + out;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t of = row + i < a.rows ? row + i : 0; /* its scale, with w8a8 */
        float f, g;
        if (T::BYTES == 1 && END == SUMS && a.part) {
            f = sum[i], g = sum[2 + i];
        } else {
            f = finish<F>(a, sum[i], terms, of);
            g = finish<F>(a, sum[2 + i], terms_other, of);
        }
        if (END == SUMS) {
            if (row + i < a.rows && has)
                y[i * width] = f;
            if (row + i < a.rows && has_other)
                y[i * width + BAND] = g;
        } else { /* as rows.cu's act, on the same numbers */
            gated[i] = act_of<END>(f) * g;
            if (!a.gated.alone && row + i < a.rows && has)
                y[i * width] = gated[i];
        }
    }
    if constexpr (T::BYTES == 2)
        if (END != SUMS && a.gated.to) /* its rows are filled by the outputs */
            store_neighbours<T>(a.gated, row, a.rows, out, gated);
}

/* Part i of PARTS of a tile. */
template <class F, int PARTS, int ROWS, int END>
static __device__ __forceinline__ void store_part(const linear_args &a, const job &j,
                                                  const float (&sum)[ROWS / 8][4], int i)
{
#pragma unroll
    for (int e = i * (ROWS / 8) / PARTS; e < (i + 1) * (ROWS / 8) / PARTS; e++)
        store_rows<F, END>(a, j, 8 * e + threadIdx.x % 4 * 2, sum[e]);
}

/* Sums of a tile are stored while the first slice of the next one is multiplied: they are in the
 * registers that it needs at its end. */
template <class RING, int END>
static __device__ __forceinline__ void multiply(const linear_args &a, const jobs &all, RING *r)
{
    typedef typename RING::format F;
    enum { EXACT = F::T::BYTES == 1 };                      /* sums of slices are a chain, too */
    enum { ROWS = RING::ROWS, PARTS = F::GROUPED ? 4 : 8 }; /* 4: by registers */
    stage_sums<RING> sums(a.w, r, band_output(threadIdx.x));
    job last = {};
    bool pending = false;
    typename F::T::sum acc[ROWS / 8][4];
    float sum[ROWS / 8][4] = {};
    each_job<RING>(a, all, [&](const job &j) {
        uint32_t stages = slice_stages<RING>(a, j.first);
        for (uint32_t s = j.first + 1; EXACT && s < j.last; s++)
            stages += slice_stages<RING>(a, s);
        if (pending && stages >= PARTS / stage_sums<RING>::PARTS) {
            sums.template slice<PARTS>(
                acc, stages, [&](int i) { store_part<F, PARTS, ROWS, END>(a, last, sum, i); });
        } else {
            if (pending)
                store_part<F, 1, ROWS, END>(a, last, sum, 0);
            sums.slice(acc, stages);
        }
#pragma unroll
        for (int e = 0; e < ROWS / 8 * 4; e++)
            sum[e / 4][e % 4] = kept(a, acc[e / 4][e % 4]);
        for (uint32_t s = j.first + 1; !EXACT && s < j.last; s++) {
            sums.slice(acc, slice_stages<RING>(a, s));
#pragma unroll
            for (int e = 0; e < ROWS / 8 * 4; e++)
                sum[e / 4][e % 4] += acc[e / 4][e % 4];
        }
        last = j, pending = true;
    });
    if (pending)
        store_part<F, 1, ROWS, END>(a, last, sum, 0);
}

/* grid: as many blocks as run concurrently */
template <class RING, int END>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_wgmma_kernel(linear_args a, jobs all, const __grid_constant__ weight_maps w,
                        const __grid_constant__ x_maps x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    RING *r = (RING *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&w.rows), tile_prefetch(&x.rows);
        r->init();
        mbarrier_init_fence();
    }
    __syncthreads();
    depend_start();
    if (threadIdx.x < GROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_stages<RING>(a, all, &w, &x, r);
    } else {
        registers_take<MATH_REGISTERS>();
        depend_wait(); /* earlier kernels may still read y's memory */
        multiply<RING, END>(a, all, r);
    }
}

/* ---------------------------------------------------------------- launching */

template <class F, int END, int ROWS>
static cudaError_t start(const struct launch *l, const linear_args *a)
{
    typedef tile_ring<F, ROWS> RING;
    static_assert(sizeof(RING) + ALIGN <= 227 << 10, "a block's shared memory");
    weight_maps w;
    x_maps x = {};
    const uint32_t columns = k_padded(a->w.cols, F::QUANT);
    cudaError_t rc = map_weights<F>(&w, a->w);
    if (rc == cudaSuccess)
        rc = tensor_map(&x.rows, a->narrow, columns * F::T::BYTES / 2, a->rows, X_COLUMNS, ROWS,
                        true);
    if (rc == cudaSuccess && F::OFFSETS && a->w.offsets)
        rc = tensor_map(&x.sums, a->sums, 2 * group_sums_pitch(a->rows),
                        columns / group_columns(F::QUANT), 2 * ROWS, 4, false);
    if (rc != cudaSuccess)
        return rc;
    const jobs all(*a, ROWS);
    return launch(linear_wgmma_kernel<RING, END>, all.n < a->blocks ? all.n : a->blocks, THREADS,
                  sizeof(RING) + ALIGN, l->stream, l->overlap, *a, all, w, x);
}

/* The tiles that wgmma_linear() chooses from. */
template <class F, int END>
static cudaError_t start_tile(const struct launch *l, const linear_args *a)
{
    if constexpr (F::PARTS == 1)
        if (a->tile_rows == 192)
            return start<F, END, 192>(l, a);
    if constexpr (F::T::BYTES == 2 && (!F::GROUPED || F::WHOLE))
        if (a->tile_rows == 128)
            return start<F, END, 128>(l, a);
    return start<F, END, 64>(l, a);
}

template <class F> static cudaError_t start_end(const struct launch *l, const linear_args *a)
{
    if (!a->gate)
        return start_tile<F, SUMS>(l, a);
    return a->act == ACT_SILU ? start_tile<F, SILU>(l, a) : start_tile<F, GELU>(l, a);
}
#endif
