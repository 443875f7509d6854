/* wgmma_ring.cuh - shared by the kernels that use wgmma: a ring of stages that one thread fills
 * by tensor maps, 64 columns of weights and of x each, and the sum of stages by two warpgroups.
 * See linear_wgmma.cu for its use. */
#ifndef MODEL_SERVER_BACKEND_CUDA_WGMMA_RING_CUH
#define MODEL_SERVER_BACKEND_CUDA_WGMMA_RING_CUH
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
/* full[i] ends a phase when the bytes of a stage have arrived, empty[i] when no warp reads it any
 * more. */
template <int R, int N> struct ring {
    enum { ROWS = R, STAGES = N };
    stage<R> at[N];
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

/* The weights of a stage: 64 columns of the tile whose first band begins at `out`. */
template <int ROWS>
static __device__ __forceinline__ void load_weights(const linear_args &a, stage<ROWS> *s,
                                                    const CUtensorMap *w, mbarrier *full,
                                                    uint32_t k, uint32_t out)
{
    for (int i = 0; i < 4; i++)
        tile_load(s->w[i / 2][i % 2], w, full, k + i / 2 * (COLUMNS / 2),
                  out + i % 2 * band_apart(a));
}

/* ---------------------------------------------------------------- multiplying */

/* This lane's 16 bytes of its two outputs, which are rows g and g + 8 of the fragment: 32 columns.
 * They are output `out` of either band. So with a gate a thread has an output of the gate and the
 * one that it gates. */
struct fragment {
    uint4 g, g8;
};
template <int ROWS>
static __device__ __forceinline__ void load_fragment(fragment *f, const stage<ROWS> *s, int half,
                                                     uint32_t place)
{
    f->g = *(const uint4 *)&s->w[half][0][0][place];
    f->g8 = *(const uint4 *)&s->w[half][1][0][place];
}
static __device__ __forceinline__ uint32_t fragment_place(uint32_t out)
{
    return out * COLUMNS + threadIdx.x % 4 * 16;
}
/* Outputs of a band in their order: 8 of them to a warp. */
static __device__ __forceinline__ uint32_t band_output(uint32_t thread)
{
    return (thread - GROUP) / 32 * 8 + thread % 32 / 4;
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

/* Sums of consecutive stages, of their first N rows. Halves of a stage are groups of two wgmma; one group always runs while
 * the next one's weights are read from shared memory. */
template <typename T, class RING, int N = RING::ROWS> struct stage_sums {
    enum { ROWS = N };
    RING *r;
    place<RING::STAGES> p;
    uint32_t place_of_weights; /* the thread's */
    fragment f[2];
    __device__ __forceinline__ stage_sums(RING *r, uint32_t out) : r(r)
, place_of_weights(fragment_place(out)) {}

    /* Starts adding half h of the current stage to `acc`. */
    __device__ __forceinline__ void start(float (&acc)[ROWS / 8][4], int h)
    {
        const auto *s = &r->at[p.i];
        if (h == 0)
            mbarrier_wait(&r->full[p.i], p.parity);
        load_fragment(&f[h], s, h, place_of_weights);
        wgmma_fence();
        wgmma(T(), acc, f[h].g.x, f[h].g8.x, f[h].g.y, f[h].g8.y, rows_operand(s->x, 32 * h));
        wgmma(T(), acc, f[h].g.z, f[h].g8.z, f[h].g.w, f[h].g8.w, rows_operand(s->x, 32 * h + 16));
        wgmma_commit();
    }
    /* The half before this one is added: f[1 - h] may be loaded. */
    __device__ __forceinline__ void settle(int h, bool first)
    {
        wgmma_wait<1>();
        if (h == 0 && !first)
            r->release(p.before());
        if (h == 1)
            p.next();
    }
    /* acc = the sum of the next `stages` stages, at least PARTS / 2. While the first ones are added,
     * part(i) is called for i < PARTS, with a constant i: other work of the thread, not on `acc`. */
    template <int PARTS, typename FN>
    __device__ __forceinline__ void slice(float (&acc)[ROWS / 8][4], uint32_t stages, FN part)
    {
        static_assert(PARTS % 2 == 0, "halves of stages");
#pragma unroll
        for (int i = 0; i < ROWS / 8 * 4; i++)
            acc[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            start(acc, i % 2);
            settle(i % 2, i == 0);
            part(i); /* while one group runs: the other's fragment is free */
        }
        for (uint32_t n = PARTS / 2; n < stages; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                start(acc, h);
                settle(h, n == 0);
            }
        }
        wgmma_wait<0>();
        if (stages)
            r->release(p.before());
    }
    __device__ __forceinline__ void slice(float (&acc)[ROWS / 8][4], uint32_t stages)
    {
        slice<0>(acc, stages, [](int) {});
    }
};
#endif
