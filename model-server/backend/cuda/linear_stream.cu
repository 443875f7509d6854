/* linear_stream.cu - products of few rows, on tensor cores: a decode step, bound by reading the
 * weights once.
 *
 * The weights are the M operand: a block has 16 outputs, its 8 warps one slice of k each (see
 * linear_mma.cuh), 8 or 16 rows of x are the N operand. Weights go from global memory to registers
 * and no further: lane (g, t) reads 16 bytes at columns 32 j + 8 t of rows g and g + 8, which are
 * its fragments of two MMAs once x is read at the same columns. STEPS such loads of each row are in
 * flight all the time, the first of them issued before the wait for the preceding kernel, since
 * weights do not depend on it. For 2 blocks of 8 warps a multiprocessor that is 64 KiB in flight;
 * 26 KiB are needed by Little's law on an H200 (4.3 TB/s, 0.8 us).
 *
 * Tiles: 16 outputs x 8 (16) rows x K / 8 a warp. Shared memory: 4 (8) KiB for the sum of slices.
 * Written after: calm (zeux) and Megakernels (Hazy Research) for the streaming, MARLIN for weights
 * as M. */
#include "model-server/backend/cuda/linear_mma.cuh"

enum { THREADS = SLICES * 32, OUTS = 16 };

/* Columns [k, k + 8) of a row of x as fragments; past the end, and for rows that are not there:
 * zeros. */
template <typename T>
static __device__ uint4 load_x(const float *x, uint32_t k, uint32_t n, bool aligned)
{
    float f[8];
    if (x && aligned) {
        float4 lo = *(const float4 *)(x + k), hi = *(const float4 *)(x + k + 4);
        f[0] = lo.x, f[1] = lo.y, f[2] = lo.z, f[3] = lo.w;
        f[4] = hi.x, f[5] = hi.y, f[6] = hi.z, f[7] = hi.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            f[i] = x && k + i < n ? x[k + i] : 0.0f;
    }
    return make_uint4(T::pack(f[0], f[1]), T::pack(f[2], f[3]), T::pack(f[4], f[5]),
                      T::pack(f[6], f[7]));
}

/* Which row of x and of y a column of the tile is. */
struct stream_rows {
    const uint32_t *list;
    uint32_t n, first;
    __device__ bool has(uint32_t i) const { return first + i < n; }
    __device__ size_t x(const linear_args &a, uint32_t i) const
    {
        return list ? list[first + i] / a.per_row : first + i;
    }
    __device__ size_t y(uint32_t i) const { return list ? list[first + i] : first + i; }
};

template <typename T, int TILES, int STEPS>
static __device__ void stream_block(const linear_args &a, const uint16_t *w, stream_rows rows,
                                    uint4 (&ahead)[STEPS][2], float *sums)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t begin = slice_begin(a.k, warp) / 32, end = slice_begin(a.k, warp + 1) / 32;
    const bool aligned = a.k % K_ALIGN == 0;
    const float *x[TILES];
    float acc[TILES][4] = {};
#pragma unroll
    for (int i = 0; i < TILES; i++)
        x[i] = rows.has(8 * i + g) ? a.x + rows.x(a, 8 * i + g) * a.k : NULL;
    for (uint32_t at = begin; at < end; at += STEPS) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (at + s >= end)
                break;
            const uint4 w0 = ahead[s][0], w1 = ahead[s][1];
            if (at + s + STEPS < end)
                load_weights(ahead[s], w, a, blockIdx.x * OUTS + g, 8, at + s + STEPS, t);
#pragma unroll
            for (int i = 0; i < TILES; i++)
                mma_pair<T>(acc[i], w0, w1, load_x<T>(x[i], (at + s) * 32 + 8 * t, a.k, aligned));
        }
    }
    float *mine = sums + warp * OUTS * 8 * TILES;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) /* [row][output] */
            mine[(8 * i + 2 * t + c % 2) * OUTS + g + c / 2 * 8] = acc[i][c];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < OUTS * 8 * TILES; i += THREADS) {
        uint32_t row = i / OUTS, out = blockIdx.x * OUTS + i % OUTS;
        float sum = 0.0f;
        for (int s = 0; s < SLICES; s++)
            sum += sums[s * OUTS * 8 * TILES + i];
        if (rows.has(row) && out < a.n)
            a.y[rows.y(row) * a.n + out] = a.bias ? sum + a.bias[out] : sum;
    }
}

template <int STEPS>
static __device__ void stream_start(const linear_args &a, const uint16_t *w,
                                    uint4 (&ahead)[STEPS][2])
{
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t begin = slice_begin(a.k, warp) / 32, end = slice_begin(a.k, warp + 1) / 32;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        if (begin + s < end)
            load_weights(ahead[s], w, a, blockIdx.x * OUTS + g, 8, begin + s, t);
}

/* grid: (outputs / 16); up to 8 * TILES rows */
template <typename T, int TILES, int STEPS>
static __global__ void __launch_bounds__(THREADS, 2) linear_stream_kernel(linear_args a)
{
    uint4 ahead[STEPS][2];
    stream_start<STEPS>(a, (const uint16_t *)a.w, ahead);
    depend();
    stream_block<T, TILES, STEPS>(a, (const uint16_t *)a.w, stream_rows{NULL, a.rows, 0}, ahead,
                                  dynamic_shared<float>());
}

/* grid: (outputs / 16, experts); 8 pairs at a time, the weights from the second time on from the
 * second-level cache. */
template <typename T, int STEPS>
static __global__ void __launch_bounds__(THREADS, 2) linear_experts_kernel(linear_args a)
{
    uint4 ahead[STEPS][2];
    depend();
    const uint16_t *w = (const uint16_t *)a.table[blockIdx.y];
    const uint32_t first = a.begin[blockIdx.y], n = a.begin[blockIdx.y + 1] - first;
    for (uint32_t i = 0; i < n; i += 8) {
        stream_start<STEPS>(a, w, ahead);
        stream_block<T, 1, STEPS>(a, w, stream_rows{a.list + first, n, i}, ahead,
                                  dynamic_shared<float>());
        __syncthreads(); /* the sums have been read */
    }
}

template <typename T> static cudaError_t start(const struct launch *l, const linear_args *a)
{
    const uint32_t blocks = (a->n + OUTS - 1) / OUTS;
    const size_t smem = SLICES * OUTS * 8 * sizeof(float);
    if (a->table)
        return launch(linear_experts_kernel<T, 4>, dim3(blocks, a->experts), THREADS, smem,
                      l->stream, l->overlap, *a);
    if (a->rows <= 8)
        return launch(linear_stream_kernel<T, 1, 4>, blocks, THREADS, smem, l->stream, l->overlap,
                      *a);
    return launch(linear_stream_kernel<T, 2, 4>, blocks, THREADS, 2 * smem, l->stream, l->overlap,
                  *a);
}

extern "C" cudaError_t linear_stream_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    return a->dtype == DT_F16 ? start<F16>(l, a) : start<Bf16>(l, a);
}
