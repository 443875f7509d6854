/* Numbers that are code * scale - less, where `less` is any number: codes and terms come from the
 * format. MLX's are exact in half precision or not kept (mlx.c). Here `less` is rounded to half
 * precision, which has more bits than the 16-bit numbers that it replaces. */
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>

enum { COLUMNS = 32 };

void affine_numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const struct stored_format *f = m->how.format;
    float scale = 0, less = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || m->group == 1 || (col + i) % m->group == 0)
            f->terms(m, row, col + i, &scale, &less);
        out[i] = (float)f->code(m, row, col + i) * scale - less;
    }
}

bool affine_form(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    *f = (struct format){.name = m->how.method,
                         .element = ELEMENT_INT,
                         .scale = SCALE_F16,
                         .bits = m->how.bits,
                         .group = COLUMNS,
                         .block = COLUMNS,
                         .offsets = true};
    return m->how.bits >= 2 && m->group % COLUMNS == 0 && s->col % COLUMNS == 0 &&
           s->cols % COLUMNS == 0 && s->cols <= QUANT_MAX_COLS;
}

bool affine_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                 const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    const float most = 256; /* as in keep.c: sums stay far from the limits of half precision */
    const struct stored_format *f = m->how.format;
    for (uint32_t r = 0; r < n_rows; r++)
        for (int64_t k = 0; k < s->cols; k++) {
            const int64_t at = (to + r) * s->cols + k, col = s->col + k;
            float scale, less;
            c->codes[at] = f->code(m, row + r, col);
            if (k % COLUMNS)
                continue;
            f->terms(m, row + r, col, &scale, &less);
            const uint16_t half = f16_of_f32(scale);
            if (!(fabsf(scale) <= most && fabsf(less) <= most * most) || f32_of_f16(half) != scale)
                return false;
            c->scale[at / COLUMNS] = half;
            c->offset[at / COLUMNS] = f16_of_f32(less);
        }
    return true;
}
