/* tensor_map.h - descriptions of matrices of 16-bit numbers for the copy engine of compute
 * capability 9.0. */
#ifndef MODEL_SERVER_BACKEND_CUDA_TENSOR_MAP_H
#define MODEL_SERVER_BACKEND_CUDA_TENSOR_MAP_H
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Tiles of box_columns x box_rows (at most 256 each) of a contiguous matrix of `rows` rows of
 * `columns` numbers, both in device memory, 16-byte aligned; columns is a multiple of 8.
 * `swizzle`: rows of a tile have 128 bytes, and their 16-byte pieces are permuted as wgmma reads
 * them; else they are consecutive. The driver's encoder is looked up on first use. */
cudaError_t tensor_map(CUtensorMap *m, const void *data, uint32_t columns, uint32_t rows,
                       uint32_t box_columns, uint32_t box_rows, bool swizzle);
#ifdef __cplusplus
}
#endif
#endif
