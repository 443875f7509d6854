/* Kimi-VL and Kimi K2.5: one crop of the image's own size, or of as many patches as fit, with black
 * to the right and below up to whole features. */
#include "common/json/json.h"
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

/* The hub's files have keys of their authors, in an object of their own; transformers' have its. */
static void load_k25(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half, 14};
    const struct vision_section own = vision_inside(&s->pixels, "media_proc_cfg");
    const bool hub = own.o;
    const struct vision_section size = vision_inside(&s->pixels, "size");
    char start[VISION_TOKEN_TEXT], content[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    if (hub)
        s->pixels = own;
    vision_read_format(s, &v->format, &d);
    v->format.merge = vision_side(s, &s->tower, "merge_kernel_size", 2);
    if (v->format.merge > 16 || vision_u32(s, &s->pixels, hub ? "merge_kernel_size" : "merge_size",
                                           v->format.merge, 1, 16) != v->format.merge) {
        vision_settings_fail(s, "%s: merge_size must be the tower's, and at most 16",
                             s->pixels.name);
        v->format.merge = 1;
    }
    if (vision_u32(s, &s->pixels, "patch_size", v->format.patch, 1, 256) != v->format.patch)
        vision_settings_fail(s, "%s: patch_size must be the tower's", s->pixels.name);
    v->format.layout = VISION_PATCHES;
    v->kimi.most_patches = vision_u32(s, &s->pixels, hub ? "in_patch_limit" : "max_patches", 16384,
                                      1, VISION_MAX_PIXELS);
    v->kimi.most_side =
        hub ? vision_u32(s, &s->pixels, "patch_limit_on_one_side", 512, 1, VISION_MAX_SETTING)
            : vision_u32(s, &size, "max_height", 512, 1, VISION_MAX_SETTING);
    if (!hub && vision_u32(s, &size, "max_width", v->kimi.most_side, 1, VISION_MAX_SETTING) !=
                    v->kimi.most_side)
        vision_settings_fail(s, "%s: max_width must be max_height", s->pixels.name);
    v->token = vision_read_token(s, vision_key(s, "media_placeholder_token_id", "image_token_id"),
                                 "<|media_pad|>", 163605, v->marker);
    vision_read_token(s, NULL, "<|media_begin|>", 163602, start);
    vision_read_token(s, NULL, "<|media_content|>", 163603, content);
    vision_read_token(s, NULL, "<|media_end|>", 163604, end);
    snprintf(v->around, sizeof(v->around), "%simage%s%s%s", start, content, v->marker, end);
}

static uint32_t up_to(uint32_t side, uint32_t unit) { return (side + unit - 1) / unit * unit; }

/* One crop of an image that becomes w x h pixels. */
static void add(const struct vision *v, struct vision_plan *out, uint32_t w, uint32_t h)
{
    const uint32_t unit = v->format.patch * v->format.merge;
    out->crop_width = up_to(w, unit);
    out->crop_height = up_to(h, unit);
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), w, h), 0, 0);
    out->grid_h = out->crop_height / unit;
    out->grid_w = out->crop_width / unit;
    out->n_features = out->grid_h * out->grid_w;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t p = v->format.patch, rows = out->height / p, cols = out->width / p;
    const double patches = (double)rows * cols;
    uint32_t w = out->width, h = out->height;
    if (patches > v->kimi.most_patches) {
        const double shrink = sqrt(v->kimi.most_patches / patches);
        w = (uint32_t)(w * shrink);
        h = (uint32_t)(h * shrink);
    }
    add(v, out, w, h);
    if (out->crop_width / p > MAX_SIDE || out->crop_height / p > MAX_SIDE)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels has a side that is too long",
                       out->width, out->height);
    return 0;
}

static double within(double least, double x, double most) { return fmin(fmax(least, x), most); }

/* Shrunk to the limits of patches and of sides. */
static int plan_k25(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const double p = v->format.patch, side = v->kimi.most_side * p, w = out->width, h = out->height;
    const double patches = fmax(1, floor(h / p)) * fmax(1, floor(w / p));
    const double shrink =
        fmin(fmin(1, sqrt(v->kimi.most_patches / patches)), fmin(side / h, side / w));
    (void)e;
    add(v, out, (uint32_t)within(1, floor(w * shrink), side),
        (uint32_t)within(1, floor(h * shrink), side));
    return 0;
}

const struct vision_family vision_kimi_vl = {.types = {"kimi_vl"}, .load = load, .plan = plan};
const struct vision_family vision_kimi_k25 = {
    .types = {"kimi_k25"}, .load = load_k25, .plan = plan_k25};
