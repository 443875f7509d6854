/* InternVL, in transformers' and in its authors' format, Intern-S1 and Skywork R1V: the tile grid
 * nearest in aspect ratio, then the whole image as one tile. */
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Each frame is one tile. Only transformers' files say how; a model whose vocabulary lacks their
 * marker takes no videos. */
static void load_video(struct vision *v, struct vision_settings *s,
                       const struct vision_pixel_defaults *d)
{
    const char *const name = "<video>";
    const uint32_t tile = v->internvl.tile;
    if (s->t && tokenizer_id(s->t, name) < 0)
        return;
    vision_read_video_format(s, v, d);
    if (vision_side(s, &s->video, "size", tile) != tile)
        vision_settings_fail(s, "%s: size must be that of images, %u", s->video.name, tile);
    vision_take_frames(s, v, v->token, v->internvl.patch, name);
}

/* Their keys are in config.json. */
static bool is_chat(const struct vision *v)
{
    return strcmp(v->name, "internvl_chat") == 0 || strcmp(v->name, "skywork_chat") == 0;
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults got = {VISION_BICUBIC, vision_clip_mean,
                                                     vision_clip_std, 14},
                                              published = {VISION_BICUBIC, vision_imagenet_mean,
                                                           vision_imagenet_std, 14};
    struct vision_internvl *f = &v->internvl;
    const bool chat = is_chat(v);
    vision_read_format(s, &v->format, vision_defaults(s, chat ? &published : &got, &published));
    const struct vision_section *in = chat ? &s->config : &s->pixels;
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 448);
    f->tile = vision_side(s, in, chat ? "force_image_size" : "size", of_tower);
    f->min_tiles =
        vision_u32(s, in, chat ? "min_dynamic_patch" : "min_patches", 1, 1, VISION_MAX_CROPS - 1);
    f->max_tiles =
        vision_u32(s, in, chat ? "max_dynamic_patch" : "max_patches", 12, 1, VISION_MAX_CROPS - 1);
    f->thumbnail = !chat || vision_flag(in, "use_thumbnail", false);
    if (chat && !vision_flag(in, "dynamic_image_size", false))
        f->min_tiles = f->max_tiles = 1;
    const double ratio = vision_number(s, &s->config, "downsample_ratio", 0.5);
    v->format.merge = ratio > 0.06 && ratio <= 1 ? (uint32_t)(1 / ratio) : 1;
    if (v->format.merge * ratio != 1)
        vision_settings_fail(s, "config.json: downsample_ratio must be 1, 1/2, 1/4 or 1/8");
    f->tile_tokens =
        vision_tile_tokens(s, &(struct vision_grids){f->tile, f->min_tiles, f->max_tiles}, of_tower,
                           v->format.patch * v->format.merge);
    v->token = vision_read_token(s, "image_token_id", "<IMG_CONTEXT>", 151667, f->patch);
    if (strcmp(v->name, "qianfan_ocr") == 0) {
        snprintf(v->marker, sizeof(v->marker), "<image>"); /* of templates; no token of the model */
    } else {
        memcpy(v->marker, f->patch, sizeof(v->marker));
    }
    vision_need_token(s, "<img>");
    vision_need_token(s, "</img>");
    if (!strcmp(v->name, "internvl"))
        load_video(v, s, &got);
}

void vision_nearest_grid(const struct vision_grids *f, double w, double h, uint32_t *cols,
                         uint32_t *rows)
{
    double nearest = INFINITY;
    *cols = *rows = 1;
    for (uint32_t n = f->min_tiles; n <= f->max_tiles; n++)
        for (uint32_t c = 1; c <= n; c++) {
            const uint32_t r = n / c;
            const double off = fabs(w / h - (double)c / r);
            if (r * c != n || (f->most_side && (c > f->most_side || r > f->most_side)) ||
                off > nearest || (off == nearest && !(w * h > 0.5 * f->tile * f->tile * c * r)))
                continue;
            nearest = off;
            *cols = c;
            *rows = r;
        }
}

void vision_plan_tiles(const struct vision *v, uint32_t rows, uint32_t cols,
                       struct vision_plan *out)
{
    const struct vision_internvl *f = &v->internvl;
    const uint32_t t = f->tile;
    out->crop_width = out->crop_height = t;
    const uint32_t all = vision_add_resize(out, -1, vision_whole(out), cols * t, rows * t);
    if (rows * cols == 1) {
        vision_add_crop(out, all, 0, 0);
    } else {
        vision_add_tiles(out, all, rows, cols, t, 0, 0);
        if (f->thumbnail)
            vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), t, t), 0, 0);
    }
    out->grid_h = out->grid_w = t / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * f->tile_tokens;
}

void vision_plan_grid(const struct vision *v, const struct vision_grids *g, struct vision_plan *out)
{
    uint32_t cols, rows;
    vision_nearest_grid(g, out->width, out->height, &cols, &rows);
    vision_plan_tiles(v, rows, cols, out);
}

int vision_plan_internvl(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_internvl *f = &v->internvl;
    const struct vision_grids g = {.tile = f->tile, f->min_tiles, f->max_tiles};
    (void)e;
    vision_plan_grid(v, &g, out);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, "<img>");
    vision_repeat(out, v->internvl.patch, p->n_features);
    buf_str(out, "</img>");
}

static int plan_video(const struct vision *v, struct vision_plan *out, struct err *e)
{
    (void)e;
    vision_plan_tiles(v, 1, 1, out);
    vision_add_frames(out);
    return 0;
}

static void expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t i = 0; i < p->frames; i++) {
        buf_fmt(out, "%sFrame%u: <img>", i ? "\n" : "", i + 1);
        vision_repeat(out, v->internvl.patch, v->internvl.tile_tokens);
        buf_str(out, "</img>");
    }
}

const struct vision_family vision_internvl = {
    .types = {"internvl", "interns1", "internvl_chat", "skywork_chat", "qianfan_ocr"},
    .load = load,
    .plan = vision_plan_internvl,
    .plan_video = plan_video,
    .expand = expand,
    .expand_video = expand_video};
