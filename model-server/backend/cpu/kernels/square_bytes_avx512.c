/* square_bytes_avx512.c - panels of weights of 8 bits and of fp32 become bfloat16, and sums of
 * squares get their scales: squares.h. Compiled alone. */
#include "model-server/backend/cpu/kernels/square_bytes.inc.h"
// vectors first
#include "model-server/backend/cpu/kernels/bf16_bits.inc.h"

void k_square_int8_avx512(char *dst, const char *quads, uint32_t n) { widen_int8(dst, quads, n); }

void k_square_fp8_avx512(char *dst, const char *quads, uint32_t n) { widen_fp8(dst, quads, n); }

void k_square_f32_avx512(char *dst, const float *panel, uint32_t n)
{
    enum { COLS = SQUARE_STEP_BYTES / 2 };
    const uint32_t all = (n + COLS - 1) / COLS * COLS;
    for (uint32_t k = 0; k < all; k += 2, panel += (size_t)2 * LANES) {
        char *to = dst + (size_t)(k / COLS) * SQUARE_PARTS * SQUARE_BYTES +
                   (size_t)(k % COLS / 2) * STEP_BYTES;
        i16 even[SQUARE_PARTS], odd[SQUARE_PARTS];
        bf16_split(even, k < n ? v_load(panel) : v_set(0));
        bf16_split(odd, k + 1 < n ? v_load(panel + LANES) : v_set(0));
        UNROLL for (int p = 0; p < SQUARE_PARTS; p++)
            _mm512_storeu_si512(to + (size_t)p * SQUARE_BYTES, i_or(even[p], i_shl(odd[p], 16)));
    }
}

void k_scale_squares_avx512(const struct square_scales *t)
{
    const size_t row = t->bytes / sizeof(float);
    for (uint32_t p = 0; p < t->wide; p++) {
        const v16 scale = v_load((const float *)(const void *)(t->scales + p * t->scale_bytes));
        scale_panel(t->to + (size_t)p * LANES, t->sums + (size_t)p * LANES, row, row, scale,
                    t->rows, t->add);
    }
}
