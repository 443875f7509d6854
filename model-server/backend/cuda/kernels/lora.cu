/* lora.cu - low-rank updates of the rows of a step, each by its own adapter (after Punica's BGMV,
 * Chen et al. 2023, and S-LoRA, Sheng et al. 2023).
 *
 * lora_down: an element of u is the dot product of a row of A and a row of x, by one warp: lane l
 * adds the products of columns 8 l .., 8 l + 256 .. in ascending order, a butterfly adds the
 * lanes. A warp computes 4 ranks for the up to 4 tokens of a tile at once, a block 16 ranks, so
 * that x is read once from the L2 cache. lora_up: an element of y is one chain over the ranks,
 * ascending, as on the CPU. So a row's bits do not depend on its tile or on other rows. All
 * arithmetic is fp32: both kernels are limited by reading A and B, except for long prompts. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, RANKS = LORA_RANKS / WARPS, COLUMNS = 8, OUTS = 2 };

/* Columns [k, k + 8) of a row of `n`, zeros past the end. `whole`: the length of rows is a
 * multiple of 8. */
static __device__ __forceinline__ void row_of_x(float (&f)[8], const float *row, uint32_t k,
                                                uint32_t n, bool whole)
{
    if (whole) {
        const float4 lo = *(const float4 *)(row + k), hi = *(const float4 *)(row + k + 4);
        f[0] = lo.x, f[1] = lo.y, f[2] = lo.z, f[3] = lo.w;
        f[4] = hi.x, f[5] = hi.y, f[6] = hi.z, f[7] = hi.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            f[i] = k + i < n ? row[k + i] : 0.0f;
    }
}
/* A row of A begins on a boundary of 64 bytes. */
static __device__ __forceinline__ void row_of_a(float (&f)[8], const void *row, enum dtype t,
                                                uint32_t k, uint32_t n, bool whole)
{
    if (t == DT_F32) {
        row_of_x(f, (const float *)row, k, n, whole);
        return;
    }
    const uint16_t *p = (const uint16_t *)row + k;
    uint32_t pairs[4];
    if (whole) {
        const uint4 v = *(const uint4 *)p;
        pairs[0] = v.x, pairs[1] = v.y, pairs[2] = v.z, pairs[3] = v.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            pairs[i] = (k + 2 * i < n ? p[2 * i] : 0u) |
                       (uint32_t)(k + 2 * i + 1 < n ? p[2 * i + 1] : 0u) << 16;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint16_t h = (uint16_t)(i % 2 ? pairs[i / 2] >> 16 : pairs[i / 2]);
        f[i] = t == DT_F16 ? f32_of_f16(h) : f32_of_bf16(h);
    }
}

/* Element [token][part][r] of a tile's u. */
static __device__ __forceinline__ float *u_at(const lora_args &a, uint32_t tile, uint32_t token,
                                              uint32_t part, uint32_t r)
{
    return a.u + (((size_t)tile * LORA_TOKENS + token) * LORA_MAX_PARTS + part) * a.rank + r;
}

/* grid: (tiles, ranks / LORA_RANKS, parts) */
static __global__ void __launch_bounds__(THREADS) lora_down_kernel(lora_args a)
{
    depend();
    const lora_tile tile = a.tiles[blockIdx.x];
    const lora_view &of = a.of[tile.adapter];
    if (blockIdx.z >= of.n_parts)
        return;
    const lora_part part = of.part[blockIdx.z];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t first = blockIdx.y * LORA_RANKS + threadIdx.x / 32 * RANKS;
    if (first >= part.rank) /* the whole warp: no other one waits for it */
        return;
    const bool whole = a.x_width % 8 == 0;
    const void *rows[RANKS];
    const float *x[LORA_TOKENS];
    float sum[RANKS][LORA_TOKENS] = {};
#pragma unroll
    for (uint32_t r = 0; r < RANKS; r++) /* past the end the last one again: it is not used */
        rows[r] = part.a[first + r < part.rank ? first + r : part.rank - 1];
#pragma unroll
    for (uint32_t t = 0; t < LORA_TOKENS; t++)
        x[t] = a.x + (size_t)(tile.first + (t < tile.n ? t : tile.n - 1)) * a.x_width;
    for (uint32_t k = lane * COLUMNS; k < a.x_width; k += 32 * COLUMNS) {
        float f[RANKS][8];
#pragma unroll
        for (uint32_t r = 0; r < RANKS; r++)
            row_of_a(f[r], rows[r], (enum dtype)part.dtype, k, a.x_width, whole);
#pragma unroll
        for (uint32_t t = 0; t < LORA_TOKENS; t++) {
            float g[8];
            if (t >= tile.n)
                break;
            row_of_x(g, x[t], k, a.x_width, whole);
#pragma unroll
            for (uint32_t r = 0; r < RANKS; r++)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[r][t] = fmaf(f[r][i], g[i], sum[r][t]);
        }
    }
#pragma unroll
    for (uint32_t t = 0; t < LORA_TOKENS; t++)
#pragma unroll
        for (uint32_t r = 0; r < RANKS; r++) {
            const float v = warp_sum(sum[r][t]);
            if (lane == 0 && t < tile.n && first + r < part.rank)
                *u_at(a, blockIdx.x, t, blockIdx.z, first + r) = v;
        }
}

extern "C" cudaError_t lora_down_launch(const struct launch *l, const void *args)
{
    const lora_args *a = (const lora_args *)args;
    dim3 grid(a->n_tiles, (a->rank + LORA_RANKS - 1) / LORA_RANKS, LORA_MAX_PARTS);
    return launch(lora_down_kernel, grid, THREADS, 0, l->stream, l->overlap, *a);
}

/* A block's data of its part, for LORA_MAX_RANK ranks: 12 KiB. */
struct up_shared {
    const void *row[LORA_MAX_RANK];
    float u[LORA_MAX_RANK][LORA_TOKENS]; /* scaled */
};

/* grid: (tiles, outputs / (THREADS * OUTS), parts) */
static __global__ void __launch_bounds__(THREADS) lora_up_kernel(lora_args a)
{
    up_shared *s = dynamic_shared<up_shared>();
    depend();
    const lora_tile tile = a.tiles[blockIdx.x];
    const lora_view &of = a.of[tile.adapter];
    if (blockIdx.z >= of.n_parts)
        return;
    const lora_part &part = of.part[blockIdx.z];
    const uint32_t first = blockIdx.y * THREADS * OUTS + threadIdx.x;
    if (blockIdx.y * THREADS * OUTS >= part.n)
        return;
    for (uint32_t r = threadIdx.x; r < part.rank; r += THREADS) {
        s->row[r] = part.b[r];
        for (uint32_t t = 0; t < tile.n; t++)
            s->u[r][t] = part.scale * *u_at(a, blockIdx.x, t, blockIdx.z, r);
    }
    __syncthreads();
    float *y = a.y + (size_t)tile.first * a.y_width + part.first;
    float sum[OUTS][LORA_TOKENS];
#pragma unroll
    for (uint32_t c = 0; c < OUTS; c++)
#pragma unroll
        for (uint32_t t = 0; t < LORA_TOKENS; t++)
            sum[c][t] = t < tile.n && first + c * THREADS < part.n
                            ? y[(size_t)t * a.y_width + first + c * THREADS]
                            : 0.0f;
#pragma unroll 4
    for (uint32_t r = 0; r < part.rank; r++) {
        const void *row = s->row[r];
#pragma unroll
        for (uint32_t c = 0; c < OUTS; c++) {
            const uint32_t i = first + c * THREADS;
            const float b = i < part.n ? number_at(row, (enum dtype)part.dtype, i) : 0.0f;
#pragma unroll
            for (uint32_t t = 0; t < LORA_TOKENS; t++)
                if (t < tile.n)
                    sum[c][t] = fmaf(s->u[r][t], b, sum[c][t]);
        }
    }
#pragma unroll
    for (uint32_t c = 0; c < OUTS; c++)
#pragma unroll
        for (uint32_t t = 0; t < LORA_TOKENS; t++)
            if (t < tile.n && first + c * THREADS < part.n)
                y[(size_t)t * a.y_width + first + c * THREADS] = sum[c][t];
}

extern "C" cudaError_t lora_up_launch(const struct launch *l, const void *args)
{
    const lora_args *a = (const lora_args *)args;
    dim3 grid(a->n_tiles, (a->outs + THREADS * OUTS - 1) / (THREADS * OUTS), LORA_MAX_PARTS);
    return launch(lora_up_kernel, grid, THREADS, sizeof(up_shared), l->stream, l->overlap, *a);
}
