/* Llama 3.2 Vision: the image in the corner of the smallest tiled canvas that holds it, cut into
 * tiles. One token stands for all of it. */
#include "common/vision/settings.h"
#include <math.h>

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_mllama *f = &v->mllama;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BILINEAR, vision_half, vision_half, 14});
    f->tile = vision_side(s, &s->pixels, "size", 224);
    f->max_tiles = vision_u32(s, &s->pixels, "max_image_tiles", 4, 1, 16);
    if (f->tile != vision_side(s, &s->tower, "image_size", 448) || f->tile % v->format.patch ||
        f->max_tiles != vision_u32(s, &s->tower, "max_num_tiles", 4, 1, 16))
        vision_settings_fail(s,
                             "%s: size, max_image_tiles, image_size, max_num_tiles and patch_size "
                             "disagree",
                             s->pixels.name);
    v->token = vision_read_token(s, "image_token_index", "<|image|>", 128256, v->marker);
}

/* Of a canvas of rows x cols tiles: the factor that an image fills it with. */
static double canvas_scale(const struct vision_mllama *f, const struct vision_plan *p,
                           uint32_t rows, uint32_t cols)
{
    const double h = (double)(rows * f->tile) / p->height, w = (double)(cols * f->tile) / p->width;
    return w > h ? h : w;
}

/* The least factor that does not shrink, else the greatest; of equals the least area, the first. */
static void best_canvas(const struct vision_mllama *f, const struct vision_plan *p, uint32_t *rows,
                        uint32_t *cols)
{
    double best = 0;
    *rows = *cols = 0;
    for (uint32_t r = 1; r <= f->max_tiles; r++)
        for (uint32_t c = 1; r * c <= f->max_tiles; c++) {
            const double scale = canvas_scale(f, p, r, c);
            const bool better = scale >= 1 && best >= 1 ? scale < best : scale > best;
            if (better || (scale == best && r * c < *rows * *cols)) {
                best = scale;
                *rows = r;
                *cols = c;
            }
        }
}

static uint32_t between(uint32_t side, uint32_t least, uint32_t most)
{
    return side < least ? least : side < most ? side : most;
}

static uint32_t scaled(uint32_t side, double scale, uint32_t most)
{
    const double to = floor(side * scale);
    return to < 1 ? 1 : to < most ? (uint32_t)to : most;
}

/* Size of the image on the canvas, with its aspect ratio: not larger than it is, but for one
 * smaller than a tile. */
static void fit(const struct vision_mllama *f, const struct vision_plan *p, uint32_t rows,
                uint32_t cols, uint32_t *width, uint32_t *height)
{
    const uint32_t w = between(p->width, f->tile, cols * f->tile);
    const uint32_t h = between(p->height, f->tile, rows * f->tile);
    const double by_w = (double)w / p->width, by_h = (double)h / p->height;
    *width = by_w < by_h ? w : scaled(p->width, by_h, w);
    *height = by_w < by_h ? scaled(p->height, by_w, h) : h;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_mllama *f = &v->mllama;
    uint32_t rows, cols, width, height;
    (void)e;
    best_canvas(f, out, &rows, &cols);
    fit(f, out, rows, cols, &width, &height);
    out->crop_width = out->crop_height = f->tile;
    vision_add_tiles(out, vision_add_resize(out, -1, vision_whole(out), width, height), rows, cols,
                     f->tile, 0, 0);
    out->grid_h = out->grid_w = f->tile / v->format.patch;
    out->n_features = rows * cols * (out->grid_h * out->grid_w + 1); /* a class token each */
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    (void)p;
    buf_str(out, v->marker);
}

const struct vision_family vision_mllama = {
    .types = {"mllama"}, .crosses = true, .load = load, .plan = plan, .expand = expand};
