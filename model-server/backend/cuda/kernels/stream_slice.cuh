/* stream_slice.cuh - shared by the products of few rows and those of experts: the product of a
 * warp's slice, and the sum of the slices. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_SLICE_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_STREAM_SLICE_CUH
#include "model-server/backend/cuda/kernels/stream_ring.cuh"
#include "model-server/backend/cuda/kernels/stream_x.cuh"

enum { THREADS = SLICES * 32 };

/* Shared memory: sums, a word for last_block(), the ring, x. */
template <int TILES> static __device__ __forceinline__ unsigned char *ring_room(void)
{
    return dynamic_shared<unsigned char>() + stream_sums_bytes(8 * TILES);
}

/* This warp's slice of a tile for 8 * TILES rows; `x` provides the lane's fragments. */
template <class F, int TILES, class X, class RING>
static __device__ __forceinline__ void stream_slice(const stream_args &s, RING *ring,
                                                    const X (&x)[TILES],
                                                    typename F::T::sum (&acc)[TILES][4])
{
    /* otherwise registers do not suffice */
    enum { UNROLL = RING::SCARCE ? !F::GROUPED + 1 : F::OFFSETS && TILES > 1 ? 1 : 2 };
    const linear_args &a = s.l;
    const uint32_t end = ring->steps * F::STEP;
#pragma unroll UNROLL
    for (uint32_t k = 0; k < end; k += F::STEP) {
        const step_weights now = ring->take(s);
        [[maybe_unused]] float step[F::WHOLE ? TILES : 1][4] = {};
#pragma unroll
        for (int p = 0; p < F::PARTS; p++) {
            const uint4 w0 = F::widen(a.w, now.row[0], p), w1 = F::widen(a.w, now.row[1], p);
            part_scales<F> rows[2];
            if constexpr (F::GROUPED && !F::WHOLE)
                for (int i = 0; i < 2; i++)
                    rows[i].take(now.of_row(now.scales, i), now.of_row(now.offsets, i), p);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const uint4 fragment = x[i].at(k + p * (64 / F::T::BYTES));
                part_sums<F> sums;
                sums.take(a.w, fragment);
                if constexpr (F::WHOLE)
                    multiply_part<F>(step[i], w0, w1, fragment, rows, sums);
                else
                    multiply_part<F>(acc[i], w0, w1, fragment, rows, sums);
            }
        }
        if constexpr (F::WHOLE)
#pragma unroll
            for (int i = 0; i < TILES; i++)
                add_step(acc[i], step[i], {now.whole.x, now.whole.y});
    }
}

/* A warp's sums of its slice, [row][output]. */
template <class F, int TILES>
static __device__ __forceinline__ void leave_sums(typename F::T::sum *sums,
                                                  const typename F::T::sum (&acc)[TILES][4])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    typename F::T::sum *mine = sums + threadIdx.x / 32 * OUTS * 8 * TILES;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            mine[(8 * i + 2 * t + c % 2) * OUTS + g + c / 2 * 8] = acc[i][c];
}

/* Output `out` of row `row` of a tile: its slices added, then its terms applied. */
template <class F, int TILES>
static __device__ __forceinline__ float
total(const stream_args &s, const output_terms &terms, const stream_rows &rows,
      const typename F::T::sum *sums, uint32_t row, uint32_t out)
{
    typename F::T::sum sum = 0;
    for (int i = 0; i < SLICES; i++)
        sum += sums[i * OUTS * 8 * TILES + row * OUTS + out];
    return finish<F>(s.l, sum, terms, rows.x(s.l, row));
}

/* Output `out` of a tile as a row of W; with a gate 8 more is the one that it gates. */
static __device__ __forceinline__ uint32_t output_row(const linear_args &a, uint32_t tile,
                                                      uint32_t out)
{
    return weight_row(a, tile, out % 8, out / 8);
}
#endif
