/* LFM2-VL: an image of its own aspect ratio, or, where that is too large, square tiles of the grid
 * nearest in aspect ratio, followed by the image as it would be alone. */
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

static void load_tokens(struct vision *v, struct vision_settings *s)
{
    struct vision_lfm2 *f = &v->lfm2;
    v->token = vision_read_token(s, "image_token_id", "<image>", 396, v->marker);
    f->marked = vision_flag(&s->processor, "use_image_special_tokens",
                            vision_flag(&s->config, "use_image_special_tokens", true));
    if (f->marked) {
        vision_need_token(s, "<|image_start|>");
        vision_need_token(s, "<|image_end|>");
        vision_need_token(s, "<|img_row_1_col_1|>");
        vision_need_token(s, "<|img_thumbnail|>");
    }
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BILINEAR, vision_half, vision_half, 16};
    struct vision_lfm2 *f = &v->lfm2;
    vision_read_format(s, &v->format, &d);
    v->format.layout = VISION_PATCHES;
    v->format.merge = vision_u32(s, &s->config, "downsample_factor", 2, 1, 16);
    const uint32_t unit = v->format.patch * v->format.merge;
    f->tile = vision_u32(s, &s->pixels, "tile_size", 512, 1, VISION_MAX_SETTING);
    f->min_tiles = vision_u32(s, &s->pixels, "min_tiles", 2, 1, VISION_MAX_CROPS - 1);
    f->max_tiles = vision_u32(s, &s->pixels, "max_tiles", 10, 1, VISION_MAX_CROPS - 1);
    f->min_tokens = vision_u32(s, &s->pixels, "min_image_tokens", 64, 1, 1u << 20);
    f->max_tokens = vision_u32(s, &s->pixels, "max_image_tokens", 256, 1, 1u << 20);
    f->tolerance = vision_number(s, &s->pixels, "max_pixels_tolerance", 2);
    f->thumbnail = vision_flag(&s->pixels, "use_thumbnail", true);
    f->split = vision_flag(&s->pixels, "do_image_splitting", true) && f->max_tiles > 1;
    if (vision_u32(s, &s->pixels, "encoder_patch_size", v->format.patch, 1, 256) !=
            v->format.patch ||
        vision_u32(s, &s->pixels, "downsample_factor", v->format.merge, 1, 16) != v->format.merge)
        vision_settings_fail(s, "%s and config.json disagree about patch_size or downsample_factor",
                             s->pixels.name);
    if (f->split && (f->tile % unit || f->min_tiles > f->max_tiles || f->min_tiles < 2))
        vision_settings_fail(s,
                             "%s: tile_size must be a multiple of %u, and min_tiles from 2 to "
                             "max_tiles",
                             s->pixels.name, unit);
    if (f->min_tokens > f->max_tokens)
        vision_settings_fail(s, "%s: min_image_tokens is more than max_image_tokens",
                             s->pixels.name);
    load_tokens(v, s);
}

static double at_least(double least, double x) { return x > least ? x : least; }

/* Sides whose cells are within the bounds. */
static void alone(const struct vision *v, double h, double w, uint32_t *height, uint32_t *width)
{
    const double f = v->format.patch * v->format.merge;
    const double least = v->lfm2.min_tokens * f * f, most = v->lfm2.max_tokens * f * f;
    double rh = at_least(f, nearbyint(h / f) * f), rw = at_least(f, nearbyint(w / f) * f);
    if (rh * rw > most) {
        const double shrink = sqrt(h * w / most);
        rh = at_least(f, floor(h / shrink / f) * f);
        rw = at_least(f, floor(w / shrink / f) * f);
    } else if (rh * rw < least) {
        const double stretch = sqrt(least / (h * w));
        rh = ceil(h * stretch / f) * f;
        rw = ceil(w * stretch / f) * f;
    }
    *height = (uint32_t)rh;
    *width = (uint32_t)rw;
}

static bool is_large(const struct vision *v, double h, double w)
{
    const double p = v->format.patch, f = p * v->format.merge;
    const double rh = at_least(p, nearbyint(h / f) * f), rw = at_least(p, nearbyint(w / f) * f);
    return rh * rw > v->lfm2.max_tokens * f * f * v->lfm2.tolerance;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_lfm2 *f = &v->lfm2;
    const uint32_t unit = v->format.patch * v->format.merge, side = f->tile / unit;
    uint32_t height, width, rows, cols;
    (void)e;
    alone(v, out->height, out->width, &height, &width);
    out->crop_height = height, out->crop_width = width;
    if (f->split && is_large(v, out->height, out->width)) {
        const struct vision_grids g = {f->tile, f->min_tiles, f->max_tiles};
        vision_nearest_grid(&g, out->width, out->height, &cols, &rows);
        out->crop_height = out->crop_width = f->tile;
        vision_add_tiles(
            out, vision_add_resize(out, -1, vision_whole(out), cols * f->tile, rows * f->tile),
            rows, cols, f->tile, 0, 0);
        out->n_features = rows * cols * side * side;
    }
    if (!out->rows || f->thumbnail) {
        const uint32_t all = vision_add_resize(out, -1, vision_whole(out), width, height);
        vision_size_crop(out, vision_add_crop(out, all, 0, 0), width, height);
        out->n_features += height / unit * (width / unit);
    }
    out->grid_h = out->crop_height / unit;
    out->grid_w = out->crop_width / unit;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const bool marked = v->lfm2.marked;
    const uint32_t tile = p->grid_h * p->grid_w, tiles = p->rows * p->cols;
    if (marked)
        buf_str(out, "<|image_start|>");
    for (uint32_t i = 0; i < tiles; i++) {
        if (marked)
            buf_fmt(out, "<|img_row_%u_col_%u|>", i / p->cols + 1, i % p->cols + 1);
        vision_repeat(out, v->marker, tile);
    }
    if (marked && tiles && tiles < p->n_crops)
        buf_str(out, "<|img_thumbnail|>");
    vision_repeat(out, v->marker, p->n_features - tiles * tile);
    if (marked)
        buf_str(out, "<|image_end|>");
}

const struct vision_family vision_lfm2_vl = {
    .types = {"lfm2_vl"}, .load = load, .plan = plan, .expand = expand};
