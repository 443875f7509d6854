/* Ovis 2: the whole image as one tile; then, if several tiles see more of it, these. */
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>

static void load_tokens(struct vision *v, struct vision_settings *s)
{
    static const char *const tokens[] = {"<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>",
                                         "<IMG_END>"};
    v->token = vision_read_token(s, "image_token_id", "<IMG_ATOM>", 151665, v->ovis2.patch);
    snprintf(v->marker, sizeof(v->marker), "<image>"); /* of templates; no token of the model */
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        vision_need_token(s, tokens[i]);
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, 14};
    struct vision_ovis2 *f = &v->ovis2;
    vision_read_format(s, &v->format, &d);
    v->format.merge = vision_u32(s, &s->tower, "hidden_stride", 1, 1, 16);
    const uint32_t unit = v->format.patch * v->format.merge;
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 224);
    f->tile = vision_side(s, &s->pixels, "size", 384);
    f->min_tiles = vision_u32(s, &s->pixels, "min_patches", 1, 1, VISION_MAX_CROPS - 1);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", 12, 1, VISION_MAX_CROPS - 1);
    f->covering = vision_flag(&s->pixels, "use_covering_area_grid", true);
    if (!vision_flag(&s->pixels, "crop_to_patches", false))
        f->min_tiles = f->max_tiles = 1;
    f->tile_tokens = vision_tile_tokens(
        s, &(struct vision_grids){f->tile, f->min_tiles, f->max_tiles}, of_tower, unit);
    load_tokens(v, s);
}

/* The area of a part that a tile of `side` sees without shrinking it, in its own proportions. */
static double seen(double w, double h, double side)
{
    const double most = w > h ? w : h, least = w > h ? h : w;
    return most > side ? least / most * side * side : least * most;
}

/* The share of the image that is seen in a x b parts. */
static double share(double h, double w, uint32_t a, uint32_t b, double side)
{
    const double high = trunc(h / a), wide = trunc(w / b);
    double sum = 0;
    for (uint32_t row = 0; row < a; row++)
        for (uint32_t col = 0; col < b; col++)
            sum += seen(col + 1 == b ? w - col * wide : wide, row + 1 == a ? h - row * high : high,
                        side);
    return sum / (h * w);
}

/* The grid of fewest tiles that see more than nine tenths of the image, or the one that sees most.
 * As in the published code it is judged by parts of `cols` rows. */
static void covering_grid(const struct vision_ovis2 *f, double h, double w, uint32_t *cols,
                          uint32_t *rows)
{
    double most = -1;
    bool enough = false;
    *cols = *rows = 1;
    for (uint32_t n = 1; n <= f->max_tiles; n++) {
        bool found = enough;
        for (uint32_t a = 1; a <= n && !enough; a++) {
            if (n % a)
                continue;
            const double see = share(h, w, a, n / a, f->tile);
            found |= see > 0.9;
            if (see <= most)
                continue;
            most = see;
            *cols = a;
            *rows = n / a;
        }
        enough = found;
    }
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_ovis2 *f = &v->ovis2;
    const struct vision_grids g = {.tile = f->tile, f->min_tiles, f->max_tiles};
    const uint32_t t = f->tile;
    uint32_t cols = 1, rows = 1;
    (void)e;
    if (f->max_tiles > 1 && f->covering)
        covering_grid(f, out->height, out->width, &cols, &rows);
    else if (f->max_tiles > 1)
        vision_nearest_grid(&g, out->width, out->height, &cols, &rows);
    out->crop_width = out->crop_height = t;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), t, t), 0, 0);
    if (rows * cols > 1)
        vision_add_tiles(out, vision_add_resize(out, -1, vision_whole(out), cols * t, rows * t),
                         rows, cols, t, 0, 0);
    out->grid_h = out->grid_w = t / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * f->tile_tokens;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const struct vision_ovis2 *f = &v->ovis2;
    buf_str(out, "<IMG_START>");
    vision_repeat(out, f->patch, f->tile_tokens);
    buf_str(out, "<IMG_GRID>");
    for (uint32_t i = 0; i + 1 < p->n_crops; i++) {
        if (i)
            buf_str(out, i % p->cols ? "<IMG_COL>" : "<IMG_ROW>");
        vision_repeat(out, f->patch, f->tile_tokens);
    }
    buf_str(out, "<IMG_END>");
}

const struct vision_family vision_ovis2 = {
    .types = {"ovis2"}, .load = load, .plan = plan, .expand = expand};
