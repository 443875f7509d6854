/* Nemotron Nano VL, and Nemotron 3 Nano Omni: one crop of about the image's own size, within
 * limits of patches; before Nemotron 3 tiles as of InternVL. Pixels are Pillow's, as in vLLM. */
#include "common/vision/settings.h"
#include <math.h>

enum { CONTEXT = 16384 }; /* tokens for which the published processor sizes an image */

/* The hub's files have the numbers of normalisation under other names, mostly in config.json. */
static void read_channels(struct vision *v, struct vision_settings *s)
{
    struct vision_format *f = &v->format;
    const struct vision_section *const own[] = {&s->config, &s->pixels};
    if (!vision_flag(&s->pixels, "do_normalize", true))
        return;
    for (int i = 0; i < 2; i++) {
        vision_channels(s, own[i], "norm_mean", f->mean, false, f->mean);
        vision_channels(s, own[i], "norm_std", f->std, true, f->std);
    }
    vision_channels(s, &s->pixels, "image_mean", f->mean, false, f->mean);
    vision_channels(s, &s->pixels, "image_std", f->std, true, f->std);
}

static void load_both(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, 16};
    vision_read_format(s, &v->format, &d);
    read_channels(v, s);
    v->format.layout = VISION_PATCHES;
    const double ratio = vision_number(s, &s->config, "downsample_ratio", 0.5);
    v->format.merge = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 1;
    if (v->format.merge * ratio != 1 ||
        vision_number(s, &s->pixels, "downsample_ratio", ratio) != ratio)
        vision_settings_fail(s,
                             "config.json: downsample_ratio must be 1, 1/2, 1/4 or 1/8, and that "
                             "of the processor");
    if (vision_u32(s, &s->pixels, "patch_size", v->format.patch, 1, 256) != v->format.patch ||
        vision_u32(s, &s->config, "patch_size", v->format.patch, 1, 256) != v->format.patch)
        vision_settings_fail(s, "%s: patch_size must be the tower's", s->pixels.name);
    v->token = vision_read_token(s, vision_key(s, "image_token_id", "img_context_token_id"),
                                 "<image>", 18, v->marker);
    vision_need_token(s, "<img>");
    vision_need_token(s, "</img>");
}

/* A limit of the processor, or of the tower in the files of its authors. */
static uint32_t patches(struct vision_settings *s, const char *key, uint32_t def, uint32_t min)
{
    const struct vision_section args = vision_inside(&s->tower, "args");
    def = vision_u32(s, &args, key, def, min, VISION_MAX_PIXELS);
    return vision_u32(s, &s->pixels, key, def, min, VISION_MAX_PIXELS);
}

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_nemotron *f = &v->nemotron;
    load_both(v, s);
    const uint32_t cell = v->format.merge * v->format.merge;
    const uint32_t context =
        vision_u32(s, &s->pixels, "max_model_len", CONTEXT, 5, VISION_MAX_PIXELS / cell);
    const uint32_t most = patches(s, "max_num_patches", 13312, 0); /* 0: no limit but the context */
    f->min_patches = patches(s, "min_num_patches", 1024, 1);
    f->max_patches = (context - 4) * cell;
    if (f->max_patches < f->min_patches)
        f->max_patches = f->min_patches;
    if (most && most < f->max_patches)
        f->max_patches = most > f->min_patches ? most : f->min_patches;
}

static void load_tiles(struct vision *v, struct vision_settings *s)
{
    struct vision_internvl *f = &v->internvl;
    const struct vision_section args = vision_inside(&s->tower, "args");
    load_both(v, s);
    if (args.o && vision_u32(s, &args, "min_num_patches", 0, 0, VISION_MAX_PIXELS))
        vision_settings_fail(s, "%s: min_num_patches is not supported with tiles", s->tower.name);
    f->tile = vision_side(s, &s->config, "force_image_size", 512);
    f->min_tiles = 1;
    f->max_tiles = vision_u32(s, &s->pixels, "max_num_tiles", 12, 1, VISION_MAX_CROPS - 1);
    f->thumbnail =
        vision_flag(&s->pixels, "use_thumbnail", vision_flag(&s->config, "use_thumbnail", true));
    f->tile_tokens = vision_tile_tokens(
        s, &(struct vision_grids){f->tile, f->min_tiles, f->max_tiles},
        vision_side(s, &s->pixels, "image_size", f->tile), v->format.patch * v->format.merge);
}

/* A side that is not whole cells grows to be, or shrinks if there would be too many patches. */
static double whole_cells(double side, double other, double cell, double most)
{
    const double rest = fmod(side, cell);
    if (rest == 0)
        return side;
    if ((side - rest + cell) * other <= most)
        return side - rest + cell;
    return fmax(cell, side - rest);
}

/* The grid of patches nearest to the image's own, scaled into the limits. */
static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_nemotron *f = &v->nemotron;
    const double p = v->format.patch, cell = v->format.merge, most = f->max_patches;
    double rows = nearbyint(out->height / p + 0.5), cols = nearbyint(out->width / p + 0.5);
    const double shrink = fmin(sqrt(most / (rows * cols)), 1);
    rows = floor(shrink * rows);
    cols = floor(shrink * cols);
    if (rows * cols == 0)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels has a side that is too long",
                       out->width, out->height);
    if (most > f->min_patches && rows * cols < f->min_patches) {
        const double grow = sqrt(f->min_patches / (rows * cols));
        rows = ceil(grow * rows);
        cols = ceil(grow * cols);
    }
    rows = whole_cells(rows, cols, cell, most);
    cols = whole_cells(cols, rows, cell, most);
    out->crop_height = (uint32_t)(rows * p);
    out->crop_width = (uint32_t)(cols * p);
    vision_add_crop(
        out, vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height), 0,
        0);
    out->grid_h = (uint32_t)(rows / cell);
    out->grid_w = (uint32_t)(cols / cell);
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, "<img>");
    vision_repeat(out, v->marker, p->n_features);
    buf_str(out, "</img>");
}

const struct vision_family vision_nemotron = {
    .types = {"nemotron_h_omni", "NemotronH_Nano_Omni_Reasoning_V3"},
    .load = load,
    .plan = plan,
    .expand = expand};
const struct vision_family vision_nemotron_tiles = {.types = {"NemotronH_Nano_VL_V2"},
                                                    .load = load_tiles,
                                                    .plan = vision_plan_internvl,
                                                    .expand = expand};
