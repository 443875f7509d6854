/* conv_fit.c - tables of positions for a grid of another size than that of training. */
#include "model-server/encoder/conv.h"
#include <math.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

void conv_fit_rows(float *to, uint32_t rows, const float *from, uint32_t of, uint32_t n)
{
    const float scale = (float)of / (float)rows;
    for (uint32_t r = 0; r < rows; r++) {
        const float at = fmaxf(scale * ((float)r + 0.5F) - 0.5F, 0);
        const uint32_t first = least((uint32_t)at, of - 1), second = least(first + 1, of - 1);
        const float by = at - (float)first;
        for (uint32_t i = 0; i < n; i++)
            to[(size_t)r * n + i] =
                (1 - by) * from[(size_t)first * n + i] + by * from[(size_t)second * n + i];
    }
}

float conv_cubic(float x)
{
    x = fabsf(x);
    if (x < 1)
        return (1.5F * x - 2.5F) * x * x + 1;
    return x < 2 ? ((-0.5F * x + 2.5F) * x - 4) * x + 2 : 0;
}

/* The weights of elements [*first, *first + result) of `of` for element i of n: as wide as it where
 * that covers several. `by` has room for `of`. */
static uint32_t weigh(uint32_t i, uint32_t n, uint32_t of, uint32_t *first, float *by)
{
    const float scale = (float)of / (float)n, wide = scale > 1 ? scale : 1;
    const float centre = scale * ((float)i + 0.5F), reach = 2 * wide;
    const float begin = fmaxf(centre - reach + 0.5F, 0);
    const uint32_t end = least((uint32_t)(centre + reach + 0.5F), of);
    float sum = 0;
    *first = least((uint32_t)begin, end - 1);
    for (uint32_t k = *first; k < end; k++)
        sum += by[k - *first] = conv_cubic(((float)k - centre + 0.5F) / wide);
    for (uint32_t k = *first; k < end; k++)
        by[k - *first] /= sum;
    return end - *first;
}

/* One axis: rows of `n` floats each. */
static void shrink(float *to, uint32_t rows, const float *from, uint32_t of, size_t n, float *by)
{
    memset(to, 0, rows * n * sizeof(*to));
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t first;
        const uint32_t some = weigh(r, rows, of, &first, by);
        for (uint32_t k = 0; k < some; k++)
            for (size_t i = 0; i < n; i++)
                to[r * n + i] += by[k] * from[(first + k) * n + i];
    }
}

void conv_fit_places(float *to, struct conv_shape shape, const float *from, uint32_t side,
                     float *scratch)
{
    const size_t n = shape.channels, row = shape.width * n;
    float *by = scratch + side * row;
    for (size_t r = 0; r < side; r++)
        shrink(scratch + r * row, shape.width, from + r * side * n, side, n, by);
    shrink(to, shape.height, scratch, side, row, by);
}
