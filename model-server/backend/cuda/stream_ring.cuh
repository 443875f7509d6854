/* stream_ring.cuh - the tiles of linear_stream, and how a warp streams their weights.
 *
 * A warp reads the weights of its slice step by step: a step is 64 bytes of each of the tile's 16
 * rows. Lane (g, t) of the warp copies 16 bytes of rows g and g + 8 into slots of its own in shared
 * memory (cp.async), `slots` - 1 steps ahead, over the ends of tiles. It reads back what it has
 * copied itself, so nothing but its own wait is needed. Copies in flight occupy no registers, and
 * are awaited in order, whatever the compiler does. (Loads to registers were measured before:
 * docs/results/gpu.md.) */
#ifndef MODEL_SERVER_BACKEND_CUDA_STREAM_RING_CUH
#define MODEL_SERVER_BACKEND_CUDA_STREAM_RING_CUH
#include "model-server/backend/cuda/linear_mma.cuh"

enum { OUTS = STREAM_OUTS };

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

/* First step of a slice. */
template <class F> static __device__ uint32_t first_step(const linear_args &a, uint32_t slice)
{
    return slice_begin(a.w.cols, slice, F::QUANT) / F::STEP;
}

/* ---------------------------------------------------------------- the ring */

/* A lane's weights of a step: rows g and g + 8, and their scales if there are groups. */
struct step_weights {
    uint4 row[2];
    uint2 scales[2], offsets[2];
};

/* In a slot: [row of a lane's two][lane] 16 bytes of weights, then 8 of scales, then of offsets. */
enum { ROW_ROOM = 32 * 16, SCALES_ROOM = 32 * 8 };

/* The tiles of a block of a product: of the matrix `w`, those `gridDim.x` apart. NO_TILE: the
 * end. */
enum : uint32_t { NO_TILE = UINT32_MAX };
struct tile_walk {
    enum { SCARCE = 0 };
    const char *w;
    uint32_t tile;
    __device__ __forceinline__ void next(const stream_args &) { tile += gridDim.x; }
};

/* A lane's view of its warp's ring. walk and next_step: what is copied next, as with tile_walk; row
 * and scales: the lane's offsets there, of 16 bytes and of 8. */
template <class F, class WALK = tile_walk> struct weight_ring {
    enum { SCARCE = WALK::SCARCE }; /* registers are */
    unsigned char *slot, *end;      /* where the next step is read; the end of the lane's slots */
    WALK walk;
    uint32_t bytes, slots;
    uint32_t next_step;
    uint32_t row[2], scales[2];

    /* `first`: the block's first tile, which is there; `room`: slots of all warps of the block. */
    __device__ __forceinline__ void start(const stream_args &s, const WALK &first,
                                          unsigned char *room, uint32_t n)
    {
        const linear_args &a = s.l;
        const uint32_t warp = threadIdx.x / 32;
        bytes = stream_slot_bytes(F::QUANT), slots = n, walk = first;
        slot = room + warp * n * bytes + threadIdx.x % 32 * 16;
        end = slot + n * bytes;
        next_step = first_step<F>(a, warp);
        find(a);
        unsigned char *at = slot;
        const bool empty = next_step == first_step<F>(a, warp + 1);
        for (uint32_t i = 0; i + 1 < n && !empty; i++, at += bytes)
            copy(s, at);
    }

    /* The next step's weights. Refills the slot before, which this lane has used up: its contents
     * have been multiplied. */
    __device__ __forceinline__ step_weights take(const stream_args &s)
    {
        const linear_args &a = s.l;
        wait();
        step_weights now;
        const unsigned char *groups = slot - threadIdx.x % 32 * 8 + 2 * ROW_ROOM;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            now.row[i] = *(const uint4 *)(slot + i * ROW_ROOM);
            if constexpr (F::GROUPED)
                now.scales[i] = *(const uint2 *)(groups + i * SCALES_ROOM);
            if constexpr (F::OFFSETS)
                if (a.w.offsets)
                    now.offsets[i] = *(const uint2 *)(groups + (2 + i) * SCALES_ROOM);
        }
        unsigned char *before = slot == end - slots * bytes ? end - bytes : slot - bytes;
        copy(s, before);
        slot = slot + bytes == end ? end - slots * bytes : slot + bytes;
        return now;
    }

  private:
    __device__ __forceinline__ void find(const linear_args &a)
    {
        const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t at = weight_row(a, walk.tile, g, i);
            row[i] = at * (uint32_t)(row_bytes(a.w.cols, DT_F16, F::QUANT) / 16) + t;
            scales[i] = F::GROUPED ? (uint32_t)(group_at(at, 0, a.w.cols, F::QUANT) / 4) : 0;
        }
    }

    /* Copies the next step, if there is one, as one group. */
    __device__ __forceinline__ void copy(const stream_args &s, unsigned char *to)
    {
        const linear_args &a = s.l;
        if (walk.tile < tiles_of(a)) {
            unsigned char *groups = to - threadIdx.x % 32 * 8 + 2 * ROW_ROOM;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                copy_streaming(to + i * ROW_ROOM, walk.w + (size_t)(row[i] + 4 * next_step) * 16);
                if constexpr (F::GROUPED) {
                    const char *from = walk.w + scales_at(a.w.rows, a.w.cols, F::QUANT) +
                                       (size_t)(scales[i] + 16 * next_step) * 8;
                    copy_streaming8(groups + i * SCALES_ROOM, from);
                    if (F::OFFSETS && a.w.offsets)
                        copy_streaming8(groups + (2 + i) * SCALES_ROOM,
                                        from + groups_bytes(a.w.rows, a.w.cols, F::QUANT));
                }
            }
            const uint32_t warp = threadIdx.x / 32;
            if (++next_step == first_step<F>(a, warp + 1)) {
                next_step = first_step<F>(a, warp), walk.next(s);
                if (walk.tile < tiles_of(a))
                    find(a);
            }
        }
        copy_commit();
    }

    /* The oldest of the slots - 1 groups has arrived. */
    __device__ __forceinline__ void wait(void) const
    {
        if (slots == STREAM_SLOTS_MOST)
            copy_wait<STREAM_SLOTS_MOST - 2>();
        else if (slots == STREAM_SLOTS)
            copy_wait<STREAM_SLOTS - 2>();
        else
            copy_wait<STREAM_SLOTS_FEW - 2>();
    }
};
#endif
