/* positions.c - learned positions of patches: a row of a grid, or an interpolation of several. */
#include "model-server/encoder/arrange.h"
#include "model-server/encoder/conv.h"
#include <math.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Element i of n equidistant ones in [0, last], rounded as by PyTorch's linspace. */
static float even(uint32_t i, uint32_t n, uint32_t last)
{
    if (n == 1)
        return 0;
    const float step = (float)last / (float)(n - 1);
    return i < n / 2 ? step * (float)i : (float)last - step * (float)(n - 1 - i);
}

static void add_row(const struct tower *t, uint32_t row, uint32_t col, float by, float *out)
{
    const struct encoder_spec *s = &t->spec;
    const size_t hidden = s->blocks.hidden;
    const size_t first = s->class_unused || (s->class_token && !s->class_last);
    const float *from = t->positions + ((size_t)row * s->side + col + first) * hidden;
    for (size_t i = 0; i < hidden; i++)
        out[i] += by * from[i];
}

static void add_stretched(const struct tower *t, struct arrange_grid g, struct tower_place at,
                          float *out)
{
    const uint32_t last = t->spec.side - 1;
    const float y = even(at.row, g.rows, last), x = even(at.col, g.cols, last);
    const uint32_t y0 = (uint32_t)y, x0 = (uint32_t)x;
    const uint32_t y1 = least(y0 + 1, last), x1 = least(x0 + 1, last);
    const float dy = y - (float)y0, dx = x - (float)x0;
    add_row(t, y0, x0, (1 - dy) * (1 - dx), out);
    add_row(t, y0, x1, (1 - dy) * dx, out);
    add_row(t, y1, x0, dy * (1 - dx), out);
    add_row(t, y1, x1, dy * dx, out);
}

/* Weights of the four elements around a point at `t` of the way from the second to the third:
 * cubic convolution with a = -3/4 (Keys 1981), as PyTorch interpolates. */
static void cubic(float t, float w[4])
{
    const float a = -0.75F;
    for (int i = 0; i < 4; i++) {
        const float x = fabsf(t + 1 - (float)i);
        w[i] = x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1
                      : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    }
}

/* Weights of the same four elements: linear between the second and the third. */
static void linear(float t, float w[4])
{
    w[0] = w[3] = 0;
    w[1] = 1 - t;
    w[2] = t;
}

/* Element i of n lies between elements of a grid of `side`, where both cover the same length, or n
 * and a part of an element do. Returns the first of the four elements around it, and writes their
 * weights. */
static int64_t around(const struct encoder_spec *s, uint32_t i, uint32_t n,
                      void (*weigh)(float, float[4]), float w[4])
{
    const float all = (float)n + s->position_part;
    const float at = ((float)i + 0.5F) * (float)s->side / all - 0.5F, floor = floorf(at);
    weigh(at - floor, w);
    return (int64_t)floor - 1;
}

static uint32_t inside(int64_t i, uint32_t side)
{
    return i < 0 ? 0 : least((uint32_t)i, side - 1);
}

static void add_around(const struct tower *t, struct arrange_grid g, struct tower_place at,
                       void (*weigh)(float, float[4]), float *out)
{
    float by_row[4], by_col[4];
    const uint32_t side = t->spec.side;
    const int64_t top = around(&t->spec, at.row, g.rows, weigh, by_row);
    const int64_t left = around(&t->spec, at.col, g.cols, weigh, by_col);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            add_row(t, inside(top + r, side), inside(left + c, side), by_row[r] * by_col[c], out);
}

/* The grid of which the first rows and columns are those of `g`. */
static struct arrange_grid square_around(struct arrange_grid g)
{
    const uint32_t side = g.rows > g.cols ? g.rows : g.cols;
    return (struct arrange_grid){side, side};
}

/* As add_around(), linearly, but elements outside the grid count as zeros, and patch i of the
 * raster order has the place of number i of the transposed grid: as in the published code, whose
 * coordinates of a meshgrid are read in the other order. */
static void add_transposed(const struct tower *t, struct arrange_grid g, struct tower_place at,
                           float *out)
{
    float by_row[4], by_col[4];
    const uint32_t i = at.row * g.cols + at.col;
    const int64_t side = t->spec.side;
    const int64_t top = around(&t->spec, i / g.rows, g.cols, linear, by_row);
    const int64_t left = around(&t->spec, i % g.rows, g.rows, linear, by_col);
    for (int64_t r = 1; r < 3; r++)
        for (int64_t c = 1; c < 3; c++)
            if (top + r >= 0 && top + r < side && left + c >= 0 && left + c < side)
                add_row(t, (uint32_t)(top + r), (uint32_t)(left + c), by_row[r] * by_col[c], out);
}

static float triangle(float x) { return fmaxf(0, 1 - fabsf(x)); }

/* The weight of element `at` of `side` for patch i of n, before weights are divided by their sum: a
 * `kernel` as wide as the patch where that covers several elements. */
static float weigh(float (*kernel)(float), uint32_t i, uint32_t n, uint32_t side, uint32_t at)
{
    const float scale = (float)side / (float)n, reach = scale > 1 ? scale : 1;
    const float centre = ((float)i + 0.5F) * scale - 0.5F;
    return kernel(((float)at - centre) / reach);
}

static void add_smoothed(const struct tower *t, struct arrange_grid g, struct tower_place at,
                         float (*kernel)(float), float *out)
{
    const uint32_t side = t->spec.side;
    float rows = 0, cols = 0;
    for (uint32_t k = 0; k < side; k++) {
        rows += weigh(kernel, at.row, g.rows, side, k);
        cols += weigh(kernel, at.col, g.cols, side, k);
    }
    for (uint32_t r = 0; r < side; r++) {
        const float by_row = weigh(kernel, at.row, g.rows, side, r) / rows;
        for (uint32_t c = 0; by_row != 0 && c < side; c++) {
            const float by_col = weigh(kernel, at.col, g.cols, side, c) / cols;
            if (by_col != 0)
                add_row(t, r, c, by_row * by_col, out);
        }
    }
}

/* The part of the grid before patch i of n, in fp32 as in PyTorch. Products with a rounded step
 * differ from quotients in some grids, as that of 25 patches over 70 elements. */
static float begin_of(enum encoder_positions kind, uint32_t i, uint32_t n)
{
    if (kind == POSITIONS_DIVIDED)
        return (float)i / (float)n;
    return fminf((float)i * (1 / (float)n), (float)(1 - 1e-6));
}

/* The element of `side` that contains `at`. PyTorch's bounds depend on the width of its vectors; in
 * the published grid of 70 no position is close enough to a bound for this to matter. */
static uint32_t bucket(float at, uint32_t side)
{
    const double step = 1.0 / side;
    uint32_t k = 0;
    while (k + 1 < side && (float)(step + k * step) <= at)
        k++;
    return k;
}

static void add_axes(const struct tower *t, uint32_t of_col, uint32_t of_row, float *out)
{
    const size_t hidden = t->spec.blocks.hidden;
    const float *of_cols = t->positions + of_col * hidden;
    const float *of_rows = t->positions + of_row * hidden;
    for (size_t i = 0; i < hidden; i++)
        out[i] = of_cols[i] + of_rows[i];
}

void arrange_added(const struct tower *t, struct arrange_grid g, struct tower_place at, float *out)
{
    const struct encoder_spec *s = &t->spec;
    const size_t hidden = s->blocks.hidden;
    memset(out, 0, hidden * sizeof(*out));
    if (s->positions == POSITIONS_STRETCHED)
        add_stretched(t, g, at, out);
    else if (s->positions == POSITIONS_CUBIC)
        add_around(t, g, at, cubic, out);
    else if (s->positions == POSITIONS_LINEAR)
        add_around(t, g, at, linear, out);
    else if (s->positions == POSITIONS_SQUARE)
        add_around(t, square_around(g), at, linear, out);
    else if (s->positions == POSITIONS_TRANSPOSED)
        add_transposed(t, g, at, out);
    else if (s->positions == POSITIONS_SMOOTHED)
        add_smoothed(t, g, at, triangle, out);
    else if (s->positions == POSITIONS_FITTED)
        add_smoothed(t, g, at, conv_cubic, out);
    else if (s->positions == POSITIONS_BUCKETS || s->positions == POSITIONS_DIVIDED)
        add_row(t, bucket(begin_of(s->positions, at.row, g.rows), s->side),
                bucket(begin_of(s->positions, at.col, g.cols), s->side), 1, out);
    else if (s->positions == POSITIONS_AXES)
        add_axes(t, at.col, s->side + at.row, out);
    else if (s->positions == POSITIONS_WOVEN)
        add_axes(t, 2 * at.col, 2 * at.row + 1, out);
    else if (s->positions == POSITIONS_TABLE)
        add_row(t, at.row, at.col, 1, out);
    for (size_t i = 0; t->patch_bias && i < hidden; i++)
        out[i] += t->patch_bias[i];
}
