/* quantise.c - rows of weights in 8 and 4 bits: the numbers of host/round.h, in the layout of the
 * kernels (struct stored in stored.h). */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/backend/numbers.h"
#include <math.h>

static void row_of_4_bits(const struct rounding *r, const struct stored *w, char *dst,
                          uint16_t *scales, uint32_t row, const float *f, const uint16_t *known)
{
    int8_t q[INT4_GROUP];
    for (uint32_t g = 0; g < k_padded(w->cols, w->quant); g += INT4_GROUP) {
        float scale = known && g < w->cols
                          ? int4_of_scale(q, f + g, INT4_GROUP, known[g / INT4_GROUP])
                          : r->quantise4(q, f + g);
        scales[group_at(row, g, w->cols, w->quant)] = bf16_of_f32(scale);
        for (uint32_t i = 0; i < INT4_GROUP; i++)
            store_code(dst, g + i, w->quant, (uint32_t)(q[i] + 8));
    }
}

void cuda_quantise_row(const struct rounding *r, const struct stored *w, char *dst, void *scales,
                       uint32_t row, float *f, const uint16_t *known)
{
    const uint32_t padded = k_padded(w->cols, w->quant);
    uint8_t *q = (uint8_t *)(f + padded); /* after the numbers, as documented */
    int32_t sum;
    memset(f + w->cols, 0, (padded - w->cols) * sizeof(*f));
    memset(dst, 0, row_bytes(w->cols, w->dtype, w->quant));
    if (w->quant == QUANT_INT4) {
        row_of_4_bits(r, w, dst, scales, row, f, known);
        return;
    }
    memset(q, 0, padded);
    ((float *)scales)[row] = w->quant == QUANT_FP8 ? quantise_e4m3(q, 4, f, w->cols)
                                                   : r->quantise(q, 4, f, w->cols, 0, &sum);
    for (uint32_t k = 0; k < padded; k++)
        store_code(dst, k, w->quant, q[k]);
}

void cuda_e4m3_row(const struct stored *w, char *dst, void *scales, uint32_t row,
                   const struct mat_codes *c, size_t part_row)
{
    enum { NOT_A_NUMBER = 0x7f };
    const bool grouped = is_grouped(w->quant);
    const uint32_t step = grouped ? group_columns(w->quant) : w->cols, block = c->format.block;
    const uint8_t *q = c->codes + part_row * w->cols;
    const float *from = c->scales + part_row * format_blocks(&c->format, w->cols);
    memset(dst, 0, row_bytes(w->cols, w->dtype, w->quant));
    for (uint32_t first = 0; first < w->cols; first += step) {
        const uint32_t end = w->cols - first < step ? w->cols : first + step;
        float scale = from[block ? first / block : 0];
        for (uint32_t k = first; k < end; k++) {
            const bool number = (q[k] & NOT_A_NUMBER) != NOT_A_NUMBER;
            store_code(dst, k, w->quant, number ? q[k] : 0);
            scale = number ? scale : NAN;
        }
        ((float *)scales)[grouped ? group_at(row, first, w->cols, w->quant) : row] = scale;
    }
}
