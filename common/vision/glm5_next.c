/* GLM-5.3: an image at its own size in the top left of a canvas of whole features, whose rest is
 * black. An image of too few features grows, one of too many shrinks. */
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>

static void load_tokens(struct vision *v, struct vision_settings *s)
{
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    v->token = vision_read_token(s, "image_token_id", "<|image|>", 154854, v->marker);
    vision_read_token(s, "image_start_token_id", "<|begin_of_image|>", 154830, start);
    vision_read_token(s, "image_end_token_id", "<|end_of_image|>", 154831, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, 14};
    struct vision_glm5 *f = &v->glm5;
    vision_read_format(s, &v->format, &d);
    v->format.patch = vision_shared(s, "patch_size", "patch_size", d.patch, 256);
    v->format.merge = vision_shared(s, "spatial_merge_size", "merge_size", 2, 16);
    v->format.frames = vision_shared(s, "temporal_patch_size", "temporal_patch_size", 2, 8);
    v->format.layout = VISION_PATCHES_BY_FEATURE;
    f->min_tokens = vision_u32(s, &s->pixels, "min_image_tokens", 16, 1, 1u << 20);
    f->max_tokens = vision_u32(s, &s->pixels, "max_image_tokens", 8000, 1, 1u << 20);
    load_tokens(v, s);
}

static uint64_t features(uint64_t side, uint32_t unit) { return (side + unit - 1) / unit; }

/* The largest height whose image has at most `most` features, in features; one alone if there is
 * none. The number of them grows with the height. */
static void shrink(double h, double w, uint32_t unit, uint64_t most, uint64_t *rows, uint64_t *cols)
{
    uint64_t low = 1, high = (uint64_t)h;
    *rows = *cols = 1;
    while (low <= high) {
        const uint64_t height = (low + high) / 2;
        const double width = fmax(1, floor(w * (double)height / h));
        const uint64_t r = features(height, unit), c = features((uint64_t)width, unit);
        if (r * c <= most) {
            *rows = r;
            *cols = c;
            low = height + 1;
        } else
            high = height - 1;
    }
}

/* A side of the image within `canvas` pixels. */
static uint32_t content(double side, double scale, double canvas)
{
    return (uint32_t)fmax(1, fmin(canvas, floor(side * scale)));
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_glm5 *f = &v->glm5;
    const uint32_t unit = v->format.patch * v->format.merge;
    const double h = out->height, w = out->width, least = (double)f->min_tokens * unit * unit;
    uint64_t rows = features(out->height, unit), cols = features(out->width, unit);
    if (rows * cols < f->min_tokens) {
        const double grow = sqrt(least / (h * w));
        rows = features((uint64_t)ceil(h * grow), unit);
        cols = features((uint64_t)ceil(w * grow), unit);
    }
    if (rows * cols > f->max_tokens)
        shrink(h, w, unit, f->max_tokens, &rows, &cols);
    if (rows * unit > VISION_MAX_CROP_SIDE || cols * unit > VISION_MAX_CROP_SIDE)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels is too narrow", out->width,
                       out->height);
    out->grid_h = (uint32_t)rows;
    out->grid_w = (uint32_t)cols;
    out->n_features = out->grid_h * out->grid_w;
    out->crop_height = out->grid_h * unit;
    out->crop_width = out->grid_w * unit;
    double scale = fmin(out->crop_height / h, out->crop_width / w);
    if (h * w >= least)
        scale = fmin(1, scale);
    vision_add_crop(out,
                    vision_add_resize(out, -1, vision_whole(out),
                                      content(w, scale, out->crop_width),
                                      content(h, scale, out->crop_height)),
                    0, 0);
    return 0;
}

/* Positions have one coordinate. */
const struct vision_family vision_glm5_next = {.types = {"glm5_next"}, .load = load, .plan = plan};
