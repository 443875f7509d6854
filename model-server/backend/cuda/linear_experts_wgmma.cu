/* linear_experts_wgmma.cu - products of experts on Hopper, by wgmma: batches and prompts of
 * mixtures of experts.
 *
 * As linear_wgmma, with tiles of 128 outputs (with a gate 64, and the 64 that they gate) x up to 64
 * or 192 rows, each of one expert. The rows of x are the pairs (row, expert), sorted by expert and
 * rounded beforehand, so that a tile's x is contiguous. `group` makes the list of tiles of rows on
 * the device. Blocks stay resident and are dealt the tiles in the order expert, outputs, rows: an
 * expert's weights are read from memory once, and the tiles of rows that share them follow one
 * another.
 *
 * An expert rarely fills its last tile. So x comes by boxes of a third or half of a tile's rows,
 * and a tile with fewer rows copies and multiplies as many boxes as it needs. Rows of the next
 * expert in the last box are multiplied and not stored. Each expert's weights have a tensor map in
 * device memory.
 *
 * The order of sums is that of linear_wgmma, the slices' sums included, so a pair has the bits of
 * linear_stream. */
#include "model-server/backend/cuda/wgmma_ring.cuh"

template <int ROWS> using tile_ring = ring<ROWS, (ROWS > EXPERT_FEW ? 5 : 9)>;
static_assert(sizeof(tile_ring<EXPERT_FEW>) + ALIGN <= 227 << 10, "a block's shared memory");
static_assert(sizeof(tile_ring<EXPERT_MANY>) + ALIGN <= 227 << 10, "a block's shared memory");
static_assert(sizeof(CUtensorMap) == EXPERT_MAP_BYTES, "a map");

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

template <int ROWS>
static __device__ void copy_stages(const experts_args &e, const CUtensorMap *x, tile_ring<ROWS> *r)
{
    const linear_args &a = e.l;
    const uint32_t outs = output_tiles(a), n = a.begin[a.experts + 1] * outs;
    const uint32_t columns = slice_begin(a.w.cols, SLICES);
    place<tile_ring<ROWS>::STAGES> p;
    uint32_t expert = a.experts;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const tile_job j = tile_at<ROWS>(a, outs, i);
        const uint32_t boxes = boxes_of<ROWS>(j), bytes = BOX<ROWS> * 2 * COLUMNS;
        const CUtensorMap *w = (const CUtensorMap *)e.maps + j.expert;
        if (j.expert != expert)
            tile_acquire(w);
        expert = j.expert;
        for (uint32_t k = 0; k < columns; k += COLUMNS) {
            stage<ROWS> *s = &r->at[p.i];
            mbarrier *full = &r->full[p.i];
            mbarrier_wait(&r->empty[p.i], p.parity ^ 1);
            mbarrier_expect(full, sizeof(s->w) + boxes * bytes);
            load_weights<ROWS>(a, s, w, full, k, j.out);
            for (uint32_t b = 0; b < boxes; b++)
                tile_load(s->x[b * BOX<ROWS>], x, full, k, j.first + b * BOX<ROWS>);
            p.next();
        }
    }
}

/* ---------------------------------------------------------------- results */

/* A thread's two outputs, their biases, and the first of its rows. */
struct corner {
    uint32_t out, other, row;
    float b, b_other; /* without a bias 0 is added: no sum is -0, so no bit changes */
    __device__ __forceinline__ corner(const experts_args &e, const tile_job &j)
    {
        const uint32_t n = e.l.w.rows;
        const float *bias = e.bias_of ? e.bias_of + (size_t)j.expert * n : NULL;
        out = j.out + band_output(threadIdx.x), other = out + band_apart(e.l);
        row = threadIdx.x % 4 * 2;
        b = bias && out < n ? bias[out] : 0.0f;
        b_other = bias && other < n ? bias[other] : 0.0f;
    }
};

static __device__ __forceinline__ float scale_of(const experts_args &e, uint32_t pair)
{
    return e.scale_of ? e.scale_of[pair] : 1.0f;
}

template <int N>
static __device__ __forceinline__ void store_plain(const experts_args &e, const tile_job &j,
                                                   const float (&sum)[N / 8][4])
{
    const corner c(e, j);
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
                y[c.out] = (sum[i][odd] + c.b) * by;
            if (c.other < n)
                y[c.other] = (sum[i][2 + odd] + c.b_other) * by;
        }
}

/* Two neighbouring outputs of a row are in lanes that are 4 apart: the even one stores both of the
 * even row, the other those of the odd row. */
template <typename T, int N, enum act ACT>
static __device__ __forceinline__ void store_gated(const experts_args &e, const tile_job &j,
                                                   const float (&sum)[N / 8][4])
{
    const corner c(e, j);
    const uint32_t n = outputs(e.l), second = c.out % 2;
    const uint32_t place = narrow_place(c.out - second, NARROW_WGMMA);
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
            v[odd] = there ? math_act((sum[i][odd] + c.b) * by, ACT) *
                                 ((sum[i][2 + odd] + c.b_other) * by)
                           : 0.0f;
        }
        const float given = __shfl_xor_sync(~0u, second ? v[0] : v[1], 4);
        const uint32_t both = second ? T::pack(given, v[1]) : T::pack(v[0], given);
        const uint32_t row = 8 * i + c.row + second;
        if (row < j.rows && c.out - second < e.pitch)
            *(uint32_t *)(e.y16 + (size_t)(j.first + row) * e.pitch + place) = both;
    }
}

/* ---------------------------------------------------------------- multiplying */

/* A tile of up to N rows. */
template <typename T, int ROWS, int N>
static __device__ __forceinline__ void multiply_rows(const experts_args &e, const tile_job &j,
                                                     tile_ring<ROWS> *r,
                                                     place<tile_ring<ROWS>::STAGES> *p)
{
    stage_sums<T, tile_ring<ROWS>, N> sums(r, band_output(threadIdx.x));
    float acc[N / 8][4], sum[N / 8][4];
    sums.p = *p;
#pragma unroll
    for (int i = 0; i < N / 8 * 4; i++)
        sum[i / 4][i % 4] = 0.0f;
    for (uint32_t s = 0; s < SLICES; s++) {
        const uint32_t columns = slice_begin(e.l.w.cols, s + 1) - slice_begin(e.l.w.cols, s);
        sums.slice(acc, columns / COLUMNS);
#pragma unroll
        for (int i = 0; i < N / 8 * 4; i++)
            sum[i / 4][i % 4] += acc[i / 4][i % 4];
    }
    *p = sums.p;
    if (!e.l.gate)
        store_plain<N>(e, j, sum);
    else if (e.l.act == ACT_SILU)
        store_gated<T, N, ACT_SILU>(e, j, sum);
    else
        store_gated<T, N, ACT_GELU_TANH>(e, j, sum);
}

template <typename T, int ROWS>
static __device__ __forceinline__ void multiply(const experts_args &e, tile_ring<ROWS> *r)
{
    const uint32_t outs = output_tiles(e.l), n = e.l.begin[e.l.experts + 1] * outs;
    place<tile_ring<ROWS>::STAGES> p;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const tile_job j = tile_at<ROWS>(e.l, outs, i);
        const uint32_t boxes = boxes_of<ROWS>(j);
        if (boxes == 1)
            multiply_rows<T, ROWS, BOX<ROWS>>(e, j, r, &p);
        else if (ROWS == 2 * BOX<ROWS> || boxes == 2)
            multiply_rows<T, ROWS, 2 * BOX<ROWS>>(e, j, r, &p);
        else
            multiply_rows<T, ROWS, ROWS>(e, j, r, &p);
    }
}

/* grid: as many blocks as run concurrently */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_experts_kernel(experts_args e, const __grid_constant__ CUtensorMap x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    tile_ring<ROWS> *r = (tile_ring<ROWS> *)base;
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
            copy_stages<ROWS>(e, &x, r);
    } else {
        registers_take<MATH_REGISTERS>();
        multiply<T, ROWS>(e, r);
    }
}

/* ---------------------------------------------------------------- launching */

extern "C" cudaError_t linear_experts_map(void *map, const struct stored *w)
{
    return tensor_map((CUtensorMap *)map, w->data, k_padded(w->cols, QUANT_NONE), w->rows,
                      COLUMNS / 2, BAND, false);
}

template <typename T, int ROWS>
static cudaError_t start(const struct launch *l, const experts_args *e)
{
    const linear_args &a = e->l;
    CUtensorMap x;
    cudaError_t rc =
        tensor_map(&x, a.narrow, k_padded(a.w.cols, QUANT_NONE), a.rows, COLUMNS, BOX<ROWS>, true);
    if (rc != cudaSuccess)
        return rc;
    return launch(linear_experts_kernel<T, ROWS>, a.blocks, THREADS,
                  sizeof(tile_ring<ROWS>) + ALIGN, l->stream, l->overlap, *e, x);
}

extern "C" cudaError_t linear_experts_launch(const struct launch *l, const void *args)
{
    const experts_args *e = (const experts_args *)args;
    if (e->l.tile_rows == EXPERT_FEW)
        return e->l.w.dtype == DT_F16 ? start<F16, EXPERT_FEW>(l, e)
                                      : start<Bf16, EXPERT_FEW>(l, e);
    return e->l.w.dtype == DT_F16 ? start<F16, EXPERT_MANY>(l, e) : start<Bf16, EXPERT_MANY>(l, e);
}
