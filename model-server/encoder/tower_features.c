/* tower_features.c - writes the rows of a pass to the features of its images. */
#include "model-server/encoder/arrange.h"
#include <string.h>

static float scale_of(const struct encoder_spec *s)
{
    return s->feature_scale != 0 ? s->feature_scale : 1;
}

/* Adds a row, times `scale`, to the features that it is part of, which are `each` floats apart. A
 * whole share replaces what is there. */
static void share_row(float *out, size_t each, const struct arrange_shares *s, const float *row,
                      size_t n, float scale)
{
    for (uint32_t k = 0; k < s->n; k++) {
        float *to = out + s->to[k] * each;
        if (s->n == 1 && s->by[0] == 1) {
            for (size_t i = 0; i < n; i++)
                to[i] = scale * row[i];
            continue;
        }
        for (size_t i = 0; i < n; i++)
            to[i] += s->by[k] * scale * row[i];
    }
}

/* Rows of a crop in t->host. */
static uint32_t feature_rows(const struct encoder_spec *s, struct arrange_grid g)
{
    return arrange_whole(s, g) / (s->mean_features ? 1 : s->cell * s->cell);
}

/* Writes the features of a crop, whose rows begin at `first` of the pass' `rows`. */
static void collect_crop(struct tower *t, const struct tower_image *image, uint32_t crop,
                         uint32_t first, uint32_t rows)
{
    const struct encoder_spec *s = &t->spec;
    const struct arrange_grid g = arrange_grid(s, image->plan, crop);
    const uint32_t n = feature_rows(s, g), patches = arrange_whole(s, g) / (n ? n : 1);
    const size_t width = s->width, each = tower_row(t);
    const float scale = scale_of(s);
    arrange_places(s, g, t->places, t->mutual);
    for (uint32_t i = 0; s->keeps_class && i < width; i++) /* the others follow it */
        image->out[(size_t)crop * (n + 1) * each + i] = scale * t->host[first * width + i];
    first += s->keeps_class;
    for (uint32_t r = 0; r < n; r++) {
        const struct arrange_shares to =
            arrange_feature(s, image->plan, crop, g, t->places[(size_t)r * patches]);
        for (uint32_t i = 0; i <= s->n_levels; i++)
            share_row(image->out + i * width, each, &to,
                      t->host + ((size_t)i * rows + first + r) * width, width, i ? 1 : scale);
    }
}

void tower_collect(struct tower *t, struct tower_cursor c, uint32_t crops, uint32_t rows)
{
    const struct encoder_spec *s = &t->spec;
    uint32_t at = 0;
    for (uint32_t i = 0; i < crops; i++, tower_next_crop(&c)) {
        const struct tower_image *image = &c.images[c.image];
        if (s->joint.tiles) {
            tower_joint_collect(t, image, i * tower_joint_tokens(s));
            continue;
        }
        if (s->class_alone) {
            memcpy(image->out + (size_t)c.crop * s->width, t->host + (size_t)i * s->width,
                   s->width * sizeof(float));
            continue;
        }
        const struct arrange_grid g = arrange_grid(s, image->plan, c.crop);
        collect_crop(t, image, c.crop, at, rows);
        at += feature_rows(s, g) + s->keeps_class;
    }
}

static struct arrange_grid in_cells(const struct encoder_spec *s, struct arrange_grid g)
{
    return (struct arrange_grid){g.rows / s->cell, g.cols / s->cell};
}

/* Writes the vector behind each row of a grid, whose features begin at `out`. */
static void end_rows(const struct tower *t, struct arrange_grid g, float *out)
{
    const size_t width = t->spec.width;
    const float scale = scale_of(&t->spec);
    for (size_t y = 0; y < g.rows; y++) {
        float *to = out + (y * (g.cols + 1) + g.cols) * width;
        for (size_t i = 0; i < width; i++)
            to[i] = scale * t->row_end[i];
    }
}

void tower_start_features(const struct tower *t, const struct tower_image *image)
{
    const struct vision_plan *p = image->plan;
    const struct arrange_grid g = arrange_grid(&t->spec, p, 0), joined = arrange_joined(p);
    const size_t first = (size_t)g.rows * g.cols, width = t->spec.width;
    const float scale = scale_of(&t->spec);
    if (p->shrunk_h || t->spec.mean_features) /* features are sums of shares */
        memset(image->out, 0, p->n_features * width * sizeof(float));
    for (size_t i = 0; t->spec.image_end && i < width; i++)
        image->out[(p->n_features - 1) * width + i] = scale * t->image_end[i];
    for (size_t i = 0; t->spec.image_begin && i < width; i++)
        image->out[i] = scale * t->image_begin[i];
    if (t->spec.tiles_joined && p->rows)
        end_rows(t, joined, image->out + (t->spec.whole_joined ? 0 : first * width));
    if (t->spec.whole_joined)
        end_rows(t, in_cells(&t->spec, arrange_grid(&t->spec, p, p->n_crops - 1)),
                 image->out + (t->spec.image_begin + arrange_tiles(p)) * width);
}
