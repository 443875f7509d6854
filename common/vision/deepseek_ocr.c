/* DeepSeek-OCR 2: tiles of an image that is larger than one, then the whole image in a square. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>

static void read_outside(struct vision_settings *s, uint8_t out[3])
{
    const cJSON *color = json_get(s->pixels.o, "background_color"), *at = json_first(color);
    for (int i = 0; i < 3; i++, at = at ? at->next : NULL) {
        const double c = at && cJSON_IsNumber(at) ? at->valuedouble : color ? -1 : 127;
        if (!(c >= 0 && c <= 255))
            vision_settings_fail(s, "%s: background_color must be three bytes", s->pixels.name);
        else
            out[i] = (uint8_t)c;
    }
}

/* What the files of a release lack. */
struct defaults {
    uint32_t tile, max_tiles;
};

/* `sam` has the tower's patch_size, `seen` its image_size. */
static void read(struct vision *v, struct vision_settings *s, const struct vision_section *sam,
                 const struct vision_section *seen, struct defaults or)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half, 16};
    struct vision_deepseek_ocr *f = &v->deepseek_ocr;
    vision_read_format(s, &v->format, &d);
    v->format.patch = vision_u32(s, sam, "patch_size", 16, 1, 64);
    v->format.merge = vision_u32(s, &s->processor, "downsample_ratio", 4, 4, 4);
    f->side = vision_side(s, &s->pixels, "size", 1024);
    f->tile = vision_u32(s, &s->pixels, "tile_size", or.tile, 1, VISION_MAX_SETTING);
    f->min_tiles = vision_u32(s, &s->pixels, "min_patches", 2, 1, VISION_MAX_CROPS - 1);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", or.max_tiles, 1, VISION_MAX_CROPS - 1);
    f->tiled = vision_flag(&s->pixels, "crop_to_patches", true);
    read_outside(s, v->format.outside);
    const uint32_t unit = v->format.patch * v->format.merge;
    if (f->min_tiles > f->max_tiles)
        vision_settings_fail(s, "%s: min_patches is more than max_patches", s->pixels.name);
    if (f->side % unit || f->tile % unit ||
        vision_side(s, seen, "image_size", f->side) != f->side ||
        vision_u32(s, &s->processor, "patch_size", v->format.patch, 1, 64) != v->format.patch)
        vision_settings_fail(s, "%s: size, tile_size, image_size and patch_size disagree",
                             s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<image>", 128815, v->marker);
}

static void load_two(struct vision *v, struct vision_settings *s)
{
    const struct vision_section sam = vision_inside(&s->tower, "sam_config");
    read(v, s, &sam, &sam, (struct defaults){768, 6});
}

static void load_one(struct vision *v, struct vision_settings *s)
{
    const struct vision_section towers = vision_inside(&s->tower, "width");
    const struct vision_section sam = vision_inside(&towers, "sam_vit_b");
    read(v, s, &sam, &s->tower, (struct defaults){640, 9});
}

/* As large as fits into a square, as Pillow pads it; Python rounds halves to even, as here. */
static void add_padded(struct vision_plan *out, uint32_t side)
{
    const double w = out->width, h = out->height;
    const double width = w < h ? fmax(nearbyint(w / h * side), 1) : side;
    const double height = h < w ? fmax(nearbyint(h / w * side), 1) : side;
    const uint32_t of =
        vision_add_resize(out, -1, vision_whole(out), (uint32_t)width, (uint32_t)height);
    vision_size_crop(out,
                     vision_add_crop(out, of, -(int64_t)nearbyint((side - width) * 0.5),
                                     -(int64_t)nearbyint((side - height) * 0.5)),
                     side, side);
}

/* As large as fits into a square. */
static uint32_t add_square(struct vision_plan *out, uint32_t side)
{
    const double w = out->width, h = out->height, by = side / fmax(w, h);
    const uint32_t width = (uint32_t)fmax(nearbyint(w * by), 1);
    const uint32_t height = (uint32_t)fmax(nearbyint(h * by), 1);
    const uint32_t of = vision_add_resize(out, -1, vision_whole(out), width, height);
    return vision_add_crop(out, of, -(int64_t)((side - width) / 2),
                           -(int64_t)((side - height) / 2));
}

/* The tiles of an image that does not fit into one. */
static void add_grid(const struct vision_deepseek_ocr *f, struct vision_plan *out)
{
    const struct vision_grids g = {f->tile, f->min_tiles, f->max_tiles};
    uint32_t cols, rows;
    out->crop_width = out->crop_height = f->tile;
    if (!f->tiled || (out->width <= f->tile && out->height <= f->tile))
        return;
    vision_nearest_grid(&g, out->width, out->height, &cols, &rows);
    vision_add_tiles(out,
                     vision_add_resize(out, -1, vision_whole(out), cols * f->tile, rows * f->tile),
                     rows, cols, f->tile, 0, 0);
}

/* Rows of features end with one more, and so does an image. */
static int plan_one(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_deepseek_ocr *f = &v->deepseek_ocr;
    const uint32_t unit = v->format.patch * v->format.merge, side = f->side / unit;
    (void)e;
    add_grid(f, out);
    add_padded(out, f->side);
    out->grid_h = out->rows ? out->rows * (f->tile / unit) : side;
    out->grid_w = out->rows ? out->cols * (f->tile / unit) : side;
    out->n_features = side * (side + 1) + 1;
    if (out->rows)
        out->n_features += out->grid_h * (out->grid_w + 1);
    return 0;
}

static int plan_two(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_deepseek_ocr *f = &v->deepseek_ocr;
    const uint32_t unit = v->format.patch * v->format.merge, t = f->tile;
    const uint32_t of_tile = t / unit * (t / unit), side = f->tiled ? f->side : t;
    (void)e;
    add_grid(f, out);
    vision_size_crop(out, add_square(out, side), side, side);
    out->grid_h = out->grid_w = side / unit;
    out->n_features = out->rows * out->cols * of_tile + out->grid_h * out->grid_w + 1;
    return 0;
}

const struct vision_family vision_deepseek_ocr = {
    .types = {"deepseek_vl_v2"}, .tower = "deeplip_b_l", .load = load_one, .plan = plan_one};
const struct vision_family vision_deepseek_ocr2 = {
    .types = {"deepseek_ocr2"}, .load = load_two, .plan = plan_two};
