/* Granite Docling 500M and 2B: the page as InternVL cuts it, into at most 16 tiles a side, with the
 * names of tiles that Idefics 3 has. Wide pages of which a tile would see too little may have more
 * tiles. */
#include "common/vision/settings.h"

enum { MOST_SIDE = 16 }; /* tokens name so many rows and columns */

static void load_dense(struct vision *v, struct vision_settings *s)
{
    struct vision_internvl *f = &v->internvl;
    f->dense_tiles = vision_u32(s, &s->pixels, "dense_max_patches", 0, 0, VISION_MAX_CROPS - 1);
    f->dense_scale = vision_number(s, &s->pixels, "dense_max_scale", 0);
    f->dense_least = vision_number(s, &s->pixels, "dense_min_aspect", 0);
    f->dense_most = vision_number(s, &s->pixels, "dense_max_aspect", 0);
    if (f->dense_tiles && f->dense_tiles < f->min_tiles)
        vision_settings_fail(s, "%s: dense_max_patches is less than min_patches", s->pixels.name);
    if (vision_flag(&s->pixels, "fine_route", false))
        vision_settings_fail(s, "%s: fine_route must be false", s->pixels.name);
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, 16};
    struct vision_internvl *f = &v->internvl;
    vision_read_format(s, &v->format, &d);
    v->format.merge = vision_u32(s, &s->tower, "scale_factor", 4, 1, 16);
    const uint32_t unit = v->format.patch * v->format.merge;
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 512);
    f->tile = vision_side(s, &s->pixels, "size", 512);
    f->min_tiles = vision_u32(s, &s->pixels, "min_patches", 1, 1, VISION_MAX_CROPS - 1);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", 32, 1, VISION_MAX_CROPS - 1);
    load_dense(v, s);
    if (!vision_flag(&s->pixels, "crop_to_patches", true) || f->max_tiles == 1)
        f->min_tiles = f->max_tiles = 1, f->dense_tiles = 0;
    f->tile_tokens = vision_tile_tokens(
        s, &(struct vision_grids){f->tile, f->min_tiles, f->max_tiles}, of_tower, unit);
    f->thumbnail = true;
    v->token = vision_read_token(s, "image_token_id", "<image>", 100337, v->marker);
    vision_need_token(s, "<fake_token_around_image>");
    vision_need_token(s, "<global-img>");
}

static struct vision_grids grids(const struct vision_internvl *f, uint32_t most)
{
    return (struct vision_grids){f->tile, f->min_tiles, most, MOST_SIDE};
}

/* The largest number of tiles of a page. */
static uint32_t budget(const struct vision_internvl *f, double w, double h)
{
    const struct vision_grids g = grids(f, f->max_tiles);
    uint32_t cols, rows;
    if (!f->dense_tiles || (f->dense_scale <= 0 && f->dense_least <= 0))
        return f->max_tiles;
    if ((f->dense_least > 0 && !(w / h > f->dense_least)) ||
        (f->dense_most > 0 && w / h > f->dense_most))
        return f->max_tiles;
    vision_nearest_grid(&g, w, h, &cols, &rows);
    if (f->dense_scale > 0 && !(cols * f->tile / w < f->dense_scale))
        return f->max_tiles;
    return f->dense_tiles;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_internvl *f = &v->internvl;
    const struct vision_grids g = grids(f, budget(f, out->width, out->height));
    (void)e;
    vision_plan_grid(v, &g, out);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const uint32_t rows = p->rows ? p->rows : 1, cols = p->rows ? p->cols : 1;
    for (uint32_t row = 1; row <= rows; row++) {
        for (uint32_t col = 1; col <= cols; col++) {
            buf_fmt(out, "<fake_token_around_image><row_%u_col_%u>", row, col);
            vision_repeat(out, v->marker, v->internvl.tile_tokens);
        }
        buf_ch(out, '\n');
    }
    if (!p->rows)
        return;
    buf_str(out, "\n<fake_token_around_image><global-img>");
    vision_repeat(out, v->marker, v->internvl.tile_tokens);
    buf_str(out, "<fake_token_around_image>");
}

const struct vision_family vision_granite_docling = {
    .types = {"granite_docling"}, .load = load, .plan = plan, .expand = expand};
