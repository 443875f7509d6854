/* linear_bytes_wgmma.cu - wgmma_tile.cuh's products of weights in 8 bits with a scale for each
 * output, int8 and fp8, and of fp8 with one for each output and 64 columns: less to copy than of weights in 16 bits, and as many products. */
#include "model-server/backend/cuda/kernels/wgmma_tile.cuh"

extern "C" cudaError_t linear_bytes_wgmma(const struct launch *l, const struct linear_args *a)
{
    const bool f16 = a->w.dtype == DT_F16;
    if (a->w.quant == PACKED_E4M3)
        return f16 ? start_end<Byte<F16, PACKED_E4M3>>(l, a)
                   : start_end<Byte<Bf16, PACKED_E4M3>>(l, a);
    if (a->w.quant == QUANT_FP8)
        return f16 ? start_end<Byte<F16, QUANT_FP8>>(l, a) : start_end<Byte<Bf16, QUANT_FP8>>(l, a);
    return f16 ? start_end<Byte<F16, QUANT_INT8>>(l, a) : start_end<Byte<Bf16, QUANT_INT8>>(l, a);
}
