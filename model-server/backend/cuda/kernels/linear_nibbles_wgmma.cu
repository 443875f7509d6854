/* linear_nibbles_wgmma.cu - wgmma_tile.cuh's products of weights in 4 bits with a scale for each
 * group of columns. */
#include "model-server/backend/cuda/kernels/wgmma_tile.cuh"

template <typename T>
static cudaError_t start_codes(const struct launch *l, const struct linear_args *a)
{
    switch (a->w.quant) {
    case QUANT_INT4:
        return start_end<Nibble<T, QUANT_INT4>>(l, a);
    case PACKED_4:
        return start_end<Nibble<T, PACKED_4>>(l, a);
    }
    return start_end<Nibble<T, PACKED_TABLE>>(l, a);
}

extern "C" cudaError_t linear_nibbles_wgmma(const struct launch *l, const struct linear_args *a)
{
    if (a->w.quant == PACKED_FP4)
        return start_end<Nibble<Bf16, PACKED_FP4>>(l, a);
    return a->w.dtype == DT_F16 ? start_codes<F16>(l, a) : start_codes<Bf16>(l, a);
}
