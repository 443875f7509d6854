/* Qwen 2-VL, 2.5-VL, 3-VL, 3.5: one crop near the image's own size, with sides that are multiples
 * of a feature's side. */
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATCH_2 = 14, PATCH_3 = 16, MAX_ASPECT = 200 };

/* Two keys of two generations; the older ones take precedence, as in transformers. */
static uint64_t read_pixels(struct vision_settings *s, const char *key, const char *edge,
                            uint32_t def)
{
    const struct vision_section size = vision_inside(&s->pixels, "size");
    def = vision_u32(s, &size, edge, def, 1, VISION_MAX_PIXELS);
    def = vision_u32(s, &size, key, def, 1, VISION_MAX_PIXELS);
    return vision_u32(s, &s->pixels, key, def, 1, VISION_MAX_PIXELS);
}

/* From the tower; the preprocessor's value must be equal. */
static uint32_t read_shared(struct vision_settings *s, const char *tower_key, const char *key,
                            uint32_t def, uint32_t max)
{
    const uint32_t of_tower = vision_u32(s, &s->tower, tower_key, def, 1, max);
    if (vision_u32(s, &s->pixels, key, of_tower, 1, max) != of_tower)
        vision_settings_fail(s, "%s and %s disagree about %s", s->tower.name, s->pixels.name, key);
    return of_tower;
}

static void load(struct vision *v, struct vision_settings *s)
{
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    const bool third = strncmp(v->name, "qwen3", 5) == 0;
    const struct vision_pixel_defaults d = {VISION_BICUBIC, third ? vision_half : vision_clip_mean,
                                            third ? vision_half : vision_clip_std,
                                            third ? PATCH_3 : PATCH_2};
    vision_read_format(s, &v->format, &d);
    v->format.patch = read_shared(s, "patch_size", "patch_size", d.patch, 256);
    v->format.merge = read_shared(s, "spatial_merge_size", "merge_size", 2, 16);
    v->format.frames = read_shared(s, "temporal_patch_size", "temporal_patch_size", 2, 8);
    v->format.layout = VISION_PATCHES_BY_FEATURE;
    v->qwen.min_pixels = read_pixels(s, "min_pixels", "shortest_edge", third ? 65536 : 3136);
    v->qwen.max_pixels = read_pixels(s, "max_pixels", "longest_edge", third ? 16777216 : 12845056);
    if (v->qwen.min_pixels > v->qwen.max_pixels)
        vision_settings_fail(s, "%s: min_pixels is more than max_pixels", s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<|image_pad|>", 151655, v->marker);
    vision_read_token(s, "vision_start_token_id", "<|vision_start|>", 151652, start);
    vision_read_token(s, "vision_end_token_id", "<|vision_end|>", 151653, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
}

static double at_least(double least, double x) { return x > least ? x : least; }

/* In doubles and in the original's order, including rounding half to even, since a side determines
 * the number of tokens. */
static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const double h = out->height, w = out->width, f = v->format.patch * v->format.merge;
    const double least = (double)v->qwen.min_pixels, most = (double)v->qwen.max_pixels;
    if (fmax(h, w) / fmin(h, w) > MAX_ASPECT)
        return err_set(e, ERR_VALIDATION,
                       "An image of %u x %u pixels has one side of more than %d times the other",
                       out->width, out->height, MAX_ASPECT);
    double rh = nearbyint(h / f) * f, rw = nearbyint(w / f) * f;
    if (rh * rw > most) {
        const double shrink = sqrt(h * w / most);
        rh = floor(h / shrink / f) * f;
        rw = floor(w / shrink / f) * f;
    } else if (rh * rw < least) {
        const double stretch = sqrt(least / (h * w));
        rh = ceil(h * stretch / f) * f;
        rw = ceil(w * stretch / f) * f;
    }
    out->crop_height = (uint32_t)at_least(f, rh);
    out->crop_width = (uint32_t)at_least(f, rw);
    vision_add_crop(
        out, vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height), 0,
        0);
    out->grid_h = out->crop_height / (v->format.patch * v->format.merge);
    out->grid_w = out->crop_width / (v->format.patch * v->format.merge);
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    vision_repeat(out, v->marker, p->n_features);
}

const struct vision_family vision_qwen = {
    .types = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
    .three_positions = true,
    .load = load,
    .plan = plan,
    .expand = expand};
