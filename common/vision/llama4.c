/* Llama 4: the image in the corner of the smallest tiled canvas that holds it, cut into tiles, then
 * the whole image as one tile. Single and double precision differ for some sizes; each step uses
 * the precision of transformers' image processor. */
#include "common/vision/settings.h"
#include <math.h>

static void read_tokens(struct vision *v, struct vision_settings *s)
{
    v->token = vision_read_token(s, "image_token_index", "<|patch|>", 200092, v->llama4.patch);
    vision_read_token(s, NULL, "<|image|>", 200090, v->marker);
    vision_need_token(s, "<|image_start|>");
    vision_need_token(s, "<|image_end|>");
    vision_need_token(s, "<|tile_x_separator|>");
    vision_need_token(s, "<|tile_y_separator|>");
}

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_llama4 *f = &v->llama4;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BILINEAR, vision_half, vision_half, 14});
    v->format.bf16 = vision_flag(&s->pixels, "do_rescale", true) &&
                     vision_flag(&s->pixels, "do_normalize", true);
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 448);
    f->tile = vision_side(s, &s->pixels, "size", 336);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", 16, 1, VISION_MAX_CROPS - 1);
    f->enlarge = vision_flag(&s->pixels, "resize_to_max_canvas", false);
    const double ratio = vision_number(s, &s->tower, "pixel_shuffle_ratio", 0.5);
    v->format.merge = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 1;
    if (v->format.merge * ratio != 1)
        vision_settings_fail(s, "%s: pixel_shuffle_ratio must be 1, 1/2, 1/4 or 1/8",
                             s->tower.name);
    if (f->tile != of_tower || f->tile % (v->format.patch * v->format.merge))
        vision_settings_fail(s, "%s: size, image_size and patch_size disagree", s->pixels.name);
    const uint32_t side = f->tile / (v->format.patch * v->format.merge);
    f->tile_tokens = side * side;
    read_tokens(v, s);
}

/* ---------------------------------------------------------------- plans */

/* Scale of an image in a canvas, in single precision. */
static float canvas_scale(const struct vision_llama4 *f, const struct vision_plan *p, uint32_t rows,
                          uint32_t cols)
{
    const float w = (float)(cols * f->tile) / (float)p->width;
    const float h = (float)(rows * f->tile) / (float)p->height;
    return h > w ? w : h;
}

/* The preferred scale: the smallest that does not shrink (or the largest, to enlarge); otherwise
 * the largest. */
static bool better(const struct vision_llama4 *f, float scale, float than)
{
    if (scale >= 1 && than >= 1)
        return f->enlarge ? scale > than : scale < than;
    return scale > than;
}

static void best_canvas(const struct vision_llama4 *f, const struct vision_plan *p, uint32_t *rows,
                        uint32_t *cols)
{
    float best = 0;
    *rows = *cols = 0;
    for (uint32_t n = f->max_tiles; n >= 1; n--)
        for (uint32_t r = 1; r <= n; r++) {
            if (n % r)
                continue;
            const float scale = canvas_scale(f, p, r, n / r);
            if (better(f, scale, best) || (scale == best && n < *rows * *cols)) {
                best = scale;
                *rows = r;
                *cols = n / r;
            }
        }
}

/* A side, and whether the processor computes it in single precision: it does if the canvas limits
 * it. */
struct bound {
    uint32_t side;
    bool single;
};

static struct bound bound_of(const struct vision_llama4 *f, uint32_t side, uint32_t canvas)
{
    const uint32_t most = side > f->tile ? side : f->tile;
    if (f->enlarge || canvas < most)
        return (struct bound){canvas, true};
    return (struct bound){most, false};
}

static double scale_to(struct bound b, uint32_t side)
{
    return b.single ? (float)b.side / (float)side : (double)b.side / side;
}

static uint32_t scaled(uint32_t side, double scale, bool single, uint32_t most)
{
    const double to = floor(single ? (float)side * (float)scale : side * scale);
    return to < 1 ? 1 : to < most ? (uint32_t)to : most;
}

/* Size of the image on the canvas, with its aspect ratio. */
static void fit(const struct vision_llama4 *f, const struct vision_plan *p, uint32_t rows,
                uint32_t cols, uint32_t *width, uint32_t *height)
{
    const struct bound w = bound_of(f, p->width, cols * f->tile);
    const struct bound h = bound_of(f, p->height, rows * f->tile);
    const double by_w = scale_to(w, p->width), by_h = scale_to(h, p->height);
    const bool single = w.single || h.single;
    if (single ? (float)by_w < (float)by_h : by_w < by_h) {
        *width = w.side;
        *height = scaled(p->height, by_w, w.single, h.side);
    } else {
        *height = h.side;
        *width = scaled(p->width, by_h, h.single, w.side);
    }
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_llama4 *f = &v->llama4;
    uint32_t rows, cols, width, height;
    (void)e;
    best_canvas(f, out, &rows, &cols);
    fit(f, out, rows, cols, &width, &height);
    out->crop_width = out->crop_height = f->tile;
    const uint32_t all = vision_add_resize(out, -1, vision_whole(out), width, height);
    if (rows * cols == 1) {
        vision_add_crop(out, all, 0, 0);
    } else {
        vision_add_tiles(out, all, rows, cols, f->tile, 0, 0);
        vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), f->tile, f->tile), 0, 0);
    }
    out->grid_h = out->grid_w = f->tile / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * f->tile_tokens;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const struct vision_llama4 *f = &v->llama4;
    buf_str(out, "<|image_start|>");
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = 0; c < p->cols; c++) {
            vision_repeat(out, f->patch, f->tile_tokens);
            buf_str(out, c + 1 < p->cols ? "<|tile_x_separator|>" : "<|tile_y_separator|>");
        }
    buf_str(out, v->marker);
    vision_repeat(out, f->patch, f->tile_tokens);
    buf_str(out, "<|image_end|>");
}

const struct vision_family vision_llama4 = {
    .types = {"llama4"}, .load = load, .plan = plan, .expand = expand};
