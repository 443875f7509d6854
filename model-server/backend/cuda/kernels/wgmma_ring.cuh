/* wgmma_ring.cuh - shared by the kernels that use wgmma: a ring of stages that one thread fills
 * by tensor maps, 64 or 128 columns of weights and of x each, and the sum of stages by two
 * warpgroups. F: the format of the weights, see linear_mma.cuh. See wgmma_tile.cuh for its use. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_WGMMA_RING_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_WGMMA_RING_CUH
#include "model-server/backend/cuda/kernels/hopper.cuh"
#include "model-server/backend/cuda/kernels/linear_mma.cuh"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#include "model-server/backend/cuda/tensor_map.h"

enum {
    GROUP = 128, /* threads of a warpgroup */
    MATH = 2,
    THREADS = (MATH + 1) * GROUP,
    BAND = 64,      /* outputs of one copy; a tile has two such bands */
    X_COLUMNS = 64, /* of x in one copy */
    W_BYTES = 64,   /* of a row of weights in one copy */
    COPY_REGISTERS = 24,
    MATH_REGISTERS = 240,
    ALIGN = 1024 /* of swizzled tiles */
};
static_assert((COPY_REGISTERS + MATH * MATH_REGISTERS) * GROUP <= 65536, "a block's registers");

/* Scales of the groups of a stage, as they are stored: [band][16 outputs][group]. */
template <class F, bool = F::GROUPED> struct stage_scales {
    enum { SCALES_BYTES = 2 * BAND / 16 * F::SCALES };
    alignas(ALIGN) unsigned char scales[2][BAND / 16][F::SCALES];
};
template <class F> struct stage_scales<F, false> {
    enum { SCALES_BYTES = 0 };
};
/* The offsets of the groups likewise, and the sums of x: [group][row]. */
template <class F, int ROWS, bool = F::OFFSETS> struct stage_offsets {
    alignas(128) unsigned char offsets[2][BAND / 16][F::SCALES];
    alignas(128) float sums[4][ROWS];
    enum { OFFSETS_BYTES = sizeof(offsets) + sizeof(sums) };
};
template <class F, int ROWS> struct stage_offsets<F, ROWS, false> {
    enum { OFFSETS_BYTES = 0 };
};
/* A stage: COLUMNS, in PARTS of 64 bytes of a row of x, two MMAs each; rows of x in pieces of 128
 * bytes, rows of weights in pieces of W_BYTES: two of weights that are multiplied as they are, one
 * of others. */
template <class F, int ROWS> struct stage : stage_scales<F>, stage_offsets<F, ROWS> {
    enum {
        COLUMNS = F::PARTS == 4 || F::T::BYTES == 1 ? 128 : 64,
        PARTS = COLUMNS * F::T::BYTES / 64,
        X_PIECES = PARTS / 2,
        W_PIECES = COLUMNS / F::PARTS * F::T::BYTES / W_BYTES
    };
    alignas(ALIGN) unsigned char x[X_PIECES][ROWS][2 * X_COLUMNS];
    unsigned char w[W_PIECES][2][BAND][W_BYTES];
    /* What is copied, without rows of x: it may be less than there is room for. */
    enum { OTHER_BYTES = sizeof(w) + stage_scales<F>::SCALES_BYTES };
};
/* full[i] ends a phase when the bytes of a stage have arrived, empty[i] when no warp reads it any
 * more. */
template <class F, int R, int N> struct ring {
    typedef F format;
    typedef ::stage<F, R> stage;
    enum { ROWS = R, STAGES = N };
    stage at[N];
    mbarrier full[N], empty[N];
    __device__ __forceinline__ void init(void)
    {
        for (int i = 0; i < N; i++) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], MATH * GROUP / 32);
        }
    }
    /* Waits until stage i may be filled. */
    __device__ __forceinline__ void await(uint32_t i, uint32_t parity)
    {
        mbarrier_wait(&empty[i], parity ^ 1);
    }
    /* The warp no longer reads stage i. */
    __device__ __forceinline__ void release(uint32_t i)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(&empty[i]);
    }
};

/* As many stages as fit, of up to 9. */
enum { TILE_ROOM = (227 << 10) - ALIGN - 1024 };
template <class F, int ROWS>
static constexpr int TILE_STAGES = TILE_ROOM / sizeof(stage<F, ROWS>) < 9
                                       ? TILE_ROOM / sizeof(stage<F, ROWS>)
                                       : 9;
template <class F, int ROWS> using tile_ring = ring<F, ROWS, TILE_STAGES<F, ROWS>>;

/* Stages of a slice. */
template <class RING>
static __device__ __forceinline__ uint32_t slice_stages(const linear_args &a, uint32_t s)
{
    enum { QUANT = RING::format::QUANT };
    return (slice_begin(a.w.cols, s + 1, QUANT) - slice_begin(a.w.cols, s, QUANT)) /
           RING::stage::COLUMNS;
}

/* A thread's position in the ring: stage `i`, in the phase of this parity. */
template <int STAGES> struct place {
    uint32_t i = 0, parity = 0;
    __device__ __forceinline__ void next(void)
    {
        if (++i == STAGES)
            i = 0, parity ^= 1;
    }
    __device__ __forceinline__ uint32_t before(void) const { return i ? i - 1 : STAGES - 1; }
};

/* Outputs of a product, or with a gate half of them; distance between the outputs of the two
 * bands. */
static __host__ __device__ __forceinline__ uint32_t outputs(const linear_args &a)
{
    return a.gate ? a.w.rows / 2 : a.w.rows;
}
static __device__ __forceinline__ uint32_t band_apart(const linear_args &a)
{
    return a.gate ? a.w.rows / 2 : BAND;
}

static __host__ __device__ __forceinline__ uint32_t tile_outs(const linear_args &a)
{
    return a.gate ? BAND : 2 * BAND;
}

/* Where weights are copied from: their rows, and with groups the scales, of 16 outputs a row, then
 * the offsets, if there are any. */
struct weight_maps {
    CUtensorMap rows, scales;
};
template <class F> static cudaError_t map_weights(weight_maps *m, const stored &w)
{
    const uint32_t bytes = (uint32_t)row_bytes(w.cols, w.dtype, F::QUANT);
    const uint32_t scales = step_scales(F::QUANT) / 2; /* as numbers of 16 bits */
    cudaError_t rc = tensor_map(&m->rows, w.data, bytes / 2, w.rows, W_BYTES / 2, BAND, false);
    if (rc == cudaSuccess && F::GROUPED)
        rc = tensor_map(&m->scales, (const char *)w.data + scales_at(w.rows, w.cols, F::QUANT),
                        k_padded(w.cols, F::QUANT) / step_columns(F::QUANT) * scales,
                        (w.rows + 15) / 16 * (F::OFFSETS && w.offsets ? 2 : 1), scales, BAND / 16,
                        false);
    return rc;
}

/* The weights of a stage: columns from k on of the tile whose first band begins at `out`. With
 * groups the bands are a multiple of 16 outputs apart. */
template <class F, int ROWS>
static __device__ __forceinline__ void load_weights(const linear_args &a, stage<F, ROWS> *s,
                                                    const weight_maps *m, mbarrier *full,
                                                    uint32_t k, uint32_t out)
{
    for (int i = 0; i < 2 * stage<F, ROWS>::W_PIECES; i++)
        tile_load(s->w[i / 2][i % 2], &m->rows, full, /* by 2 bytes */
                  k / F::PARTS * F::T::BYTES / 2 + i / 2 * (W_BYTES / 2),
                  out + i % 2 * band_apart(a));
    if constexpr (F::GROUPED)
        for (int i = 0; i < 2; i++)
            tile_load(s->scales[i], &m->scales, full, k / F::STEP * (F::SCALES / 2),
                      (out + i * band_apart(a)) / 16);
    if constexpr (F::OFFSETS)
        for (int i = 0; a.w.offsets && i < 2; i++)
            tile_load(s->offsets[i], &m->scales, full, k / F::STEP * (F::SCALES / 2),
                      (a.w.rows + 15) / 16 + (out + i * band_apart(a)) / 16);
}

/* ---------------------------------------------------------------- multiplying */

/* This lane's 8 columns of 32 of its two outputs, which are rows g and g + 8 of the fragment.
 * They are output `out` of either band. So with a gate a thread has an output of the gate and the
 * one that it gates. */
struct fragment {
    uint4 g, g8;
};
static __device__ __forceinline__ uint32_t fragment_place(uint32_t out)
{
    return out * W_BYTES + threadIdx.x % 4 * 16;
}
/* Outputs of a band in their order: 8 of them to a warp. */
static __device__ __forceinline__ uint32_t band_output(uint32_t thread)
{
    return (thread - GROUP) / 32 * 8 + thread % 32 / 4;
}

/* Stores output `out` of rows `row` and `row` + 1, of which there are `rows`, in NARROW_WGMMA. Two
 * neighbouring outputs of a row are in lanes that are 4 apart: the even one stores both of the even
 * row, the other those of the odd row. All lanes call it. */
template <typename T>
static __device__ __forceinline__ void store_neighbours(const narrow_rows &to, uint32_t row,
                                                        uint32_t rows, uint32_t out,
                                                        const float (&v)[2])
{
    const uint32_t odd = out % 2, place = narrow_place(out - odd, NARROW_WGMMA);
    const float given = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 4);
    if (row + odd < rows && out - odd < to.pitch)
        *(uint32_t *)(to.to + (size_t)(row + odd) * to.pitch + place) =
            odd ? T::pack(given, v[1]) : T::pack(v[0], given);
}

/* The b operand of wgmma: 16 columns from `column` on of rows of 128 bytes in a tensor map's
 * 128-byte swizzle, the first at a multiple of 1024 bytes. The descriptor's fields: address, a
 * stride that swizzled rows do not use, the distance of eight rows to the next eight, the
 * 128-byte swizzle. */
static __device__ __forceinline__ uint64_t rows_operand(const void *rows, uint32_t column)
{
    uint64_t address = shared_address(rows) + 2 * column, eight_rows = 8 * 128;
    return address >> 4 | 1ull << 16 | eight_rows >> 4 << 32 | 1ull << 62;
}

/* Makes the sums' registers the compiler's to choose: the next product sets them. */
static __device__ __forceinline__ void unset_sums(float (*c)[4], int n)
{
#pragma unroll
    for (int i = 0; i < 4 * n; i++)
        unset(&c[i / 4][i % 4]);
}
static __device__ __forceinline__ void unset_sums(int32_t (*c)[4], int n)
{
#pragma unroll
    for (int i = 0; i < 4 * n; i++)
        unset_integer(&c[i / 4][i % 4]);
}

/* Sums of consecutive stages, of their first N rows. Parts of a stage are groups of two wgmma. One
 * group always runs while the next one's weights are read from shared memory, and widened. */
template <class RING, int N = RING::ROWS> struct stage_sums {
    typedef typename RING::format F;
    typedef typename F::T T;
    typedef typename RING::stage stage_type;
    enum { ROWS = N, PARTS = stage_type::PARTS };
    const stored &w;
    RING *r;
    place<RING::STAGES> p;
    uint32_t out;         /* the thread's, of its band */
    fragment f[2], bytes; /* bytes: weights as they are stored, unless those are f's */
    typedef typename T::sum SUM;
    uint2 scales[2], offsets[2]; /* of the stage, with groups */
    /* with WHOLE its scale and its chain */
    float whole[2], step_sum[F::WHOLE ? ROWS / 8 : 1][4];

    __device__ __forceinline__ stage_sums(const stored &w, RING *r, uint32_t out)
        : w(w), r(r), out(out)
    {
    }

    /* Reads part h of the current stage into f[h % 2], waiting for the stage with its first part.
     */
    __device__ __forceinline__ void load(int h)
    {
        const stage_type *s = &r->at[p.i];
        if (h == 0)
            mbarrier_wait(&r->full[p.i], p.parity);
        const uint32_t at = fragment_place(out);
        if constexpr (F::PARTS == 1) {
            f[h % 2].g = *(const uint4 *)&s->w[h][0][0][at];
            f[h % 2].g8 = *(const uint4 *)&s->w[h][1][0][at];
        } else {
            if (h == 0) {
                bytes.g = *(const uint4 *)&s->w[0][0][0][at];
                bytes.g8 = *(const uint4 *)&s->w[0][1][0][at];
            }
            f[h % 2].g = F::widen(w, bytes.g, h);
            f[h % 2].g8 = F::widen(w, bytes.g8, h);
        }
        if constexpr (F::GROUPED)
            if (h == 0)
                for (int i = 0; i < 2; i++) {
                    const uint32_t row = out % 8 * 2 + out / 8 % 2;
                    const unsigned char *from = &s->scales[i][out / 16][row * (F::SCALES / 16)];
                    if constexpr (F::WHOLE)
                        whole[i] = *(const float *)from;
                    else
                        scales[i] = *(const uint2 *)from;
                    if constexpr (F::OFFSETS)
                        if (w.offsets)
                            offsets[i] = *(const uint2 *)&s->offsets[i][out / 16][row * 8];
                }
    }
    /* Starts the products of f[h % 2]: c += them, or c = them. */
    __device__ __forceinline__ void start(SUM (&c)[ROWS / 8][4], int h, bool add)
    {
        const fragment &a = f[h % 2];
        const void *x = r->at[p.i].x[h / 2];
        wgmma_fence();
        wgmma(T(), c, a.g.x, a.g8.x, a.g.y, a.g8.y, rows_operand(x, h % 2 * 32), add);
        wgmma(T(), c, a.g.z, a.g8.z, a.g.w, a.g8.w, rows_operand(x, h % 2 * 32 + 16));
        wgmma_commit();
    }

    /* acc = the sum of the next `stages` stages, at least TIMES / PARTS. While the first ones are
     * added, part(i) is called for i < TIMES, with a constant i: other work of the thread, not on
     * `acc`. */
    template <int TIMES, typename FN>
    __device__ __forceinline__ void slice(SUM (&acc)[ROWS / 8][4], uint32_t stages, FN part)
    {
        static_assert(TIMES % PARTS == 0, "parts of stages");
        if (!F::GROUPED) /* the first product sets them */
            unset_sums(acc, ROWS / 8);
        if (F::GROUPED || !stages)
#pragma unroll
            for (int i = 0; i < ROWS / 8 * 4; i++)
                acc[i / 4][i % 4] = 0;
#pragma unroll
        for (int i = 0; i < TIMES; i++)
            step(acc, i % PARTS, i == 0, [&]() { part(i); });
        for (uint32_t n = TIMES / PARTS; n < stages; n++)
#pragma unroll
            for (int h = 0; h < PARTS; h++)
                step(acc, h, n == 0 && h == 0, []() {});
        if (F::GROUPED)
            return;
        wgmma_wait<0>();
        if (stages)
            r->release(p.before());
    }
    __device__ __forceinline__ void slice(SUM (&acc)[ROWS / 8][4], uint32_t stages)
    {
        slice<0>(acc, stages, [](int) {});
    }

  private:
    /* Adds part h of the current stage, the slice's first or not. */
    template <typename FN>
    __device__ __forceinline__ void step(SUM (&acc)[ROWS / 8][4], int h, bool first, FN other)
    {
        if constexpr (F::WHOLE) {
            step_of_whole(acc, h, other);
            return;
        } else if constexpr (F::HALVES) {
            step_of_halves(acc, h, other);
            return;
        } else if constexpr (F::GROUPED) {
            step_of_group(acc, h, other);
            return;
        }
        load(h);
        start(acc, h, !first);
        wgmma_wait<1>(); /* the part before this one is added: f[1 - h % 2] may be loaded */
        if (h == 0 && !first)
            r->release(p.before());
        if (h == PARTS - 1)
            p.next();
        other(); /* while one group runs: the other's fragment is free */
    }

    /* A stage is a group of columns: a chain of its own, multiplied by the group's scales. */
    template <typename FN>
    __device__ __forceinline__ void step_of_whole(float (&acc)[ROWS / 8][4], int h, FN other)
    {
        if (h == 0) {
            unset_sums(step_sum, ROWS / 8);
            load(0);
        }
        start(step_sum, h, h > 0);
        if (h < PARTS - 1)
            load(h + 1);
        other();
        if (h < PARTS - 1)
            return;
        wgmma_wait<0>();
        r->release(p.i);
        p.next();
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++)
            add_step(acc[i], step_sum[i], whole);
    }

    /* A part is a group of columns: a chain of its own, multiplied by the group's scales. */
    template <typename FN>
    __device__ __forceinline__ void step_of_group(float (&acc)[ROWS / 8][4], int h, FN other)
    {
        float chain[ROWS / 8][4];
        unset_sums(chain, ROWS / 8);
        if (h == 0)
            load(0);
        start(chain, h, false);
        if (h < PARTS - 1)
            load(h + 1);
        other();
        wgmma_wait<0>();
        if (h == PARTS - 1 && !F::OFFSETS)
            leave();
        add_chain(acc, chain, h);
        if (h == PARTS - 1 && F::OFFSETS) /* its sums of x have been read */
            leave();
    }

    /* A part is two groups of 16 columns. The first one's sums are added while the other's are
     * multiplied. */
    template <typename FN>
    __device__ __forceinline__ void step_of_halves(float (&acc)[ROWS / 8][4], int h, FN other)
    {
        float low[ROWS / 8][4], high[ROWS / 8][4];
        unset_sums(low, ROWS / 8), unset_sums(high, ROWS / 8);
        if (h == 0)
            load(0);
        const fragment &a = f[h % 2];
        const void *x = r->at[p.i].x[h / 2];
        wgmma_fence();
        wgmma(T(), low, a.g.x, a.g8.x, a.g.y, a.g8.y, rows_operand(x, h % 2 * 32), false);
        wgmma_commit();
        wgmma_fence();
        wgmma(T(), high, a.g.z, a.g8.z, a.g.w, a.g8.w, rows_operand(x, h % 2 * 32 + 16), false);
        wgmma_commit();
        if (h < PARTS - 1)
            load(h + 1);
        other();
        wgmma_wait<1>();
        add_chain(acc, low, 2 * h);
        wgmma_wait<0>();
        add_chain(acc, high, 2 * h + 1);
        if (h == PARTS - 1)
            leave();
    }

    /* Adds the chain of a group of the stage: times the scales, less the offsets times the sums. */
    __device__ __forceinline__ void add_chain(float (&acc)[ROWS / 8][4],
                                              const float (&chain)[ROWS / 8][4], int group)
    {
        const float g = F::scale(scales[0], group), g8 = F::scale(scales[1], group);
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) {
            acc[i][0] = fmaf(chain[i][0], g, acc[i][0]);
            acc[i][1] = fmaf(chain[i][1], g, acc[i][1]);
            acc[i][2] = fmaf(chain[i][2], g8, acc[i][2]);
            acc[i][3] = fmaf(chain[i][3], g8, acc[i][3]);
        }
        if constexpr (F::OFFSETS) {
            if (!w.offsets)
                return;
            const float o = F::scale(offsets[0], group), o8 = F::scale(offsets[1], group);
            const float *sums = r->at[p.i].sums[group] + threadIdx.x % 4 * 2;
#pragma unroll
            for (int i = 0; i < ROWS / 8; i++) {
                const float2 of = *(const float2 *)(sums + 8 * i);
                acc[i][0] = fmaf(-o, of.x, acc[i][0]);
                acc[i][1] = fmaf(-o, of.y, acc[i][1]);
                acc[i][2] = fmaf(-o8, of.x, acc[i][2]);
                acc[i][3] = fmaf(-o8, of.y, acc[i][3]);
            }
        }
    }

    /* The stage has been read. */
    __device__ __forceinline__ void leave(void)
    {
        r->release(p.i);
        p.next();
    }
};
#endif
