/* group_sums.cu - sums of x over the groups of columns of weights with offsets, for linear_wgmma.
 *
 * They are MMAs with ones as weights, as in linear_mma.cuh: the same columns at the same places, so
 * the bits are those of the other products. A warp has 8 rows, and groups that are 8 * gridDim.y
 * apart. x is read once for each product, which reads it once for each 128 outputs. */
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"

enum { WARPS = 8, ROWS = 8 };

/* grid: (pitch / 8, parts of the groups) */
template <typename T>
static __global__ void __launch_bounds__(WARPS * 32) group_sums_kernel(group_sums_args a)
{
    const uint32_t lane = threadIdx.x % 32, t = lane % 4, row = blockIdx.x * ROWS + lane / 4;
    const uint32_t one = T::pack(1.0f, 1.0f), ones[4] = {one, one, one, one};
    const size_t width = (size_t)a.groups * a.columns;
    depend();
    for (uint32_t g = blockIdx.y * WARPS + threadIdx.x / 32; g < a.groups; g += gridDim.y * WARPS) {
        const uint32_t *x = (const uint32_t *)(a.x + row * width + (size_t)g * a.columns);
        float sum[4] = {};
        for (uint32_t i = 0; i < a.columns / 16; i++) {
            const uint32_t low = row < a.rows ? x[8 * i + t] : 0;
            const uint32_t high = row < a.rows ? x[8 * i + 4 + t] : 0;
            T::mma(sum, ones, low, high);
        }
        if (lane < 4) /* of rows 2t and 2t + 1 */
            *(float2 *)(a.y + (size_t)g * a.pitch + blockIdx.x * ROWS + 2 * t) =
                make_float2(sum[0], sum[1]);
    }
}

extern "C" cudaError_t group_sums_launch(const struct launch *l, const void *args)
{
    const group_sums_args *a = (const group_sums_args *)args;
    const uint32_t parts = (a->groups + WARPS - 1) / WARPS;
    const dim3 grid(a->pitch / ROWS, parts < 16 ? parts : 16);
    return a->dtype == DT_F16
               ? launch(group_sums_kernel<F16>, grid, WARPS * 32, 0, l->stream, l->overlap, *a)
               : launch(group_sums_kernel<Bf16>, grid, WARPS * 32, 0, l->stream, l->overlap, *a);
}
