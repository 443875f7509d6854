/* Step 3.7 and Step3-VL: tiles of a size that depends on the image's, each resized by itself, then
 * the whole image. An image that is a line is first padded to a square. */
#include "common/vision/settings.h"
#include <math.h>

enum { DOWN = 4 }; /* patches a side that become a feature */

static uint32_t tokens_of(const struct vision *v, uint32_t side)
{
    const uint32_t n = side / (v->format.patch * DOWN);
    return n * n;
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const char *const words[] = {"<patch_start>", "<patch_end>", "<patch_newline>",
                                        "<im_start>", "<im_end>"};
    struct vision_step3 *f = &v->step3;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BILINEAR, vision_clip_mean, vision_clip_std, 14});
    v->format.merge = DOWN;
    const uint32_t unit = v->format.patch * DOWN;
    f->whole = vision_side(s, &s->pixels, "size", 728);
    f->tile = vision_u32(s, &s->pixels, "patch_size", 504, 1, VISION_MAX_SETTING);
    f->most = vision_u32(s, &s->pixels, "max_image_size", 3024, 1, VISION_MAX_SETTING);
    if (f->whole % unit || f->tile % unit)
        vision_settings_fail(s, "%s: size and patch_size must be multiples of %u", s->pixels.name,
                             unit);
    v->token = vision_read_token(s, "image_token_id", "<im_patch>", 151679, v->marker);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        vision_need_token(s, words[i]);
}

/* The side of a tile before it is resized; 0: there are no tiles. */
static uint32_t window_of(const struct vision_step3 *f, uint32_t w, uint32_t h)
{
    const uint32_t shorter = w < h ? w : h, longer = w < h ? h : w;
    if (longer <= f->whole)
        return (double)longer / shorter > 1.5 ? shorter : 0;
    if ((double)longer / shorter > 4)
        return shorter < f->tile ? shorter : f->tile;
    return f->tile;
}

/* Whole windows, of which the last one is more than a fifth of one; a shorter side stays. */
static uint32_t snapped(uint32_t side, uint32_t window)
{
    if (side < window)
        return side;
    return window * (side / window + (side % window > 0.2 * window));
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static int add_tiles(const struct vision *v, struct vision_plan *out, uint32_t window, uint32_t w,
                     uint32_t h, struct err *e)
{
    const uint32_t side = v->step3.tile;
    const uint32_t all =
        vision_add_resize(out, -1, vision_whole(out), snapped(w, window), snapped(h, window));
    const uint32_t width = out->resizes[all].width, height = out->resizes[all].height;
    out->cols = (width + window - 1) / window;
    out->rows = (height + window - 1) / window;
    if ((uint64_t)out->rows * out->cols > VISION_MAX_CROPS - 1)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes more than %d tiles",
                       out->width, out->height, VISION_MAX_CROPS - 1);
    for (uint32_t i = 0; i < out->rows * out->cols; i++) {
        const uint32_t x = i % out->cols * window, y = i / out->cols * window;
        const struct vision_rect cut = {x, y, least(window, width - x), least(window, height - y)};
        const uint32_t tile = vision_add_resize(out, (int32_t)all, cut, side, side);
        vision_size_crop(out, vision_add_crop(out, tile, 0, 0), side, side);
    }
    return 0;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_step3 *f = &v->step3;
    uint32_t w = out->width, h = out->height;
    const uint32_t shorter = w < h ? w : h, longer = w < h ? h : w;
    if (shorter < 32 && (double)longer / shorter > 4) {
        out->canvas = (struct vision_rect){0, 0, longer, longer};
        w = h = longer;
    }
    if (longer > f->most) {
        const double scale = (double)f->most / longer;
        w = (uint32_t)(w * scale);
        h = (uint32_t)(h * scale);
    }
    if (!w || !h)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes no feature",
                       out->width, out->height);
    const uint32_t window = window_of(f, w, h);
    if (window && add_tiles(v, out, window, w, h, e))
        return -1;
    const uint32_t once = vision_add_resize(out, -1, vision_whole(out), w, h);
    const struct vision_rect all = {0, 0, w, h};
    vision_size_crop(
        out,
        vision_add_crop(out, vision_add_resize(out, (int32_t)once, all, f->whole, f->whole), 0, 0),
        f->whole, f->whole);
    out->crop_width = out->crop_height = f->whole;
    out->n_features = (out->n_crops - 1) * tokens_of(v, f->tile) + tokens_of(v, f->whole);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t i = 0; i + 1 < p->n_crops; i++) {
        buf_str(out, "<patch_start>");
        vision_repeat(out, v->marker, tokens_of(v, v->step3.tile));
        buf_str(out, "<patch_end>");
        if ((i + 1) % p->cols == 0 && i + 2 < p->n_crops)
            buf_str(out, "<patch_newline>");
    }
    buf_str(out, "<im_start>");
    vision_repeat(out, v->marker, tokens_of(v, v->step3.whole));
    buf_str(out, "<im_end>");
}

const struct vision_family vision_step3p7 = {
    .types = {"step3p7", "step_robotics"}, .load = load, .plan = plan, .expand = expand};
