/* square_bytes_avx512.c - panels of 8-bit weights become panels of bfloat16, and sums of squares
 * get their scales: squares.h. Compiled alone. */
#include "model-server/backend/cpu/kernels/square_bytes.inc.h"

void k_square_int8_avx512(char *dst, const char *quads, uint32_t n) { widen_int8(dst, quads, n); }

void k_square_fp8_avx512(char *dst, const char *quads, uint32_t n) { widen_fp8(dst, quads, n); }

void k_scale_squares_avx512(const struct square_scales *t)
{
    const size_t row = t->bytes / sizeof(float);
    for (uint32_t p = 0; p < t->wide; p++) {
        const v16 scale = v_load((const float *)(const void *)(t->scales + p * t->scale_bytes));
        scale_panel(t->to + (size_t)p * LANES, t->sums + (size_t)p * LANES, row, row, scale,
                    t->rows, t->add);
    }
}
