/* Kimi-VL: one crop of the image's own size, or of as many patches as fit, with black to the right
 * and below up to whole features. */
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>

enum { MAX_SIDE = 511 }; /* patches: the rotations' table of the authors ends there */

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half, 14};
    char start[VISION_TOKEN_TEXT], content[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    vision_read_format(s, &v->format, &d);
    v->format.merge = vision_side(s, &s->tower, "merge_kernel_size", 2);
    if (v->format.merge > 16 ||
        vision_side(s, &s->pixels, "merge_kernel_size", v->format.merge) != v->format.merge) {
        vision_settings_fail(s, "%s: merge_kernel_size must be the tower's, and at most 16",
                             s->pixels.name);
        v->format.merge = 1;
    }
    v->format.layout = VISION_PATCHES;
    v->kimi.most_patches = vision_u32(s, &s->pixels, "in_token_limit", 4096, 1, VISION_MAX_PIXELS);
    if (!vision_flag(&s->pixels, "pad_input", false)) /* so it is where the key is absent */
        vision_settings_fail(s, "%s: pad_input must be true", s->pixels.name);
    v->token =
        vision_read_token(s, "media_placeholder_token_id", "<|media_pad|>", 163605, v->marker);
    vision_read_token(s, NULL, "<|media_start|>", 163602, start);
    vision_read_token(s, NULL, "<|media_content|>", 163603, content);
    vision_read_token(s, NULL, "<|media_end|>", 163604, end);
    snprintf(v->around, sizeof(v->around), "%simage%s%s%s", start, content, v->marker, end);
}

static uint32_t up_to(uint32_t side, uint32_t unit) { return (side + unit - 1) / unit * unit; }

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t p = v->format.patch, unit = p * v->format.merge;
    const double patches = (double)(out->width / p) * (out->height / p);
    uint32_t w = out->width, h = out->height;
    if (patches > v->kimi.most_patches) {
        const double shrink = sqrt(v->kimi.most_patches / patches);
        w = (uint32_t)(w * shrink);
        h = (uint32_t)(h * shrink);
    }
    out->crop_width = up_to(w, unit);
    out->crop_height = up_to(h, unit);
    if (out->crop_width / p > MAX_SIDE || out->crop_height / p > MAX_SIDE)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels has a side that is too long",
                       out->width, out->height);
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), w, h), 0, 0);
    out->grid_h = out->crop_height / unit;
    out->grid_w = out->crop_width / unit;
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    vision_repeat(out, v->marker, p->n_features);
}

const struct vision_family vision_kimi_vl = {
    .types = {"kimi_vl"}, .load = load, .plan = plan, .expand = expand};
