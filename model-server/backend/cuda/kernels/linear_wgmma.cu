/* linear_wgmma.cu - wgmma_tile.cuh's products of weights in 16 bits. */
#include "model-server/backend/cuda/kernels/wgmma_tile.cuh"

extern "C" cudaError_t linear_wgmma_launch(const struct launch *l, const void *args)
{
    const linear_args *a = (const linear_args *)args;
    switch (a->w.quant) {
    case QUANT_NONE:
        return a->w.dtype == DT_F16 ? start_end<Direct<F16>>(l, a) : start_end<Direct<Bf16>>(l, a);
    case QUANT_INT8:
    case QUANT_FP8:
    case PACKED_E4M3:
        return linear_bytes_wgmma(l, a);
    case QUANT_W8A8:
    case PACKED_8:
        return linear_codes_wgmma(l, a);
    }
    return linear_nibbles_wgmma(l, a);
}
