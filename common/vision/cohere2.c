/* Command A Vision: the grid of tiles that enlarges the image least, or shrinks it least where none
 * is large enough, then the whole image as one tile. */
#include "common/vision/settings.h"
#include <math.h>

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_internvl *f = &v->internvl;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean, vision_clip_std, 16});
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 512);
    f->tile = vision_side(s, &s->pixels, "size", of_tower);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", 12, 1, VISION_MAX_CROPS - 1);
    if (!vision_flag(&s->pixels, "crop_to_patches", true))
        f->max_tiles = 1;
    v->format.merge = vision_u32(s, &s->config, "downsample_factor", 2, 1, 16);
    if (f->tile != of_tower || f->tile % (v->format.patch * v->format.merge))
        vision_settings_fail(s, "%s: size, image_size and patch_size disagree", s->pixels.name);
    const uint32_t side = f->tile / (v->format.patch * v->format.merge);
    f->tile_tokens = side * side;
    v->token = vision_read_token(s, "image_token_id", "<|IMG_PATCH|>", 255036, v->marker);
    vision_need_token(s, "<|START_OF_IMG|>");
    vision_need_token(s, "<|IMG_LINE_BREAK|>");
    vision_need_token(s, "<|END_OF_IMG|>");
}

/* Grids in ascending order of their tiles, of equally many the narrower first; of equal scales the
 * first. */
static void best_grid(const struct vision_internvl *f, double w, double h, uint32_t *cols,
                      uint32_t *rows)
{
    double best = 0;
    *cols = *rows = 0;
    for (uint32_t n = 1; n <= f->max_tiles; n++)
        for (uint32_t c = 1; c <= n; c++) {
            const double by_w = (double)(c * f->tile) / w;
            const uint32_t high = n / c; /* of whole rows; others are left out below */
            const double by_h = (double)(high * f->tile) / h;
            const double scale = by_w < by_h ? by_w : by_h;
            const bool better = scale >= 1 && best >= 1 ? scale < best : scale > best;
            if (n % c || !better)
                continue;
            best = scale;
            *cols = c;
            *rows = n / c;
        }
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_internvl *f = &v->internvl;
    const uint32_t t = f->tile;
    uint32_t cols, rows;
    (void)e;
    best_grid(f, out->width, out->height, &cols, &rows);
    out->crop_width = out->crop_height = t;
    vision_add_tiles(out, vision_add_resize(out, -1, vision_whole(out), cols * t, rows * t), rows,
                     cols, t, 0, 0);
    if (rows * cols > 1)
        vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), t, t), 0, 0);
    else
        out->rows = out->cols = 0;
    out->grid_h = out->grid_w = t / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * f->tile_tokens;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, "<|START_OF_IMG|>");
    for (uint32_t i = 0; i < p->n_crops; i++) {
        vision_repeat(out, v->marker, v->internvl.tile_tokens);
        buf_str(out, "<|IMG_LINE_BREAK|>");
    }
    buf_str(out, "<|END_OF_IMG|>");
}

const struct vision_family vision_cohere2 = {
    .types = {"cohere2_vision"}, .load = load, .plan = plan, .expand = expand};
