/* tensor_map.c - tensor maps, encoded by the driver: a program that is linked only to the runtime
 * gets the driver's function from the runtime. */
#include "model-server/backend/cuda/tensor_map.h"

typedef CUresult encoder(CUtensorMap *, CUtensorMapDataType, cuuint32_t rank, void *,
                         const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                         const cuuint32_t *step, CUtensorMapInterleave, CUtensorMapSwizzle,
                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encoder *find(void)
{
    static encoder *found; /* only one thread uses the backend */
    enum cudaDriverEntryPointQueryResult is;
    void *p = NULL;
    if (!found && cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                                   cudaEnableDefault, &is) == cudaSuccess)
        *(void **)&found = is == cudaDriverEntryPointSuccess ? p : NULL;
    return found;
}

cudaError_t tensor_map(CUtensorMap *m, const void *data, uint32_t columns, uint32_t rows,
                       uint32_t box_columns, uint32_t box_rows, bool swizzle)
{
    const cuuint64_t dim[2] = {columns, rows}, pitch[1] = {2 * (cuuint64_t)columns};
    const cuuint32_t box[2] = {box_columns, box_rows}, step[2] = {1, 1};
    encoder *encode = find();
    if (!encode)
        return cudaErrorInsufficientDriver;
    CUresult rc = encode(m, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, (void *)(uintptr_t)data, dim, pitch,
                         box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                         swizzle ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return rc == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
