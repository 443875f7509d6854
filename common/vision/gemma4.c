/* Gemma 4: one crop in the picture's own shape, as large as a number of features allows. */
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

/* The tower does it. */
static void check_plain(struct vision_settings *s, const struct vision_section *in,
                        const struct vision_format *f)
{
    bool plain = true;
    for (int i = 0; i < 3; i++)
        plain = plain && f->mean[i] == 0 && f->std[i] == 1;
    if (!plain)
        vision_settings_fail(s, "%s: pixels of this family are not normalised", in->name);
}

/* Frames have fewer features than images. A model whose vocabulary lacks the token, which
 * transformers would add without an embedding, takes no videos. */
static void load_video(struct vision *v, struct vision_settings *s)
{
    static const float none[3] = {0}, whole[3] = {1, 1, 1};
    const char *const name = "<|video|>";
    char pad[VISION_TOKEN_TEXT];
    if (!json_get(s->config.o, "video_token_id") || (s->t && tokenizer_id(s->t, name) < 0))
        return;
    vision_read_video_format(s, v,
                             &(struct vision_pixel_defaults){VISION_BICUBIC, none, whole, 16});
    vision_u32(s, &s->video, "pooling_kernel_size", v->format.merge, v->format.merge,
               v->format.merge);
    check_plain(s, &s->video, &v->video.format);
    memcpy(v->video.format.mean, v->format.mean, sizeof(v->format.mean));
    memcpy(v->video.format.std, v->format.std, sizeof(v->format.std));
    v->gemma4.most_of_frame = vision_u32(s, &s->video, "max_soft_tokens", 70, 1, 1 << 16);
    const uint32_t token = vision_read_token(s, "video_token_id", name, 258884, pad);
    vision_take_frames(s, v, token, pad, pad);
}

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_gemma4 *g = &v->gemma4;
    static const float none[3] = {0}, whole[3] = {1, 1, 1};
    const bool unified = strcmp(v->name, "gemma4_unified") == 0;
    const struct vision_section text = vision_inside(&s->config, "text_config");
    vision_read_format(s, &v->format,
                       &(struct vision_pixel_defaults){VISION_BICUBIC, none, whole, 16});
    check_plain(s, &s->pixels, &v->format);
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
    load_video(v, s);
}

/* Features along a side whose ideal length is `side` pixels; 0: less than one. */
static uint32_t features(double side, double unit) { return (uint32_t)floor(side / unit); }

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* In doubles and in the order of the original: a side decides how many tokens there are. A very
 * long picture is a line of features. */
static int fit(const struct vision *v, uint32_t most, struct vision_plan *out, struct err *e)
{
    const uint32_t m = v->format.merge, p = v->format.patch;
    const double pixels = (double)most * m * m * ((double)p * p), unit = (double)m * p;
    const double h = out->height, w = out->width, factor = sqrt(pixels / (h * w));
    uint32_t rows = features(factor * h, unit), cols = features(factor * w, unit);
    if (rows == 0 && cols == 0)
        return err_set(e, ERR_VALIDATION, "%s of %u x %u pixels becomes no feature",
                       out->frames ? "A frame" : "An image", out->width, out->height);
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

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    return fit(v, v->gemma4.most_features, out, e);
}

static int plan_video(const struct vision *v, struct vision_plan *out, struct err *e)
{
    if (fit(v, v->gemma4.most_of_frame, out, e))
        return -1;
    vision_add_frames(out);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, v->gemma4.start);
    vision_repeat(out, v->marker, p->n_features);
    buf_str(out, v->gemma4.end);
}

/* Each frame behind its time, in whole seconds. */
static void expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t i = 0; i < p->frames; i++) {
        const unsigned long long at = (unsigned long long)(i / p->fps);
        buf_fmt(out, "%s%02llu:%02llu %s", i ? " " : "", at / 60, at % 60, v->gemma4.start);
        vision_repeat(out, v->video.pad, (uint64_t)p->grid_h * p->grid_w);
        buf_str(out, v->gemma4.end);
    }
}

const struct vision_family vision_gemma4 = {.types = {"gemma4", "gemma4_unified"},
                                            .load = load,
                                            .plan = plan,
                                            .plan_video = plan_video,
                                            .expand = expand,
                                            .expand_video = expand_video};
