/* conv_channels.c - attention over channels, and rows that change their number or get positions. */
#include "common/multiversion.h"
#include "model-server/encoder/conv.h"
#include <math.h>
#include <string.h>

enum { ROWS_OF_SUM = 128 }; /* of a partial sum, which keeps long sums exact */

/* Adds the products of channel `q` with `dim` channels, of n rows that are `step` numbers apart. */
MULTIVERSION_FMA static void add_products(float *restrict sum, const float *q, const float *k,
                                          size_t step, size_t n, uint32_t dim)
{
    for (size_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < dim; i++)
            sum[i] = fmaf(q[r * step], k[r * step + i], sum[i]);
}

static void softmax(float *x, uint32_t n, float scale)
{
    float most = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        most = fmaxf(most, x[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = expf(scale * (x[i] - most));
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

void conv_channel_factors(float *to, const float *from, struct conv_shape in, uint32_t groups,
                          size_t begin, size_t end)
{
    const size_t step = in.channels, width = step / 3, rows = conv_rows(in);
    const uint32_t dim = (uint32_t)(width / groups);
    float part[CONV_MOST_CHANNELS];
    for (size_t c = begin; c < end; c++) {
        const float *q = from + c, *k = from + width + c / dim * dim;
        float *row = to + c * dim;
        memset(row, 0, dim * sizeof(*row));
        for (size_t r = 0; r < rows; r += ROWS_OF_SUM) {
            const size_t n = rows - r < ROWS_OF_SUM ? rows - r : ROWS_OF_SUM;
            memset(part, 0, dim * sizeof(*part));
            add_products(part, q + r * step, k + r * step, step, n, dim);
            for (uint32_t i = 0; i < dim; i++)
                row[i] += part[i];
        }
        softmax(row, dim, 1 / sqrtf((float)rows));
    }
}

void conv_channels(float *to, const float *from, struct conv_shape in, uint32_t groups,
                   const float *factors, size_t begin, size_t end)
{
    const size_t step = in.channels, width = step / 3, dim = width / groups;
    for (size_t r = begin; r < end; r++)
        for (size_t c = 0; c < width; c++) {
            const float *v = from + r * step + 2 * width + c / dim * dim, *by = factors + c * dim;
            float sum = 0;
            for (size_t i = 0; i < dim; i++)
                sum = fmaf(by[i], v[i], sum);
            to[r * width + c] = sum;
        }
}

void conv_append(float *to, const float *a, size_t rows_of_a, const float *b, size_t channels,
                 size_t begin, size_t end)
{
    for (size_t r = begin; r < end; r++)
        memcpy(to + r * channels, r < rows_of_a ? a + r * channels : b + (r - rows_of_a) * channels,
               channels * sizeof(*to));
}

void conv_axes(float *to, const float *from, struct conv_shape in, const float *columns,
               const float *rows, const float *all, size_t begin, size_t end)
{
    const size_t n = in.channels, half = n / 2, rest = n - half; /* columns have the rest */
    for (size_t r = begin; r < end; r++) {
        const float *of_col = columns + r % in.width * rest, *of_row = rows + r / in.width * half;
        for (size_t c = 0; c < n; c++)
            to[r * n + c] = from[r * n + c] + (c < rest ? of_col[c] : of_row[c - rest]) + all[c];
    }
}
