/* random.cu - generates random weights on the device: no host memory, no copy. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"
#define inline __host__ __device__ inline
#include "model-server/backend/random_tensor.h"
#undef inline

enum { THREADS = 256, MOST_ROWS = 65535 };

/* grid: (pitch / THREADS, rows or MOST_ROWS) */
static __global__ void __launch_bounds__(THREADS) random_kernel(random_args a)
{
    depend();
    const uint32_t col = blockIdx.x * THREADS + threadIdx.x;
    const random_tensor of = {a.seed, a.mean, a.spread};
    if (col >= a.pitch)
        return;
    for (uint32_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        uint16_t v = 0; /* the padding */
        if (col < a.cols)
            v = random_element(of, a.first + row * a.row_stride + col * a.col_stride);
        const size_t at = (size_t)row * a.pitch + col;
        if (a.dtype == DT_F32)
            ((float *)a.w)[at] = f32_of_bf16(v);
        else
            ((uint16_t *)a.w)[at] = a.dtype == DT_BF16 ? v : f16_of_f32(f32_of_bf16(v));
    }
}

extern "C" cudaError_t random_launch(const struct launch *l, const void *args)
{
    const random_args *a = (const random_args *)args;
    return launch(
        random_kernel,
        dim3((a->pitch + THREADS - 1) / THREADS, a->rows < MOST_ROWS ? a->rows : MOST_ROWS),
        THREADS, 0, l->stream, l->overlap, *a);
}
