/* hadamard.cuh - caches in 4 bits: heads are rotated, then rounded, with the bits of the CPU
 * backend (backend/cpu/hadamard.h, and rotate_and_quantise() in backend/cpu/kv.c).
 *
 * The rotation multiplies each run of hadamard_size() adjacent numbers with the Hadamard matrix H
 * of that size (QuaRot, arXiv 2404.00456). H H = n: the scales contain 1 / n. A head's row in the
 * cache is words of 8 numbers, kv_row_numbers() in all: number c of a word, plus 8, is in nibble
 * c / 2 + c % 2 * 4, so that a mask takes two neighbours to either half of a word. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_HADAMARD_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_HADAMARD_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"

enum { WORD_NUMBERS = 8, MIDDLE = 8 };

static __device__ __forceinline__ uint32_t nibble_at(uint32_t c) { return 4 * (c / 2 + c % 2 * 4); }

/* Number i of a row. */
static __device__ __forceinline__ float number_of_4_bits(const char *row, uint32_t i)
{
    const uint32_t word = ((const uint32_t *)row)[i / WORD_NUMBERS];
    return (float)((int)(word >> nibble_at(i % WORD_NUMBERS) & 15) - MIDDLE);
}

/* x = H x for `n` numbers, a multiple of `size`, in shared memory, by one warp that has written
 * them. The order of the sums is the CPU's. */
static __device__ __forceinline__ void hadamard_warp(float *x, uint32_t n, uint32_t size,
                                                     uint32_t lane)
{
    for (uint32_t half = 1; half < size; half *= 2) {
        __syncwarp();
        for (uint32_t i = lane; i < n / 2; i += 32) {
            float *at = x + i / half * 2 * half + i % half;
            const float a = at[0], b = at[half];
            at[0] = a + b, at[half] = a - b;
        }
    }
    __syncwarp();
}

/* Rounded to even, in [-8, 7]. */
static __device__ __forceinline__ float int4_of(float steps)
{
    const float magic = 0x1.8p23f, n = steps + magic - magic;
    return n < -8.0f ? -8.0f : n > 7.0f ? 7.0f : n;
}

/* The number of the greatest magnitude, the first of equals; `finite`: all are. */
static __device__ __forceinline__ float greatest_of(const float *v, uint32_t n, uint32_t lane,
                                                    bool *finite)
{
    uint32_t top = 0, at = UINT32_MAX; /* magnitudes as bits: NaN is above infinity */
    for (uint32_t i = lane; i < n; i += 32) {
        const uint32_t bits = bits_of(v[i]) & 0x7fffffff;
        at = bits > top || at == UINT32_MAX ? i : at;
        top = bits > top ? bits : top;
    }
    const uint32_t all = warp_fold(top, [](uint32_t a, uint32_t b) { return b > a ? b : a; });
    at = top == all ? at : UINT32_MAX;
    at = warp_fold(at, [](uint32_t a, uint32_t b) { return b < a ? b : a; });
    *finite = all < 0x7f800000;
    return v[at];
}

/* Squared error of rounding to steps of 1 / to. Half of the warp has this `to`: sixteen sums of
 * every sixteenth number, added in their order. */
static __device__ __forceinline__ float lost_by(const float *v, uint32_t n, float to, uint32_t lane)
{
    enum { SUMS = 16 };
    const float step = 1.0f / to;
    float sum = 0.0f, all = 0.0f;
    for (uint32_t i = lane % SUMS; i < n; i += SUMS) {
        const float d = int4_of(v[i] * to) * step - v[i];
        sum += d * d;
    }
    for (uint32_t i = 0; i < SUMS; i++)
        all += __shfl_sync(~0u, sum, (int)(lane / SUMS * SUMS + i));
    return all;
}

/* The number of steps per unit with the smallest error: the greatest magnitude becomes a number
 * between -7 and -11. Each half of the warp tries every second one. */
static __device__ __forceinline__ float best_steps(const float *v, uint32_t n, float most,
                                                   uint32_t lane)
{
    enum { FIRST = 14, LAST = 22 };
    float best = 0.0f, least = INFINITY;
    for (int i = FIRST; i <= LAST; i += 2) {
        const float to = -(float)(i + (int)lane / 16) / 2.0f / most;
        const float lost = lost_by(v, n, to, lane);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float lost_j = __shfl_sync(~0u, lost, 16 * j);
            const float to_j = __shfl_sync(~0u, to, 16 * j);
            if (i + j <= LAST && lost_j < least)
                least = lost_j, best = to_j;
        }
    }
    return best;
}

/* Rotates v, n numbers in shared memory that the warp has written, and stores them to a row of the
 * cache. Returns their scale, NaN if one is not finite. */
static __device__ __forceinline__ float store_4_bits(char *row, float *v, uint32_t n, uint32_t lane)
{
    const uint32_t size = hadamard_size(n);
    bool finite;
    hadamard_warp(v, n, size, lane);
    const float most = greatest_of(v, n, lane, &finite), magnitude = fabsf(most);
    const bool some = finite && magnitude >= 0x1p-60f && magnitude <= 0x1p60f;
    const float to = some ? best_steps(v, n, most, lane) : 0.0f;
    for (uint32_t w = lane; w < (n + WORD_NUMBERS - 1) / WORD_NUMBERS; w += 32) {
        uint32_t word = 0;
        for (uint32_t c = 0; c < WORD_NUMBERS; c++) {
            const uint32_t i = w * WORD_NUMBERS + c;
            const int code = i < n && some ? (int)int4_of(v[i] * to) : 0;
            word |= (uint32_t)(code + MIDDLE) << nibble_at(c);
        }
        ((uint32_t *)row)[w] = word;
    }
    return !finite ? NAN : some ? 1.0f / to / (float)size : 0.0f;
}
#endif
