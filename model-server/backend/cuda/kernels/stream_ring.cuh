/* stream_ring.cuh - the tiles of linear_stream, and how a warp streams their weights.
 *
 * A warp reads the weights of its slice step by step: a step is 64 bytes of each of the tile's 16
 * rows. Lane (g, t) of the warp copies 16 bytes of rows g and g + 8 into the warp's slots in shared
 * memory (cp.async), `slots` - 1 steps ahead, over the ends of tiles; half of the lanes also copy 8
 * or 4 bytes of scales each. Copies in flight occupy no registers, and are awaited in order, whatever
 * the compiler does. Addresses are advanced from step to step: with weights of few bits a step has
 * little time, and computing them anew took a third of its instructions. (Loads to registers were
 * measured before: docs/results/gpu.md.) */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_RING_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_RING_CUH
#include "model-server/backend/cuda/kernels/linear_mma.cuh"

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

/* A lane's weights of a step: rows g and g + 8, and their scales and offsets if there are groups.
 */
struct step_weights {
    uint4 row[2], scales, offsets;
    float2 whole; /* WHOLE: their scales */
    static __device__ __forceinline__ uint2 of_row(uint4 both, int i)
    {
        return i ? make_uint2(both.z, both.w) : make_uint2(both.x, both.y);
    }
};

/* In a slot: [row of a lane's two][lane] 16 bytes of weights, then [g][row] 8 of scales, then of
 * offsets. */
enum { ROW_ROOM = 32 * 16, SCALES_ROOM = 16 * 8 };

/* The tiles of a block of a product: those of its matrix that are `gridDim.x` apart. NO_TILE: the
 * end. */
enum : uint32_t { NO_TILE = UINT32_MAX };
struct tile_walk {
    enum { SCARCE = 0 };
    uint32_t tile;
    __device__ __forceinline__ const char *matrix(const stream_args &s) const
    {
        return (const char *)s.l.w.data;
    }
    __device__ __forceinline__ void next(const stream_args &) { tile += gridDim.x; }
};

/* A lane's view of its warp's ring. */
template <class F, class WALK = tile_walk> struct weight_ring {
    enum { SCARCE = WALK::SCARCE };    /* registers are */
    uint32_t first, end, slot, before; /* in shared memory: the ring; what is read next, last */
    WALK walk;                         /* the tile that is being copied */
    uint32_t left;                     /* steps of it that are not; 0: nothing is left at all */
    const char *row[2], *groups;       /* what this lane copies next */
    uint32_t steps;                    /* of the warp's slice of a tile */

    /* `from`: the block's first tile, which is there; `room`: slots of all warps of the block. */
    __device__ __forceinline__ void start(const stream_args &s, const WALK &from,
                                          const unsigned char *room)
    {
        const uint32_t size = s.slots * stream_slot_bytes(F::QUANT);
        first = (uint32_t)(room - dynamic_shared<unsigned char>()) + threadIdx.x / 32 * size;
        end = first + size;
        slot = before = first;
        walk = from;
        steps = first_step<F>(s.l, threadIdx.x / 32 + 1) - first_step<F>(s.l, threadIdx.x / 32);
        find(s);
        for (uint32_t i = 0; i + 1 < s.slots; i++, before += stream_slot_bytes(F::QUANT))
            copy(s);
    }

    /* The next step's weights. Refills the slot before, which the warp has used up: its contents
     * have been read. */
    __device__ __forceinline__ step_weights take(const stream_args &s)
    {
        const unsigned char *at = dynamic_shared<unsigned char>() + slot;
        const uint32_t lane = threadIdx.x % 32;
        wait(s.slots);
        if constexpr (F::GROUPED)
            __syncwarp(); /* scales come from other lanes, which have also read those before */
        step_weights now;
        now.row[0] = *(const uint4 *)(at + lane * 16);
        now.row[1] = *(const uint4 *)(at + lane * 16 + ROW_ROOM);
        if constexpr (F::WHOLE)
            now.whole = *(const float2 *)(at + lane / 4 * sizeof(float2) + 2 * ROW_ROOM);
        else if constexpr (F::GROUPED)
            now.scales = *(const uint4 *)(at + lane / 4 * 16 + 2 * ROW_ROOM);
        if constexpr (F::OFFSETS)
            if (s.l.w.offsets)
                now.offsets = *(const uint4 *)(at + lane / 4 * 16 + 2 * ROW_ROOM + SCALES_ROOM);
        copy(s);
        before = slot;
        slot += stream_slot_bytes(F::QUANT);
        slot = slot == end ? first : slot;
        return now;
    }

  private:
    __device__ __forceinline__ void find(const stream_args &s)
    {
        const linear_args &a = s.l;
        const char *w = walk.matrix(s);
        const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const uint32_t begin = first_step<F>(a, warp);
        left = steps;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            row[i] = w +
                     weight_row(a, walk.tile, lane / 4, i) * row_bytes(a.w.cols, DT_F16, F::QUANT) +
                     begin * 64 + lane % 4 * 16;
        if constexpr (F::GROUPED) {
            const uint32_t at = weight_row(a, walk.tile, lane / 2 % 8, lane % 2);
            groups = w + scales_at(a.w.rows, a.w.cols, F::QUANT) +
                     (F::WHOLE ? sizeof(float) : 2) * group_at(at, 0, a.w.cols, F::QUANT) +
                     begin * F::SCALES + lane / 16 * groups_bytes(a.w.rows, a.w.cols, F::QUANT);
        }
    }

    /* Copies the next step to the slot `before`, if there is one, as one group. */
    __device__ __forceinline__ void copy(const stream_args &s)
    {
        unsigned char *to = dynamic_shared<unsigned char>() + before;
        const uint32_t lane = threadIdx.x % 32;
        if (left) {
            copy_streaming(to + lane * 16, row[0]);
            copy_streaming(to + lane * 16 + ROW_ROOM, row[1]);
            row[0] += 64, row[1] += 64;
            if constexpr (F::WHOLE) {
                if (lane < 16)
                    copy_streaming4(to + 2 * ROW_ROOM + lane * sizeof(float), groups);
                groups += F::SCALES;
            } else if constexpr (F::GROUPED) {
                if (lane < 16 || (F::OFFSETS && s.l.w.offsets))
                    copy_streaming8(to + 2 * ROW_ROOM + lane * 8, groups);
                groups += F::SCALES;
            }
            if (--left == 0) {
                walk.next(s);
                if (walk.tile < tiles_of(s.l))
                    find(s);
            }
        }
        copy_commit();
    }

    /* The oldest of the slots - 1 groups has arrived. */
    static __device__ __forceinline__ void wait(uint32_t slots)
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
