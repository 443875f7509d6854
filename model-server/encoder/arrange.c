#include "model-server/encoder/arrange.h"
#include <string.h>

struct arrange_grid arrange_grid(const struct encoder_spec *s, const struct vision_plan *p,
                                 uint32_t crop)
{
    struct conv_shape shape[CONV_GRIDS];
    if (!s->conv.n)
        return (struct arrange_grid){vision_crop_height(p, crop) / s->patch,
                                     vision_crop_width(p, crop) / s->patch};
    if (!conv_shapes(&s->conv, s->conv.n, vision_crop_height(p, crop), vision_crop_width(p, crop),
                     shape))
        return (struct arrange_grid){0, 0};
    return (struct arrange_grid){shape[0].height, shape[0].width};
}

/* ---------------------------------------------------------------- order */

static uint32_t put_cell(const struct encoder_spec *s, uint32_t row, uint32_t col,
                         struct tower_place *out)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->cell; r++)
        for (uint32_t c = 0; c < s->cell; c++)
            out[n++] = (struct tower_place){row * s->cell + r, col * s->cell + c};
    return n;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t arrange_whole(const struct encoder_spec *s, struct arrange_grid g)
{
    return g.rows / s->cell * (g.cols / s->cell) * s->cell * s->cell;
}

uint32_t arrange_queries(const struct encoder_spec *s, struct arrange_grid g, uint32_t *table)
{
    for (*table = 0; *table < s->queries.n; ++*table)
        if (s->queries.rows[*table] == g.rows * g.cols)
            return g.rows * g.cols;
    return 0;
}

/* Those that fill no cell, in raster order. */
static void put_rest(const struct encoder_spec *s, struct arrange_grid g, struct tower_place *out)
{
    const uint32_t rows = g.rows / s->cell * s->cell, cols = g.cols / s->cell * s->cell;
    for (uint32_t r = 0; r < g.rows; r++)
        for (uint32_t c = r < rows ? cols : 0; c < g.cols; c++)
            *out++ = (struct tower_place){r, c};
}

void arrange_places(const struct encoder_spec *s, struct arrange_grid g, struct tower_place *out,
                    struct mutual *mutual)
{
    const uint32_t rows = g.rows / s->cell, cols = g.cols / s->cell;
    const uint32_t high = s->windows ? s->windows : rows, wide = s->windows ? s->windows : cols;
    uint32_t n = 0;
    for (uint32_t top = 0; top < rows; top += high)
        for (uint32_t left = 0; left < cols; left += wide) {
            const uint32_t begin = n;
            for (uint32_t r = top; r < least(top + high, rows); r++)
                for (uint32_t c = left; c < least(left + wide, cols); c++)
                    n += put_cell(s, r, c, out + n);
            for (uint32_t i = begin; s->windows && i < n; i++)
                mutual[i] = (struct mutual){begin, n};
        }
    if (s->leaves_rest)
        put_rest(s, g, out + n);
    for (uint32_t i = 0; s->queries.n && i < n; i++) {
        mutual[i] = (struct mutual){0, n};
        mutual[n + i] = (struct mutual){0, n + i + 1};
    }
}

/* ---------------------------------------------------------------- input */

static void from_planes(const struct encoder_spec *s, const struct tower_image *image,
                        uint32_t crop, struct tower_place at, float *out)
{
    const size_t p = s->patch, width = vision_crop_width(image->plan, crop);
    const size_t height = vision_crop_height(image->plan, crop);
    const float *planes = image->pixels + 3 * vision_pixels_before(image->plan, crop);
    for (size_t c = 0; c < 3; c++)
        for (size_t f = 0; f < s->frames; f++)
            for (size_t y = 0; y < p; y++, out += p)
                memcpy(out, planes + (c * height + at.row * p + y) * width + at.col * p,
                       p * sizeof(*out));
}

void arrange_patch(const struct encoder_spec *s, const struct tower_image *image, uint32_t crop,
                   struct arrange_grid g, struct tower_place at, float *out)
{
    const size_t each = tower_patch_floats(s), cell = s->cell;
    size_t nth = (size_t)at.row * g.cols + at.col;
    if (image->layout == VISION_PLANES) {
        from_planes(s, image, crop, at, out);
        return;
    }
    if (image->layout == VISION_PATCHES_BY_FEATURE)
        nth = ((at.row / cell * (g.cols / cell) + at.col / cell) * cell + at.row % cell) * cell +
              at.col % cell;
    const size_t before = vision_pixels_before(image->plan, crop) / ((size_t)s->patch * s->patch);
    memcpy(out, image->pixels + (before + nth) * each, each * sizeof(*out));
}

/* ---------------------------------------------------------------- features */

static bool is_joined(const struct encoder_spec *s, const struct vision_plan *p)
{
    return s->tiles_joined && p->rows;
}

struct arrange_grid arrange_joined(const struct vision_plan *p)
{
    return p->shrunk_h ? (struct arrange_grid){p->shrunk_h, p->shrunk_w}
                       : (struct arrange_grid){p->grid_h, p->grid_w};
}

uint32_t arrange_tiles(const struct vision_plan *p)
{
    const struct arrange_grid g = arrange_joined(p);
    return p->rows ? g.rows * (g.cols + 1) : 0;
}

/* One axis of shrinking n features to `to`, as PyTorch's bilinear interpolation does: result i lies
 * at (i + 1/2) n / to - 1/2, between its two neighbours. Writes the results to which feature `at`
 * contributes, and the weights; returns their number. */
enum { AXIS_SHARES = 3 };
static uint32_t axis_shares(uint32_t at, uint32_t n, uint32_t to, uint32_t out[AXIS_SHARES],
                            float by[AXIS_SHARES])
{
    const float scale = (float)n / (float)to;
    const float low = ((float)at - 0.5F) / scale - 1.5F; /* well before the first */
    uint32_t found = 0;
    for (uint32_t i = low > 0 ? (uint32_t)low : 0; i < to && found < AXIS_SHARES; i++) {
        const float real = scale * ((float)i + 0.5F) - 0.5F, from = real > 0 ? real : 0;
        const uint32_t first = (uint32_t)from, second = least(first + 1, n - 1);
        const float rest = from - (float)first;
        const float share = (first == at ? 1 - rest : 0) + (second == at ? rest : 0);
        if (first > at)
            break;
        if (share > 0) {
            out[found] = i;
            by[found++] = share;
        }
    }
    return found;
}

/* Shares of the feature at (y, x) of the joined grid, which follows the `before` features of the
 * whole picture. */
static struct arrange_shares shrink(const struct vision_plan *p, uint32_t before, uint32_t y,
                                    uint32_t x)
{
    uint32_t rows[AXIS_SHARES], cols[AXIS_SHARES];
    float by_row[AXIS_SHARES], by_col[AXIS_SHARES];
    const uint32_t n_rows = axis_shares(y, p->grid_h, p->shrunk_h, rows, by_row);
    const uint32_t n_cols = axis_shares(x, p->grid_w, p->shrunk_w, cols, by_col);
    struct arrange_shares s = {0};
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < n_cols; c++) {
            s.to[s.n] = before + rows[r] * (p->shrunk_w + 1) + cols[c];
            s.by[s.n++] = by_row[r] * by_col[c];
        }
    return s;
}

struct arrange_shares arrange_feature(const struct encoder_spec *s, const struct vision_plan *p,
                                      uint32_t crop, struct arrange_grid g, struct tower_place at)
{
    const uint32_t rows = g.rows / s->cell, cols = g.cols / s->cell;
    const uint32_t row = at.row / s->cell, col = at.col / s->cell;
    const float by = s->mean_features ? 1 / (float)(s->cell * s->cell) : 1;
    struct arrange_shares one = {.n = 1, .by = {by}};
    const uint32_t unit = encoder_unit(s);
    if (s->conv.queries || s->keeps_class) {
        one.to[0] = crop * (g.rows * g.cols + s->keeps_class) + s->keeps_class + row * cols + col;
        return one;
    }
    one.to[0] = s->image_begin +
                (uint32_t)(vision_pixels_before(p, crop) / ((uint64_t)unit * unit)) + row * cols +
                col;
    if (s->whole_joined && crop + 1 == p->n_crops)
        one.to[0] = s->image_begin + arrange_tiles(p) + row * (cols + 1) + col;
    if (!is_joined(s, p) || crop == (s->whole_joined ? p->n_crops - 1 : 0))
        return one;
    const uint32_t first = s->whole_joined ? 0 : rows * cols, tile = crop - !s->whole_joined;
    const uint32_t y = tile / p->cols * rows + row, x = tile % p->cols * cols + col;
    if (y < p->grid_y || y - p->grid_y >= p->grid_h || x < p->grid_x || x - p->grid_x >= p->grid_w)
        return (struct arrange_shares){0};
    if (p->shrunk_h)
        return shrink(p, first, y - p->grid_y, x - p->grid_x);
    one.to[0] = first + (y - p->grid_y) * (p->grid_w + 1) + x - p->grid_x; /* row ends between */
    return one;
}

/* Number of features of a crop. Clears *whole if the crop does not consist of whole cells, or has
 * patches without a learned position. */
static uint64_t whole_cells(const struct encoder_spec *s, const struct vision_plan *p,
                            uint32_t crop, bool *whole)
{
    const struct arrange_grid g = arrange_grid(s, p, crop);
    const uint32_t each = s->conv.n ? s->conv.unit : s->patch;
    uint32_t table;
    *whole &= g.rows && g.cols;
    if (s->conv.queries)
        return (uint64_t)g.rows * g.cols;
    *whole &= vision_crop_height(p, crop) == g.rows * each &&
              vision_crop_width(p, crop) == g.cols * each &&
              (s->leaves_rest || (g.rows % s->cell == 0 && g.cols % s->cell == 0));
    if (s->queries.n)
        *whole &= arrange_queries(s, g, &table) > 0;
    if (s->positions == POSITIONS_TABLE || s->positions == POSITIONS_AXES ||
        s->positions == POSITIONS_WOVEN)
        *whole &= g.rows <= s->side && g.cols <= s->side;
    return (uint64_t)(g.rows / s->cell) * (g.cols / s->cell);
}

int arrange_check(const struct encoder_spec *s, const struct vision_plan *p, struct err *e)
{
    const struct arrange_grid g = arrange_grid(s, p, 0);
    const uint64_t each = (uint64_t)(g.rows / s->cell) * (g.cols / s->cell);
    uint64_t features = p->n_crops * (uint64_t)(s->joint.tiles > 0); /* class tokens */
    bool whole = p->n_crops > 0;
    for (uint32_t i = 0; i < p->n_crops; i++)
        features += whole_cells(s, p, i, &whole);
    if (s->resample.latents)
        features = (uint64_t)p->n_crops * s->resample.latents;
    if (s->class_alone)
        features = p->n_crops;
    features += s->image_end + s->image_begin + (s->keeps_class ? p->n_crops : 0);
    if (s->joint.tiles)
        whole &= g.rows == s->side && g.cols == s->side && p->rows && p->cols &&
                 p->rows * p->cols == p->n_crops && p->n_crops <= s->joint.tiles;
    if (is_joined(s, p)) {
        const struct arrange_grid joined = arrange_joined(p);
        features = each + arrange_tiles(p);
        whole &= joined.rows <= p->grid_h && joined.cols <= p->grid_w;
        whole &= p->n_crops == 1 + p->rows * p->cols &&
                 (uint64_t)p->grid_y + p->grid_h <= (uint64_t)p->rows * g.rows &&
                 (uint64_t)p->grid_x + p->grid_w <= (uint64_t)p->cols * g.cols;
    }
    if (s->whole_joined && p->n_crops) {
        const struct arrange_grid last = arrange_grid(s, p, p->n_crops - 1);
        features = (uint64_t)arrange_tiles(p) +
                   (uint64_t)(last.rows / s->cell) * (last.cols / s->cell + 1) + s->image_end +
                   s->image_begin;
        whole &= p->n_crops == 1 + p->rows * p->cols;
    }
    if (whole && features == p->n_features)
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "%u crops of %u x %u pixels as %u features are not what this tower makes",
                   p->n_crops, p->crop_width, p->crop_height, p->n_features);
}
