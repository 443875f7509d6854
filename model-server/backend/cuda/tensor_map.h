/* tensor_map.h - matrices of 16-bit numbers as the copy engine of compute capability 9.0 wants them
 * described. */
#ifndef MODEL_SERVER_BACKEND_CUDA_TENSOR_MAP_H
#define MODEL_SERVER_BACKEND_CUDA_TENSOR_MAP_H
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Tiles of box_columns x box_rows (at most 256 each) of a matrix of `rows` rows of `columns`
 * numbers without a gap, both in device memory, 16-byte aligned; columns a multiple of 8.
 * `swizzle`: rows of a tile, of 128 bytes then, have their 16-byte pieces exchanged as wgmma reads
 * them, else they are one behind the other. The driver's encoder is looked up the first time. */
cudaError_t tensor_map(CUtensorMap *m, const void *data, uint32_t columns, uint32_t rows,
                       uint32_t box_columns, uint32_t box_rows, bool swizzle);
#ifdef __cplusplus
}
#endif
#endif
