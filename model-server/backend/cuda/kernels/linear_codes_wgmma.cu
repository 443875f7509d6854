/* linear_codes_wgmma.cu - wgmma_tile.cuh's products of integers: of w8a8, whose sums are exact and
 * so have the bits of linear_tile, and of PACKED_8, whose groups of 16 columns are a chain each. */
#include "model-server/backend/cuda/kernels/wgmma_tile.cuh"

extern "C" cudaError_t linear_codes_wgmma(const struct launch *l, const struct linear_args *a)
{
    if (a->w.quant == QUANT_W8A8)
        return start_end<Direct<S8>>(l, a);
    return a->w.dtype == DT_F16 ? start_end<Byte<F16, PACKED_8>>(l, a)
                                : start_end<Byte<Bf16, PACKED_8>>(l, a);
}
