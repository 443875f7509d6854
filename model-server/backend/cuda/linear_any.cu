/* linear_any.cu - products in fp32 arithmetic for every type of weights: the bits of the CPU
 * backend.
 *
 * One output is one chain of fused multiply-adds over k = 0 .. K - 1, as backend/cpu/kernels.h
 * promises, so results are compared with it bit by bit. Serves fp32 weights and the switch that
 * turns tensor cores off; it is not built to be fast: a block of 64 x 64 outputs, 4 x 4 a thread,
 * columns of 16 staged in shared memory (8.5 KiB), 256 threads. */
#include "model-server/backend/cuda/device.cuh"
#include "model-server/backend/cuda/kernels.h"
#include "model-server/backend/cuda/numbers.cuh"

enum { TILE = 64, K_TILE = 16, PAD = 4, THREADS = 256, EACH = 4 };

struct any_tile {
    float w[K_TILE][TILE + PAD], x[K_TILE][TILE + PAD];
};

/* Rows of x that a block takes; of an expert, the numbers of its pairs. */
static __device__ void any_block(const linear_args &a, const void *w, const uint32_t *list,
                                 uint32_t rows, uint32_t first_row, any_tile *s)
{
    uint32_t first_out = blockIdx.x * TILE, pitch = k_padded(a.k);
    uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float acc[EACH][EACH] = {};
    for (uint32_t k0 = 0; k0 < a.k; k0 += K_TILE) {
        for (uint32_t i = threadIdx.x; i < TILE * K_TILE; i += THREADS) {
            uint32_t k = i % K_TILE, r = i / K_TILE, out = first_out + r, row = first_row + r;
            bool in = k0 + k < a.k;
            s->w[k][r] = in && out < a.n ? number_at(w, (enum dtype)a.dtype,
                                                     (int64_t)((size_t)out * pitch + k0 + k))
                                         : 0.0f;
            if (in && row < rows)
                row = list ? list[row] / a.per_row : row;
            else
                in = false;
            s->x[k][r] = in ? a.x[(size_t)row * a.k + k0 + k] : 0.0f;
        }
        __syncthreads();
        uint32_t n = a.k - k0 < K_TILE ? a.k - k0 : K_TILE; /* padding would turn -0 to 0 */
        for (uint32_t k = 0; k < n; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    acc[i][j] = fmaf(s->w[k][ty * EACH + i], s->x[k][tx * EACH + j], acc[i][j]);
        __syncthreads();
    }
    for (int j = 0; j < EACH; j++) {
        uint32_t row = first_row + tx * EACH + j;
        if (row >= rows)
            continue;
        size_t to = (size_t)(list ? list[row] : row) * a.n;
        for (int i = 0; i < EACH; i++) {
            uint32_t out = first_out + ty * EACH + i;
            if (out < a.n)
                a.y[to + out] = a.bias ? acc[i][j] + a.bias[out] : acc[i][j];
        }
    }
}

/* grid: (outputs / 64, rows / 64), or (outputs / 64, experts) */
static __global__ void __launch_bounds__(THREADS) linear_any_kernel(linear_args a)
{
    any_tile *s = dynamic_shared<any_tile>();
    depend();
    if (!a.table) {
        any_block(a, a.w, NULL, a.rows, blockIdx.y * TILE, s);
        return;
    }
    const uint32_t *list = a.list + a.begin[blockIdx.y];
    uint32_t n = a.begin[blockIdx.y + 1] - a.begin[blockIdx.y];
    for (uint32_t first = 0; first < n; first += TILE)
        any_block(a, a.table[blockIdx.y], list, n, first, s);
}

extern "C" cudaError_t linear_any_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    dim3 grid((a->n + TILE - 1) / TILE, a->table ? a->experts : (a->rows + TILE - 1) / TILE);
    return launch(linear_any_kernel, grid, THREADS, sizeof(any_tile), l->stream, l->overlap, *a);
}
