/* linear_wgmma.cu - products of many rows on Hopper: prefill, by wgmma.
 *
 * A block walks over tiles of 128 outputs x 128 or 192 rows; with a gate, of 64 outputs of the
 * gate, the 64 that they gate, and the result of both is stored alone. One thread of the first
 * warpgroup keeps a ring of stages filled, 64 columns of weights and of x each, by tensor maps; two
 * warpgroups of 64 outputs each multiply. full[i] ends a phase when a stage's bytes are there,
 * empty[i] when the 8 warps have done with them. As the ring runs on from tile to tile, the next
 * tile's first stages come while this one's results are stored.
 *
 * The order of sums is that of linear_mma.cuh, as far as the instruction lets it: the same slices,
 * and in each step of 16 columns the same columns at the same places of the MMA. So the weights,
 * the M operand, are read from shared memory into registers, 16 bytes of a plain row at a time (for
 * which a row's stage is two rows of 64 bytes: free of bank conflicts), and x, which wgmma takes
 * from shared memory in rows of 128 bytes with a swizzle, is stored by narrow in the order
 * NARROW_WGMMA. Whether the sums of the 16 products have the bits of mma.sync is the hardware's
 * affair: wgmma.c asks it.
 *
 * Tile 128 x 192: two sets of sums (slices are added up apart) are 2 x 96 registers of a thread's
 * 240, which rules out 256 rows; 5 stages of 40 KiB. 128 x 128: 6 of 32 KiB. Multiplying a stage
 * takes 768 (512) cycles at the instruction's rate, in which 40 (32) KiB have to come from the
 * second-level cache. Written after: CUTLASS' description of warp-specialised, persistent kernels.
 */
#include "model-server/backend/cuda/hopper.cuh"
#include "model-server/backend/cuda/linear_mma.cuh"
#include "model-server/backend/cuda/numbers.cuh"
#include "model-server/backend/cuda/tensor_map.h"

enum {
    GROUP = 128, /* threads of a warpgroup */
    MATH = 2,
    THREADS = (MATH + 1) * GROUP,
    BAND = 64,    /* outputs of one copy; a tile has two such bands */
    COLUMNS = 64, /* of a stage */
    COPY_REGISTERS = 24,
    MATH_REGISTERS = 240,
    ALIGN = 1024 /* of swizzled tiles */
};
static_assert((COPY_REGISTERS + MATH * MATH_REGISTERS) * GROUP <= 65536, "a block's registers");

template <int ROWS> struct stage {
    unsigned char x[ROWS][2 * COLUMNS], w[2][2][BAND][COLUMNS]; /* [half][band] */
};
template <int ROWS> struct ring {
    static constexpr int STAGES = ROWS > 128 ? 5 : 6;
    stage<ROWS> at[STAGES];
    mbarrier full[STAGES], empty[STAGES];
};

/* Where a thread is in the ring: stage `i`, in the phase of this parity. */
template <int ROWS> struct place {
    uint32_t i = 0, parity = 0;
    __device__ __forceinline__ void next(void)
    {
        if (++i == ring<ROWS>::STAGES)
            i = 0, parity ^= 1;
    }
};

/* Outputs of a product, or with a gate of half of it; from a band's outputs to the other's. */
static __host__ __device__ __forceinline__ uint32_t outputs(const linear_args &a)
{
    return a.gate ? a.w.rows / 2 : a.w.rows;
}
static __device__ __forceinline__ uint32_t band_apart(const linear_args &a)
{
    return a.gate ? a.w.rows / 2 : BAND;
}

/* One of the block's tasks: slices [first, last) of a tile, whose first band begins at `out`. Rows
 * run fastest, so that blocks at work at the same time share weights. */
struct job {
    uint32_t out, row, first, last;
};
static __host__ __device__ uint32_t tile_outs(const linear_args &a)
{
    return a.gate ? BAND : 2 * BAND;
}
template <int ROWS> static __host__ __device__ uint32_t job_count(const linear_args &a)
{
    uint32_t outs = tile_outs(a);
    return (outputs(a) + outs - 1) / outs * ((a.rows + ROWS - 1) / ROWS) * (a.part ? SLICES : 1);
}
template <int ROWS> static __device__ job job_at(const linear_args &a, uint32_t i)
{
    uint32_t tiles = (a.rows + ROWS - 1) / ROWS, tile = a.part ? i / SLICES : i;
    uint32_t first = a.part ? i % SLICES : 0, last = a.part ? first + 1 : SLICES;
    return job{tile / tiles * tile_outs(a), tile % tiles * ROWS, first, last};
}

/* ---------------------------------------------------------------- the copying warpgroup */

template <int ROWS>
static __device__ void copy_stages(const linear_args &a, const CUtensorMap *w, const CUtensorMap *x,
                                   ring<ROWS> *r)
{
    place<ROWS> p;
    for (uint32_t n = job_count<ROWS>(a), i = blockIdx.x; i < n; i += gridDim.x) {
        job j = job_at<ROWS>(a, i);
        for (uint32_t k = slice_begin(a.w.cols, j.first); k < slice_begin(a.w.cols, j.last);
             k += COLUMNS) {
            stage<ROWS> *s = &r->at[p.i];
            mbarrier *full = &r->full[p.i];
            mbarrier_wait(&r->empty[p.i], p.parity ^ 1);
            mbarrier_expect(full, sizeof(*s));
            tile_load(s->x, x, full, k, j.row);
            for (int i = 0; i < 4; i++)
                tile_load(s->w[i / 2][i % 2], w, full, k + i / 2 * (COLUMNS / 2),
                          j.out + i % 2 * band_apart(a));
            p.next();
        }
    }
}

/* ---------------------------------------------------------------- the multiplying ones */

/* This lane's 16 bytes of its two outputs, which are rows g and g + 8 of the fragment: 32 columns.
 * A warp has 8 outputs of each band, so that with a gate a thread has an output of the gate and the
 * one that it gates. */
struct fragment {
    uint4 g, g8;
};
template <int ROWS>
static __device__ __forceinline__ void load_fragment(fragment *f, const stage<ROWS> *s, int half)
{
    const uint32_t warp = threadIdx.x / 32 - GROUP / 32, lane = threadIdx.x % 32;
    f->g = *(const uint4 *)&s->w[half][0][8 * warp + lane / 4][lane % 4 * 16];
    f->g8 = *(const uint4 *)&s->w[half][1][8 * warp + lane / 4][lane % 4 * 16];
}

/* The b operand of wgmma: 16 columns from `column` on of rows of 128 bytes as a tensor map's
 * 128-byte swizzle lays them, the first at a multiple of 1024 bytes. The descriptor's fields:
 * address, a stride that swizzled rows do not use, from eight rows to the next eight, the 128-byte
 * swizzle. */
static __device__ __forceinline__ uint64_t rows_operand(const void *rows, uint32_t column)
{
    uint64_t address = shared_address(rows) + 2 * column, eight_rows = 8 * 128;
    return address >> 4 | 1ull << 16 | eight_rows >> 4 << 32 | 1ull << 62;
}

/* The warp has done with stage `i`. */
template <int ROWS> static __device__ __forceinline__ void release(ring<ROWS> *r, uint32_t i)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(&r->empty[i]);
}

/* Sum of the next `stages` stages. Halves of a stage are groups of two wgmma; one group is always
 * at work while the next one's weights come from shared memory. */
template <typename T, int ROWS>
static __device__ __forceinline__ void slice_sum(ring<ROWS> *r, place<ROWS> *p, uint32_t stages,
                                                 float (&acc)[ROWS / 8][4])
{
    fragment f[2];
    uint32_t before = p->i;
#pragma unroll
    for (int i = 0; i < ROWS / 8 * 4; i++)
        acc[i / 4][i % 4] = 0.0f;
    for (uint32_t n = 0; n < stages; n++) {
        const stage<ROWS> *s = &r->at[p->i];
        mbarrier_wait(&r->full[p->i], p->parity);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            load_fragment(&f[h], s, h);
            wgmma_fence();
            wgmma(T(), acc, f[h].g.x, f[h].g8.x, f[h].g.y, f[h].g8.y, rows_operand(s->x, 32 * h));
            wgmma(T(), acc, f[h].g.z, f[h].g8.z, f[h].g.w, f[h].g8.w,
                  rows_operand(s->x, 32 * h + 16));
            wgmma_commit();
            wgmma_wait<1>(); /* f[1 - h] may be loaded */
            if (h == 0 && n > 0)
                release(r, before);
        }
        before = p->i;
        p->next();
    }
    wgmma_wait<0>();
    if (stages)
        release(r, before);
}

/* Where a thread's sums go: its two outputs, its even or odd rows. */
struct corner {
    uint32_t out, other, row, rows; /* rows: that there are from `row` on */
    float b, b_other; /* of the bias; without one 0 is added: no sum is -0, so no bit changes */
    __device__ __forceinline__ corner(const linear_args &a, const job &j, int odd)
    {
        const uint32_t warp = threadIdx.x / 32 - GROUP / 32, lane = threadIdx.x % 32;
        const bool biased = a.bias && !a.part;
        out = j.out + 8 * warp + lane / 4, other = out + band_apart(a);
        row = j.row + lane % 4 * 2 + odd, rows = row < a.rows ? a.rows - row : 0;
        b = biased && out < a.w.rows ? a.bias[out] : 0.0f;
        b_other = biased && other < a.w.rows ? a.bias[other] : 0.0f;
    }
};

template <int ROWS>
static __device__ __forceinline__ void store_tile(const linear_args &a, const job &j, float *y,
                                                  const float (&sum)[ROWS / 8][4])
{
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const corner c(a, j, odd);
        float *at = y + (size_t)c.row * a.w.rows + c.out;
#pragma unroll
        for (uint32_t i = 0; i < ROWS / 8; i++, at += 8 * (size_t)a.w.rows) {
            if (c.out < a.w.rows && 8 * i < c.rows)
                at[0] = sum[i][odd] + c.b;
            if (c.other < a.w.rows && 8 * i < c.rows)
                at[BAND] = sum[i][2 + odd] + c.b_other;
        }
    }
}

/* y = act(gate) * what it gates: the operations of rows.cu's act, on the same numbers. */
template <int ROWS, enum act ACT>
static __device__ __forceinline__ void store_gated(const linear_args &a, const job &j,
                                                   const float (&sum)[ROWS / 8][4])
{
    const uint32_t n = outputs(a);
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const corner c(a, j, odd);
        float *at = a.y + (size_t)c.row * n + c.out;
#pragma unroll
        for (uint32_t i = 0; i < ROWS / 8; i++, at += 8 * (size_t)n)
            if (c.out < n && 8 * i < c.rows)
                *at = math_act(sum[i][odd] + c.b, ACT) * (sum[i][2 + odd] + c.b_other);
    }
}

template <typename T, int ROWS>
static __device__ __forceinline__ void multiply(const linear_args &a, ring<ROWS> *r)
{
    place<ROWS> p;
    float acc[ROWS / 8][4], sum[ROWS / 8][4];
    for (uint32_t n = job_count<ROWS>(a), i = blockIdx.x; i < n; i += gridDim.x) {
        job j = job_at<ROWS>(a, i);
#pragma unroll
        for (int e = 0; e < ROWS / 8 * 4; e++)
            sum[e / 4][e % 4] = 0.0f;
        for (uint32_t s = j.first; s < j.last; s++) {
            uint32_t columns = slice_begin(a.w.cols, s + 1) - slice_begin(a.w.cols, s);
            slice_sum<T, ROWS>(r, &p, columns / COLUMNS, acc);
#pragma unroll
            for (int e = 0; e < ROWS / 8 * 4; e++)
                sum[e / 4][e % 4] += acc[e / 4][e % 4];
        }
        if (!a.gate)
            store_tile<ROWS>(a, j, a.part ? a.part + (size_t)j.first * a.rows * a.w.rows : a.y,
                             sum);
        else if (a.act == ACT_SILU)
            store_gated<ROWS, ACT_SILU>(a, j, sum);
        else
            store_gated<ROWS, ACT_GELU_TANH>(a, j, sum);
    }
}

/* grid: as many blocks as run at once */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_wgmma_kernel(linear_args a, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap x)
{
    unsigned char *base = dynamic_shared<unsigned char>();
    base += (ALIGN - shared_address(base) % ALIGN) % ALIGN;
    ring<ROWS> *r = (ring<ROWS> *)base;
    if (threadIdx.x == 0) {
        tile_prefetch(&w), tile_prefetch(&x);
        for (int i = 0; i < ring<ROWS>::STAGES; i++) {
            mbarrier_init(&r->full[i], 1);
            mbarrier_init(&r->empty[i], MATH * GROUP / 32);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    depend();
    if (threadIdx.x < GROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x == 0)
            copy_stages<ROWS>(a, &w, &x, r);
    } else {
        registers_take<MATH_REGISTERS>();
        multiply<T, ROWS>(a, r);
    }
}

/* ---------------------------------------------------------------- launching */

template <typename T, int ROWS>
static cudaError_t start(const struct launch *l, const linear_args *a)
{
    CUtensorMap w, x;
    cudaError_t rc = tensor_map(&w, a->w.data, k_padded(a->w.cols, QUANT_NONE), a->w.rows,
                                COLUMNS / 2, BAND, false);
    if (rc == cudaSuccess)
        rc = tensor_map(&x, a->narrow, k_padded(a->w.cols, QUANT_NONE), a->rows, COLUMNS, ROWS,
                        true);
    if (rc != cudaSuccess)
        return rc;
    uint32_t jobs = job_count<ROWS>(*a);
    return launch(linear_wgmma_kernel<T, ROWS>, jobs < a->blocks ? jobs : a->blocks, THREADS,
                  sizeof(ring<ROWS>) + ALIGN, l->stream, l->overlap, *a, w, x);
}

extern "C" cudaError_t linear_wgmma_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    if (a->tile_rows == 128)
        return a->w.dtype == DT_F16 ? start<F16, 128>(l, a) : start<Bf16, 128>(l, a);
    return a->w.dtype == DT_F16 ? start<F16, 192>(l, a) : start<Bf16, 192>(l, a);
}
