/* linear_experts_wgmma.cu - products of experts on Hopper, by wgmma: batches and prompts of
 * mixtures of experts.
 *
 * As linear_wgmma, with tiles of 128 outputs (with a gate 64, and the 64 that they gate) x up to 64
 * rows, or 192 of weights in 16 bits, each of one expert. The rows of x are the pairs (row,
 * expert), sorted by expert and rounded beforehand, so that a tile's x is contiguous. `group` makes
 * the list of tiles of rows on the device. Blocks stay resident and are dealt the tiles in the
 * order expert, outputs, rows: an expert's weights are read from memory once, and the tiles of rows
 * that share them follow one another.
 *
 * An expert rarely fills its last tile. So x comes by boxes of a third or half of a tile's rows,
 * and a tile with fewer rows copies and multiplies as many boxes as it needs. Rows of the next
 * expert in the last box are multiplied and not stored. Each expert's weights have a tensor map in
 * device memory.
 *
 * The order of sums is that of linear_wgmma, the slices' sums included, so a pair has the bits of
 * linear_stream. */
#include "model-server/backend/cuda/kernels/wgmma_ring.cuh"

static_assert(sizeof(weight_maps) == EXPERT_MAP_BYTES, "maps");

/* Rows of a box of x. */
template <int ROWS> static constexpr int BOX = ROWS > EXPERT_FEW ? 64 : 32;

/* A tile: outputs of the first band from `out` on, pairs of the list from `first` on, `rows` of
 * them. */
struct tile_job {
    uint32_t expert, out, first, rows;
};
static __device__ __forceinline__ uint32_t output_tiles(const linear_args &a)
{
    return (outputs(a) + tile_outs(a) - 1) / tile_outs(a);
}
template <int ROWS>
static __device__ __forceinline__ tile_job tile_at(const linear_args &a, uint32_t outs, uint32_t i)
{
    const expert_job j = a.jobs[i / outs];
    const uint32_t tiles = (j.n + ROWS - 1) / ROWS, in = i - j.before * outs;
    const uint32_t row = in % tiles * ROWS, left = j.n - row;
    return tile_job{j.expert, in / tiles * tile_outs(a), j.first + row, left < ROWS ? left : ROWS};
}
template <int ROWS> static __device__ __forceinline__ uint32_t boxes_of(const tile_job &j)
{
    return (j.rows + BOX<ROWS> - 1) / BOX<ROWS>;
}

/* ---------------------------------------------------------------- copying */

template <class F, int ROWS>
static __device__ void copy_stages(const experts_args &e, const CUtensorMap *x,
                                   tile_ring<F, ROWS> *r)
{
    const linear_args &a = e.l;
    const uint32_t outs = output_tiles(a), n = a.begin[a.experts + 1] * outs;
    enum { COLUMNS = stage<F, ROWS>::COLUMNS, PIECES = stage<F, ROWS>::X_PIECES };
    const uint32_t columns = slice_begin(a.w.cols, SLICES, F::QUANT);
    place<tile_ring<F, ROWS>::STAGES> p;
    uint32_t expert = a.experts;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const tile_job j = tile_at<ROWS>(a, outs, i);
        const uint32_t boxes = boxes_of<ROWS>(j), bytes = BOX<ROWS> * 2 * COLUMNS;
        const weight_maps *w = (const weight_maps *)e.maps + j.expert;
        if (j.expert != expert) {
            tile_acquire(&w->rows);
            if (F::GROUPED)
                tile_acquire(&w->scales);
        }
        expert = j.expert;
        for (uint32_t k = 0; k < columns; k += COLUMNS) {
            stage<F, ROWS> *s = &r->at[p.i];
            mbarrier *full = &r->full[p.i];
            mbarrier_wait(&r->empty[p.i], p.parity ^ 1);
            mbarrier_expect(full, stage<F, ROWS>::OTHER_BYTES + boxes * bytes);
            load_weights<F, ROWS>(a, s, w, full, k, j.out);
            for (uint32_t b = 0; b < boxes * PIECES; b++)
                tile_load(s->x[b % PIECES][b / PIECES * BOX<ROWS>], x, full,
                          k + b % PIECES * X_COLUMNS, j.first + b / PIECES * BOX<ROWS>);
            p.next();
        }
    }
}

/* ---------------------------------------------------------------- results */

/* A thread's two outputs, their terms, and the first of its rows. */
template <class F> struct corner {
    uint32_t out, other, row;
    output_terms terms, terms_other;
    __device__ __forceinline__ corner(const experts_args &e, const tile_job &j)
    {
        const void *w = e.l.table[j.expert];
        out = j.out + band_output(threadIdx.x), other = out + band_apart(e.l);
        row = threadIdx.x % 4 * 2;
        terms = terms_other = {1.0f, -0.0f};
        if (out < e.l.w.rows)
            terms = terms_of_expert<F>(e.l, w, e.bias_of, j.expert, out);
        if (other < e.l.w.rows)
            terms_other = terms_of_expert<F>(e.l, w, e.bias_of, j.expert, other);
    }
};

static __device__ __forceinline__ float scale_of(const experts_args &e, uint32_t pair)
{
    return e.scale_of ? e.scale_of[pair] : 1.0f;
}

template <class F, int N>
static __device__ __forceinline__ void store_plain(const experts_args &e, const tile_job &j,
                                                   const float (&sum)[N / 8][4])
{
    const corner<F> c(e, j);
    const uint32_t n = e.l.w.rows;
#pragma unroll
    for (uint32_t i = 0; i < N / 8; i++)
#pragma unroll
        for (uint32_t odd = 0; odd < 2; odd++) {
            const uint32_t row = 8 * i + c.row + odd;
            if (row >= j.rows)
                continue;
            const uint32_t pair = e.l.list[j.first + row];
            float *y = e.l.y + (size_t)pair * n;
            const float by = scale_of(e, pair);
            if (c.out < n)
                y[c.out] = finish<F>(e.l, sum[i][odd], c.terms, row) * by;
            if (c.other < n)
                y[c.other] = finish<F>(e.l, sum[i][2 + odd], c.terms_other, row) * by;
        }
}

template <class F, int N, enum act ACT>
static __device__ __forceinline__ void store_gated(const experts_args &e, const tile_job &j,
                                                   const float (&sum)[N / 8][4])
{
    const corner<F> c(e, j);
    const uint32_t n = outputs(e.l);
#pragma unroll
    for (uint32_t i = 0; i < N / 8; i++) {
        float v[2];
#pragma unroll
        for (uint32_t odd = 0; odd < 2; odd++) {
            const uint32_t row = 8 * i + c.row + odd;
            const bool there = row < j.rows && c.out < n;
            float by = 1.0f;
            if (e.scale_of && there)
                by = e.scale_of[e.l.list[j.first + row]];
            v[odd] = there ? math_act(finish<F>(e.l, sum[i][odd], c.terms, row) * by, ACT) *
                                 (finish<F>(e.l, sum[i][2 + odd], c.terms_other, row) * by)
                           : 0.0f;
        }
        store_neighbours<typename F::T>(e.l.gated, j.first + 8 * i + c.row, j.first + j.rows, c.out,
                                        v);
    }
}

/* ---------------------------------------------------------------- multiplying */

/* A tile of up to N rows. */
template <class F, int ROWS, int N>
static __device__ __forceinline__ void multiply_rows(const experts_args &e, const tile_job &j,
                                                     tile_ring<F, ROWS> *r,
                                                     place<tile_ring<F, ROWS>::STAGES> *p)
{
    stage_sums<tile_ring<F, ROWS>, N> sums(e.l.w, r, band_output(threadIdx.x));
    float acc[N / 8][4], sum[N / 8][4];
    sums.p = *p;
#pragma unroll
    for (int i = 0; i < N / 8 * 4; i++)
        sum[i / 4][i % 4] = 0.0f;
    for (uint32_t s = 0; s < SLICES; s++) {
        sums.slice(acc, slice_stages<tile_ring<F, ROWS>>(e.l, s));
#pragma unroll
        for (int i = 0; i < N / 8 * 4; i++)
            sum[i / 4][i % 4] += acc[i / 4][i % 4];
    }
    *p = sums.p;
    if (!e.l.gate)
        store_plain<F, N>(e, j, sum);
    else if (e.l.act == ACT_SILU)
        store_gated<F, N, ACT_SILU>(e, j, sum);
    else
        store_gated<F, N, ACT_GELU_TANH>(e, j, sum);
}

template <class F, int ROWS>
static __device__ __forceinline__ void multiply(const experts_args &e, tile_ring<F, ROWS> *r)
{
    const uint32_t outs = output_tiles(e.l), n = e.l.begin[e.l.experts + 1] * outs;
    place<tile_ring<F, ROWS>::STAGES> p;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const tile_job j = tile_at<ROWS>(e.l, outs, i);
        const uint32_t boxes = boxes_of<ROWS>(j);
        if (boxes == 1)
            multiply_rows<F, ROWS, BOX<ROWS>>(e, j, r, &p);
        else if (ROWS == 2 * BOX<ROWS> || boxes == 2)
            multiply_rows<F, ROWS, 2 * BOX<ROWS>>(e, j, r, &p);
        else
            multiply_rows<F, ROWS, ROWS>(e, j, r, &p);
    }
}

/* grid: as many blocks as run concurrently */
template <class F, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_experts_kernel(experts_args e, const __grid_constant__ CUtensorMap x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    tile_ring<F, ROWS> *r = (tile_ring<F, ROWS> *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&x);
        r->init();
        mbarrier_init_fence();
    }
    __syncthreads();
    depend();
    if (threadIdx.x < GROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_stages<F, ROWS>(e, &x, r);
    } else {
        registers_take<MATH_REGISTERS>();
        multiply<F, ROWS>(e, r);
    }
}

/* ---------------------------------------------------------------- launching */

extern "C" cudaError_t linear_experts_map(void *map, const struct stored *w)
{
    return with_format(*w, [=](auto f) -> cudaError_t {
        return map_weights<decltype(f)>((weight_maps *)map, *w);
    });
}

template <class F, int ROWS> static cudaError_t start(const struct launch *l, const experts_args *e)
{
    static_assert(sizeof(tile_ring<F, ROWS>) + ALIGN <= 227 << 10, "a block's shared memory");
    const linear_args &a = e->l;
    CUtensorMap x;
    cudaError_t rc =
        tensor_map(&x, a.narrow, k_padded(a.w.cols, F::QUANT), a.rows, X_COLUMNS, BOX<ROWS>, true);
    if (rc != cudaSuccess)
        return rc;
    return launch(linear_experts_kernel<F, ROWS>, a.blocks, THREADS,
                  sizeof(tile_ring<F, ROWS>) + ALIGN, l->stream, l->overlap, *e, x);
}

/* The tiles and formats that moe.c chooses from. */
template <class F> static cudaError_t start_tile(const struct launch *l, const experts_args *e)
{
    if constexpr (F::PARTS == 1)
        if (e->l.tile_rows == EXPERT_MANY)
            return start<F, EXPERT_MANY>(l, e);
    return start<F, EXPERT_FEW>(l, e);
}

extern "C" cudaError_t linear_experts_launch(const struct launch *l, const void *args)
{
    const experts_args *e = (const experts_args *)args;
    return with_format(e->l.w, [=](auto f) -> cudaError_t {
        typedef decltype(f) F;
        if constexpr (F::T::BYTES == 1 || F::HALVES)
            return cudaErrorInvalidValue;
        else
            return start_tile<F>(l, e);
    });
}
