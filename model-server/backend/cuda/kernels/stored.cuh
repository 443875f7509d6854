/* stored.cuh - single numbers of a matrix on the device (struct stored), for kernels that do not
 * read fragments. */
#ifndef MODEL_SERVER_BACKEND_CUDA_KERNELS_STORED_CUH
#define MODEL_SERVER_BACKEND_CUDA_KERNELS_STORED_CUH
#include "model-server/backend/cuda/kernels/device.cuh"
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/cuda/kernels/numbers.cuh"

/* Of a packed matrix, whose column k has this code. */
static __device__ __forceinline__ float packed_at(const stored &w, const void *data, uint32_t row,
                                                  uint32_t k, uint32_t code)
{
    const char *groups = (const char *)data + scales_at(w.rows, w.cols, w.quant);
    const size_t at = group_at(row, k, w.cols, w.quant);
    if (w.quant == PACKED_E4M3)
        return f32_of_e4m3((uint8_t)code) * ((const float *)groups)[at];
    const int n = w.quant == PACKED_8  ? (int8_t)code
                  : w.quant == PACKED_4 ? (int)code - 8
                                        : (int8_t)table_numbers(w.table, code);
    const float y = (float)n * f32_of_f16(((const uint16_t *)groups)[at]);
    if (!w.offsets)
        return y;
    groups += groups_bytes(w.rows, w.cols, w.quant);
    return y - f32_of_f16(((const uint16_t *)groups)[at]);
}

/* Element (row, k) without the scale of its row; `data` instead of w.data, for experts. */
static __device__ __forceinline__ float stored_at(const stored &w, const void *data, uint32_t row,
                                                  uint32_t k)
{
    if (w.quant == QUANT_NONE) {
        size_t pitch = k_padded(w.cols, QUANT_NONE);
        return number_at(data, (enum dtype)w.dtype, (int64_t)(row * pitch + k));
    }
    const uint8_t *at = (const uint8_t *)data + row * row_bytes(w.cols, w.dtype, w.quant);
    const uint32_t code = load_code(at, k, w.quant);
    if (is_packed(w.quant))
        return packed_at(w, data, row, k, code);
    if (w.quant == QUANT_FP8)
        return f32_of_e4m3((uint8_t)code);
    if (w.quant != QUANT_INT4)
        return (float)(int8_t)code;
    const uint16_t *scales =
        (const uint16_t *)((const char *)data + scales_at(w.rows, w.cols, w.quant));
    return (float)((int)code - 8) * f32_of_bf16(scales[group_at(row, k, w.cols, w.quant)]);
}

/* The scale of a row. */
static __device__ __forceinline__ float row_scale(const stored &w, const void *data, uint32_t row)
{
    if (!has_row_scales(w.quant))
        return 1.0f;
    if (is_packed(w.quant))
        return ((const float *)((const char *)data + factors_at(&w)))[row];
    return ((const float *)((const char *)data + scales_at(w.rows, w.cols, w.quant)))[row];
}
#endif
