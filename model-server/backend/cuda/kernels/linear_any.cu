/* linear_any.cu - products in fp32 arithmetic for every type of weights, with the bits of the CPU
 * backend (except int4, where the CPU rounds x); w8a8 in integers.
 *
 * One output is one chain of fused multiply-adds over k = 0 .. K - 1, as in
 * backend/cpu/kernels/kernels.h, and scales are applied last. So results are compared with the CPU's bit
 * by bit. It is used for fp32 weights and if tensor cores are disabled; it is not optimised: a
 * block of 64 x 64 outputs, 4 x 4 per thread, columns of 16 staged in shared memory (8.5 KiB),
 * 256 threads. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/stored.cuh"

enum { TILE = 64, K_TILE = 16, PAD = 4, THREADS = 256, EACH = 4 };

template <typename SUM> struct any_tile {
    SUM w[K_TILE][TILE + PAD], x[K_TILE][TILE + PAD];
};

static __device__ float add_product(float w, float x, float sum) { return fmaf(w, x, sum); }
static __device__ int32_t add_product(int32_t w, int32_t x, int32_t sum) { return sum + w * x; }

/* Element k of a row of x: unchanged, or rounded for w8a8. */
static __device__ void load_x(float *to, const linear_args &a, size_t row, uint32_t k)
{
    *to = a.x[row * a.w.cols + k];
}
static __device__ void load_x(int32_t *to, const linear_args &a, size_t row, uint32_t k)
{
    *to = ((const int8_t *)a.narrow)[row * k_padded(a.w.cols, a.w.quant) + k];
}

/* Rows of x of a block; for an expert, the numbers of its pairs. */
template <typename SUM>
static __device__ void any_block(const linear_args &a, const void *w, const uint32_t *list,
                                 uint32_t rows, uint32_t first_row, any_tile<SUM> *s)
{
    const uint32_t first_out = blockIdx.x * TILE, cols = a.w.cols;
    const uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    SUM acc[EACH][EACH] = {};
    for (uint32_t k0 = 0; k0 < cols; k0 += K_TILE) {
        for (uint32_t i = threadIdx.x; i < TILE * K_TILE; i += THREADS) {
            uint32_t k = i % K_TILE, r = i / K_TILE, out = first_out + r, row = first_row + r;
            bool in = k0 + k < cols;
            s->w[k][r] = in && out < a.w.rows ? (SUM)stored_at(a.w, w, out, k0 + k) : 0;
            s->x[k][r] = 0;
            if (in && row < rows)
                load_x(&s->x[k][r], a, list ? list[row] / a.per_row : row, k0 + k);
        }
        __syncthreads();
        uint32_t n = cols - k0 < K_TILE ? cols - k0 : K_TILE; /* padding would turn -0 to 0 */
        for (uint32_t k = 0; k < n; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    acc[i][j] =
                        add_product(s->w[k][ty * EACH + i], s->x[k][tx * EACH + j], acc[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        uint32_t row = first_row + tx * EACH + j;
        if (row >= rows)
            continue;
        size_t to = (size_t)(list ? list[row] : row) * a.w.rows;
        float of_row = a.x_scale ? a.x_scale[list ? list[row] / a.per_row : row] : 1.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t out = first_out + ty * EACH + i;
            if (out >= a.w.rows)
                continue;
            float y = (float)acc[i][j] * (row_scale(a.w, w, out) * of_row);
            a.y[to + out] = a.bias ? y + a.bias[out] : y;
        }
    }
}

/* grid: (outputs / 64, rows / 64), or (outputs / 64, experts) */
template <typename SUM>
static __global__ void __launch_bounds__(THREADS, 1) linear_any_kernel(linear_args a)
{
    any_tile<SUM> *s = dynamic_shared<any_tile<SUM>>();
    depend();
    if (!a.table) {
        any_block<SUM>(a, a.w.data, NULL, a.rows, blockIdx.y * TILE, s);
        return;
    }
    const uint32_t *list = a.list + a.begin[blockIdx.y];
    uint32_t n = a.begin[blockIdx.y + 1] - a.begin[blockIdx.y];
    for (uint32_t first = 0; first < n; first += TILE)
        any_block<SUM>(a, a.table[blockIdx.y], list, n, first, s);
}

extern "C" cudaError_t linear_any_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    dim3 grid((a->w.rows + TILE - 1) / TILE, a->table ? a->experts : (a->rows + TILE - 1) / TILE);
    if (a->w.quant == QUANT_W8A8)
        return launch(linear_any_kernel<int32_t>, grid, THREADS, sizeof(any_tile<int32_t>),
                      l->stream, l->overlap, *a);
    return launch(linear_any_kernel<float>, grid, THREADS, sizeof(any_tile<float>), l->stream,
                  l->overlap, *a);
}
