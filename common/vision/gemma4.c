/* Gemma 4: one crop in the picture's own shape, as large as a number of features allows. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_gemma4 *g = &v->gemma4;
    static const float none[3] = {0}, whole[3] = {1, 1, 1};
    const bool unified = strcmp(v->name, "gemma4_unified") == 0;
    const struct vision_section text = vision_inside(&s->config, "text_config");
    vision_read_format(s, &v->format,
                       &(struct vision_pixel_defaults){VISION_BICUBIC, none, whole, 16});
    bool plain = true;
    for (int i = 0; i < 3; i++)
        plain = plain && v->format.mean[i] == none[i] && v->format.std[i] == whole[i];
    if (!plain)
        vision_settings_fail(s, "%s: pixels of this family are not normalised", s->pixels.name);
    if (!unified) { /* the tower's: 2 (x - 0.5) */
        memcpy(v->format.mean, vision_half, sizeof(v->format.mean));
        memcpy(v->format.std, vision_half, sizeof(v->format.std));
    }
    v->format.merge = vision_u32(s, &s->tower, "pooling_kernel_size", 3, 1, 16);
    g->most_features = vision_u32(s, &s->pixels, "max_soft_tokens", 280, 1, 1 << 16);
    if (vision_u32(s, &s->pixels, "patch_size", v->format.patch, 1, 256) != v->format.patch ||
        vision_u32(s, &s->pixels, "pooling_kernel_size", v->format.merge, 1, 16) != v->format.merge)
        vision_settings_fail(s, "%s and %s disagree about patch_size or pooling_kernel_size",
                             s->tower.name, s->pixels.name);
    v->two_way = strcmp(json_str(text.o, "use_bidirectional_attention", unified ? "vision" : ""),
                        "vision") == 0;
    v->token = vision_read_token(s, "image_token_id", "<|image|>", 258880, v->marker);
    vision_read_token(s, "boi_token_id", "<|image>", 255999, g->start);
    vision_read_token(s, "eoi_token_id", "<image|>", 258882, g->end);
}

/* Features along a side whose ideal length is `side` pixels; 0: less than one. */
static uint32_t features(double side, double unit) { return (uint32_t)floor(side / unit); }

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* In doubles and in the order of the original: a side decides how many tokens there are. A very
 * long picture is a line of features. */
static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t most = v->gemma4.most_features, m = v->format.merge, p = v->format.patch;
    const double pixels = (double)most * m * m * ((double)p * p), unit = (double)m * p;
    const double h = out->height, w = out->width, factor = sqrt(pixels / (h * w));
    uint32_t rows = features(factor * h, unit), cols = features(factor * w, unit);
    if (rows == 0 && cols == 0)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes no feature",
                       out->width, out->height);
    if (rows == 0) {
        rows = 1;
        cols = least(out->width / out->height, most);
    } else if (cols == 0) {
        cols = 1;
        rows = least(out->height / out->width, most);
    }
    out->crop_height = rows * m * p;
    out->crop_width = cols * m * p;
    vision_add_crop(
        out, vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height), 0,
        0);
    out->grid_h = rows;
    out->grid_w = cols;
    out->n_features = rows * cols;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, v->gemma4.start);
    vision_repeat(out, v->marker, p->n_features);
    buf_str(out, v->gemma4.end);
}

const struct vision_family vision_gemma4 = {
    .types = {"gemma4", "gemma4_unified"}, .load = load, .plan = plan, .expand = expand};
