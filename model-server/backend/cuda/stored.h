/* stored.h - layouts of weights in device memory, for the host code that packs them and the
 * kernels. */
#ifndef MODEL_SERVER_BACKEND_CUDA_STORED_H
#define MODEL_SERVER_BACKEND_CUDA_STORED_H
#include "model-server/backend/backend.h"
#include <cuda_runtime_api.h>
#include <string.h>

/* Layouts beyond those of enum quant: numbers that came as codes (struct mat_codes), packed.
 *   PACKED_4      integers of up to 4 bits
 *   PACKED_TABLE  of 4 bits, which look up one of 16 numbers
 *   PACKED_FP4    e2m1 (MXFP4, NVFP4), counted in halves, where x is rounded to bfloat16
 *   PACKED_8      whatever else there is, as integers of 8 bits
 *   PACKED_E4M3   e4m3 with scales of blocks of columns */
enum packed { PACKED_4 = QUANT_N, PACKED_TABLE, PACKED_FP4, PACKED_8, PACKED_E4M3, LAYOUT_N };

/* A matrix on the device: rows of row_bytes(), padded with zeros to a multiple of 64 bytes, then
 * the scales if it is quantised.
 *
 * A lane of a product reads 16 bytes of a row at a time. 32 columns are divided among four lanes, 8
 * columns each (linear_mma.cuh). The order of columns in a row serves both:
 *
 *   none, w8a8     as in the matrix
 *
 *   int8, fp8,     64 columns in 64 bytes: lane t (0 .. 3) has columns 8t .. 8t + 7 of the first
 *   PACKED_E4M3    32, then the same of the second 32. Of four columns the first two are in bytes 1
 *                  and 3, the others in bytes 0 and 2: a pair becomes 16-bit numbers by shifting
 *
 *   PACKED_8       the same, but lane t has four columns from 4t and four from 16 + 4t on
 *
 *   int4,          128 columns in 64 bytes: lane t has 4 bytes for columns 8t .. 8t + 7 of each of
 *   PACKED_4       four groups of 32. Column c of 8 is in nibble c / 2 + c % 2 * 4, stored plus 8
 *
 *   PACKED_TABLE   as PACKED_4, but the nibbles of four columns are in the order of int8's bytes
 *
 *   PACKED_FP4     as PACKED_4, but even columns are in the lower half of the 4 bytes, odd ones in
 *                  the upper. In each half the first number has its sign in bit 15 and the rest in
 *                  bits 6 to 8, where bfloat16 has them; the second in 12 and 3 to 5, the third in
 *                  14 and 9 to 11, the fourth in 13 and 0 to 2
 *
 * int8, w8a8 and PACKED_8 are two's complement, fp8 is e4m3. Their scales are a float per row.
 * PACKED_E4M3 has a float per row and 64 columns, a step: [row / 16][step][row % 8][row / 8 % 2].
 * It has no other scales. int4 and the other packed layouts have a 16-bit scale per group of 32
 * columns (PACKED_8: 16), bfloat16 for int4 and float16 otherwise. The scales of the four groups of
 * a step of 64 bytes are together: [row / 16][step][row % 8][row / 8 % 2][group].
 *
 * A packed number is (n * scale - offset) * factor. Offsets, if any, follow the scales in the same
 * order. Then follow the factors, a float per row. */
struct stored {
    const void *data;
    uint32_t rows, cols;
    uint32_t dtype; /* type to which x is rounded, F16 or BF16; packed: or F32 */
    uint32_t quant; /* enum quant or enum packed */
    uint32_t offsets, reserved;
    uint32_t table[4]; /* PACKED_TABLE: n, 8 bits each */
};

static inline __host__ __device__ bool is_packed(uint32_t quant) { return quant >= QUANT_N; }
/* Its scales belong to groups of columns: to four of a step, or to a whole step. */
static inline __host__ __device__ bool is_grouped(uint32_t quant)
{
    return quant == QUANT_INT4 || is_packed(quant);
}
/* It has a float for each row, which multiplies sums: a scale or a factor. */
static inline __host__ __device__ bool has_row_scales(uint32_t quant)
{
    return quant != QUANT_NONE && quant != QUANT_INT4 && quant != PACKED_E4M3;
}
static inline __host__ __device__ bool in_4_bits(uint32_t quant)
{
    return quant == QUANT_INT4 || quant == PACKED_4 || quant == PACKED_TABLE || quant == PACKED_FP4;
}

/* Columns are padded to a multiple of this, and products are divided at multiples of it. */
enum { K_ALIGN = 64, K_ALIGN_WIDE = 128 };
static inline __host__ __device__ uint32_t k_align(uint32_t quant)
{
    return quant == QUANT_W8A8 || in_4_bits(quant) ? K_ALIGN_WIDE : K_ALIGN;
}
static inline __host__ __device__ uint32_t k_padded(uint32_t k, uint32_t quant)
{
    uint32_t align = k_align(quant);
    return (k + align - 1) / align * align;
}
static inline __host__ __device__ size_t row_bytes(uint32_t k, uint32_t dtype, uint32_t quant)
{
    size_t n = k_padded(k, quant);
    return in_4_bits(quant) ? n / 2 : quant ? n : dtype == DT_F32 ? n * 4 : n * 2;
}
/* Offset of the scales from `data`. */
static inline __host__ __device__ size_t scales_at(uint32_t rows, uint32_t k, uint32_t quant)
{
    return rows * row_bytes(k, 0, quant);
}
/* For matrices with groups: bytes of the scales of 16 rows and a step, columns of a step and of a
 * group, bytes of all scales, and the index of column k's scale. */
enum { STEP_SCALES = 16 * 4 * sizeof(uint16_t), STEP_SCALES_E4M3 = 16 * sizeof(float) };
static inline __host__ __device__ uint32_t step_scales(uint32_t quant)
{
    return quant == PACKED_E4M3 ? STEP_SCALES_E4M3 : STEP_SCALES;
}
static inline __host__ __device__ uint32_t step_columns(uint32_t quant)
{
    return in_4_bits(quant) ? 128 : 64;
}
static inline __host__ __device__ uint32_t group_columns(uint32_t quant)
{
    return step_columns(quant) / (quant == PACKED_E4M3 ? 1 : 4);
}
static inline __host__ __device__ size_t groups_bytes(uint32_t rows, uint32_t k, uint32_t quant)
{
    return (size_t)((rows + 15) / 16) * (k_padded(k, quant) / step_columns(quant)) *
           step_scales(quant);
}
static inline __host__ __device__ size_t group_at(uint32_t row, uint32_t k, uint32_t cols,
                                                  uint32_t quant)
{
    const uint32_t step = step_columns(quant);
    const size_t block = (size_t)(row / 16) * (k_padded(cols, quant) / step) + k / step;
    const uint32_t groups = step / group_columns(quant), in_block = row % 8 * 2 + row / 8 % 2;
    return (block * 16 + in_block) * groups + k % step / group_columns(quant);
}
/* Offset of the factors of a packed matrix from `data`. */
static inline __host__ __device__ size_t factors_at(const struct stored *m)
{
    const size_t groups = groups_bytes(m->rows, m->cols, m->quant);
    return scales_at(m->rows, m->cols, m->quant) + (m->offsets ? 2 * groups : groups);
}
/* Bytes of everything after the rows. */
static inline size_t scales_bytes(const struct stored *m)
{
    const size_t floats = (size_t)m->rows * sizeof(float);
    const size_t groups =
        is_grouped(m->quant) ? factors_at(m) - scales_at(m->rows, m->cols, m->quant) : 0;
    return groups + (has_row_scales(m->quant) ? floats : 0);
}
/* For a quantised matrix: the byte of column k in its row, and for 4 bits the lower bit of its
 * nibble. Not for PACKED_FP4. */
static inline __host__ __device__ uint32_t column_byte(uint32_t k, uint32_t quant)
{
    const uint32_t of_four = k % 2 * 2 + 1 - k / 2 % 2; /* of int8 */
    if (quant == QUANT_W8A8)
        return k;
    if (quant == PACKED_TABLE)
        return k / 128 * 64 + k % 32 / 8 * 16 + k % 128 / 32 * 4 + k % 8 / 4 * 2 + of_four / 2;
    if (in_4_bits(quant))
        return k / 128 * 64 + k % 32 / 8 * 16 + k % 128 / 32 * 4 + k % 2 * 2 + k % 8 / 4;
    if (quant == PACKED_8)
        return k / 64 * 64 + k % 16 / 4 * 16 + k % 64 / 32 * 8 + k % 32 / 16 * 4 + of_four;
    return k / 64 * 64 + k % 32 / 8 * 16 + k % 64 / 32 * 8 + k % 8 / 4 * 4 + of_four;
}
static inline __host__ __device__ uint32_t column_shift(uint32_t k, uint32_t quant)
{
    return quant == PACKED_TABLE ? (1 - k / 2 % 2) * 4 : k / 2 % 2 * 4;
}
/* For PACKED_FP4: the byte of column k's word, and the bits of its sign and of the rest there. */
static inline __host__ __device__ uint32_t fp4_byte(uint32_t k)
{
    return k / 128 * 64 + k % 32 / 8 * 16 + k % 128 / 32 * 4;
}
static inline __host__ __device__ uint32_t fp4_sign(uint32_t k)
{
    return (0xdecfu >> k % 8 / 2 * 4 & 15) + k % 2 * 16;
}
static inline __host__ __device__ uint32_t fp4_rest(uint32_t k)
{
    return (0x0936u >> k % 8 / 2 * 4 & 15) + k % 2 * 16;
}

/* The code of column k of a quantised row: 8 bits, or 4. */
static inline __host__ __device__ uint32_t load_code(const uint8_t *row, uint32_t k, uint32_t quant)
{
    if (quant == PACKED_FP4) {
        uint32_t word;
        memcpy(&word, row + fp4_byte(k), sizeof(word));
        return (word >> fp4_sign(k) & 1) << 3 | (word >> fp4_rest(k) & 7);
    }
    const uint8_t byte = row[column_byte(k, quant)];
    return in_4_bits(quant) ? byte >> column_shift(k, quant) & 15 : byte;
}
/* The same stored, in a row of zeros. */
static inline void store_code(char *row, uint32_t k, uint32_t quant, uint32_t code)
{
    if (quant == PACKED_FP4) {
        uint32_t word;
        memcpy(&word, row + fp4_byte(k), sizeof(word));
        word |= (code >> 3) << fp4_sign(k) | (code & 7) << fp4_rest(k);
        memcpy(row + fp4_byte(k), &word, sizeof(word));
        return;
    }
    const uint32_t shift = in_4_bits(quant) ? column_shift(k, quant) : 0;
    row[column_byte(k, quant)] |= (char)(code << shift);
}
#endif
