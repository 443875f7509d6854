/* linear_chain.cu - products in fp32 of few rows or few outputs: the routers of mixtures, and
 * decode steps of float32 models. The bits of linear_any and the CPU backend.
 *
 * One output is one chain of fused multiply-adds over k, 4 cycles each: 2048 columns take 5 us,
 * whatever is done. So a block has few outputs (8, of up to 16 rows), a thread one of them, and
 * everything else is hidden behind the chain: 256 columns of the weights and of x at a time go to
 * shared memory, STAGES - 1 of them ahead; the first weights before the wait for the preceding
 * kernel. Rows in shared memory are 4 floats longer than a stage, so that 8 of them are in
 * different banks. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

enum { OUTS = 8, ROWS = 16, COLUMNS = 256, STAGES = 4, THREADS = OUTS * ROWS };
enum { FOURS = COLUMNS / 4, PITCH = COLUMNS + 4 };

struct chain_stage {
    float w[OUTS][PITCH], x[ROWS][PITCH];
};

static __device__ __forceinline__ uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

/* Copies columns [k, k + COLUMNS) of `n` rows from `first` on, as far as there are any. */
static __device__ __forceinline__ void copy_rows(float (*to)[PITCH], const float *from,
                                                 uint32_t first, uint32_t n, uint32_t cols,
                                                 uint32_t k)
{
    for (uint32_t i = threadIdx.x; i < n * FOURS; i += THREADS) {
        const uint32_t column = k + i % FOURS * 4;
        if (column < cols)
            copy_async(&to[i / FOURS][i % FOURS * 4],
                       from + (size_t)(first + i / FOURS) * cols + column, true);
    }
}

static __device__ __forceinline__ float chain(const float *w, const float *x, uint32_t n, float sum)
{
#pragma unroll 8
    for (uint32_t k = 0; k < n; k += 4) {
        const float4 a = *(const float4 *)(w + k), b = *(const float4 *)(x + k);
        sum = fmaf(a.x, b.x, sum), sum = fmaf(a.y, b.y, sum);
        sum = fmaf(a.z, b.z, sum), sum = fmaf(a.w, b.w, sum);
    }
    return sum;
}

/* grid: (outputs / OUTS, rows / ROWS) */
static __global__ void __launch_bounds__(THREADS) linear_chain_kernel(linear_args a)
{
    chain_stage *s = dynamic_shared<chain_stage>();
    const uint32_t cols = a.w.cols, first_out = blockIdx.x * OUTS, first_row = blockIdx.y * ROWS;
    const uint32_t outs = at_most(a.w.rows - first_out, OUTS);
    const uint32_t rows = at_most(a.rows - first_row, ROWS);
    const uint32_t out = threadIdx.x % OUTS, row = threadIdx.x / OUTS;
    const float *w = (const float *)a.w.data;
    float sum = 0.0f;
    depend_start();
    for (uint32_t i = 0; i + 1 < STAGES; i++)
        copy_rows(s[i].w, w, first_out, outs, cols, i * COLUMNS);
    depend_wait();
    for (uint32_t i = 0; i + 1 < STAGES; i++) {
        copy_rows(s[i].x, a.x, first_row, rows, cols, i * COLUMNS);
        copy_commit();
    }
    for (uint32_t k = 0, i = 0; k < cols; k += COLUMNS, i = (i + 1) % STAGES) {
        copy_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and the one before it has been used */
        const uint32_t ahead = k + (STAGES - 1) * COLUMNS, to = (i + STAGES - 1) % STAGES;
        copy_rows(s[to].w, w, first_out, outs, cols, ahead);
        copy_rows(s[to].x, a.x, first_row, rows, cols, ahead);
        copy_commit();
        if (out < outs && row < rows)
            sum = chain(s[i].w[out], s[i].x[row], at_most(cols - k, COLUMNS), sum);
    }
    if (out < outs && row < rows)
        a.y[(size_t)(first_row + row) * a.w.rows + first_out + out] =
            a.bias ? sum + a.bias[first_out + out] : sum;
}

extern "C" cudaError_t linear_chain_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    const dim3 grid((a->w.rows + OUTS - 1) / OUTS, (a->rows + ROWS - 1) / ROWS);
    return launch(linear_chain_kernel, grid, THREADS, STAGES * sizeof(chain_stage), l->stream,
                  l->overlap, *a);
}
