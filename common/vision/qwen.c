/* Qwen 2-VL, 2.5-VL, 3-VL, 3.5, Omni, GLM-4V, GLM-OCR, PaddleOCR-VL, VideoLLaMA 3, MiniMax M3,
 * Cosmos 3 Edge, North Vision, dots.ocr, HunyuanOCR, Hunyuan V4, Keye-VL, OpenCUA, Ovis 2.5, ERNIE
 * 4.5 VL: one crop near the image's own size, with sides that are multiples of a feature's. */
#include "common/vision/qwen.h"
#include "common/json/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATCH_2 = 14, PATCH_3 = 16, MAX_ASPECT = 200 };

/* Placeholders: an image's, and those around it in templates. */
static const struct qwen_tokens {
    const char *image, *start_key, *start, *end_key, *end;
    uint32_t image_id, start_id, end_id;
} qwen_tokens = {"<|image_pad|>",
                 "vision_start_token_id",
                 "<|vision_start|>",
                 "vision_end_token_id",
                 "<|vision_end|>",
                 151655,
                 151652,
                 151653},
  qwen_omni_tokens = {"<|IMAGE|>",      "vision_start_token_id",
                      "<|vision_bos|>", "vision_end_token_id",
                      "<|vision_eos|>", 151655,
                      151652,           151653},
  glm_tokens = {"<|image|>",
                "image_start_token_id",
                "<|begin_of_image|>",
                "image_end_token_id",
                "<|end_of_image|>",
                151343,
                151339,
                151340},
  glm_moe_tokens = {"<|image|>",
                    "image_start_token_id",
                    "<|begin_of_image|>",
                    "image_end_token_id",
                    "<|end_of_image|>",
                    151363,
                    151339,
                    151340},
  glm_ocr_tokens = {"<|image|>",
                    "image_start_token_id",
                    "<|begin_of_image|>",
                    "image_end_token_id",
                    "<|end_of_image|>",
                    59280,
                    59256,
                    59257},
  paddle_tokens = {"<|IMAGE_PLACEHOLDER|>",
                   "vision_start_token_id",
                   "<|IMAGE_START|>",
                   "vision_end_token_id",
                   "<|IMAGE_END|>",
                   100295,
                   101305,
                   101306},
  cosmos3_tokens = {"<|image_pad|>",
                    "vision_start_token_id",
                    "<|vision_start|>",
                    "vision_end_token_id",
                    "<|vision_end|>",
                    19,
                    20,
                    21},
  compass_tokens = {"<|IMAGE_PAD|>",
                    "vision_start_token_id",
                    "<|VISION_START|>",
                    "vision_end_token_id",
                    "<|VISION_END|>",
                    255031,
                    255028,
                    255029};

static uint32_t read_edge(struct vision_settings *s, const char *edge, uint32_t def)
{
    const struct vision_section size = vision_inside(&s->pixels, "size");
    return vision_u32(s, &size, edge, def, 1, VISION_MAX_PIXELS);
}

/* A size without one of the edges, which no older key replaces, or of another family's form:
 * transformers refuses it. `first`: the older keys may be in `size`, as in the files of Qwen2-VL.
 * MiniMax's files have a size that its authors' code does not use. */
static void check_size(struct vision_settings *s, bool first)
{
    const cJSON *size = json_get(s->pixels.o, "size");
    const bool least = json_get(size, "shortest_edge") || json_get(s->pixels.o, "min_pixels") ||
                       (first && json_get(size, "min_pixels"));
    const bool most = json_get(size, "longest_edge") || json_get(s->pixels.o, "max_pixels") ||
                      (first && json_get(size, "max_pixels"));
    if (size && !(least && most))
        vision_settings_fail(s, "%s: size must have shortest_edge and longest_edge",
                             s->pixels.name);
}

/* Two keys of two generations; the older ones take precedence, as in transformers. */
static uint64_t read_pixels(struct vision_settings *s, const char *key, const char *edge,
                            uint32_t def)
{
    const struct vision_section size = vision_inside(&s->pixels, "size");
    def = read_edge(s, edge, def);
    def = vision_u32(s, &size, key, def, 1, VISION_MAX_PIXELS);
    return vision_u32(s, &s->pixels, key, def, 1, VISION_MAX_PIXELS);
}

static void load_tokens(struct vision *v, struct vision_settings *s, const struct qwen_tokens *t)
{
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    v->token = vision_read_token(s, vision_key(s, "image_token_id", "image_token_index"), t->image,
                                 t->image_id, v->marker);
    if (!v->family->three_positions) /* EXAONE and HyperCLOVA X name no markers */
        return;
    vision_read_token(s, t->start_key, t->start, t->start_id, start);
    vision_read_token(s, t->end_key, t->end, t->end_id, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
}

static void load_pixels(struct vision *v, struct vision_settings *s,
                        const struct vision_pixel_defaults *d, uint32_t merge, uint32_t min,
                        uint32_t max)
{
    vision_read_format(s, &v->format, d);
    v->format.patch = vision_shared(s, "patch_size", "patch_size", d->patch, 256);
    v->format.merge = vision_shared(s, "spatial_merge_size", "merge_size", merge, 16);
    v->format.layout = VISION_PATCHES_BY_FEATURE;
    v->qwen.min_pixels = read_pixels(s, "min_pixels", "shortest_edge", min);
    v->qwen.max_pixels = read_pixels(s, "max_pixels", "longest_edge", max);
    if (v->qwen.min_pixels > v->qwen.max_pixels)
        vision_settings_fail(s, "%s: min_pixels is more than max_pixels", s->pixels.name);
    v->qwen.frames = v->qwen.features = 1;
}

/* As in transformers, GLM and Cosmos have the newer keys alone. */
static void only_edges(struct vision *v, struct vision_settings *s, uint32_t min, uint32_t max)
{
    v->qwen.min_pixels = read_edge(s, "shortest_edge", min);
    v->qwen.max_pixels = read_edge(s, "longest_edge", max);
    if (v->qwen.min_pixels > v->qwen.max_pixels)
        vision_settings_fail(s, "%s: shortest_edge is more than longest_edge", s->pixels.name);
}

static void load_sizes(struct vision *v, struct vision_settings *s,
                       const struct vision_pixel_defaults *d, uint32_t min, uint32_t max)
{
    check_size(s, true);
    load_pixels(v, s, d, 2, min, max);
    v->format.frames = vision_shared(s, "temporal_patch_size", "temporal_patch_size", 2, 8);
}

static void load(struct vision *v, struct vision_settings *s)
{
    const bool third = strncmp(v->name, "qwen3", 5) == 0;
    const bool own = !s->pixels.o; /* without a file, sizes and means are those of published ones */
    const struct vision_pixel_defaults of_class = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, third ? PATCH_3 : PATCH_2},
                                       published = {VISION_BICUBIC, vision_half, vision_half,
                                                    PATCH_3};
    const struct vision_pixel_defaults *const d =
        third ? vision_defaults(s, &of_class, &published) : &of_class;
    load_sizes(v, s, d, own && third ? 65536 : 3136,
               !own    ? 28 * 28 * 1280
               : third ? 16777216
                       : 12845056);
    load_tokens(v, s,
                strcmp(v->name, "qwen2_5_omni_thinker") == 0 ? &qwen_omni_tokens
                : strcmp(v->name, "cohere_compass") == 0     ? &compass_tokens
                                                             : &qwen_tokens);
    qwen_load_video(v, s, third ? &published : &of_class);
}

/* Both sides grow until neither is less than that of a feature, `f`. */
void qwen_enlarge_both(double f, double *h, double *w)
{
    const double scale = fmax(f / *h, f / *w);
    if (fmin(*h, *w) < f)
        *h = floor(*h * scale), *w = floor(*w * scale);
}

/* One after the other. */
static void enlarge_each(double f, double *h, double *w)
{
    if (*h < f)
        *w = nearbyint(*w * f / *h), *h = f;
    if (*w < f)
        *h = nearbyint(*h * f / *w), *w = f;
}

/* Ovis 2.5: the shorter side becomes `f`. Otherwise the longer side is cut down to 200 times it. */
static void enlarge_or_squeeze(double f, double *h, double *w)
{
    double *const shorter = *h < *w ? h : w, *const longer = *h < *w ? w : h;
    if (*shorter < f)
        *longer = nearbyint(f / *shorter * *longer), *shorter = f;
    else if (*longer / *shorter > MAX_ASPECT)
        *longer = MAX_ASPECT * *shorter;
}

/* An image counts as the frames of its row of patches. */
static void load_glm(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    load_sizes(v, s, &d, 112 * 112, 28 * 28 * 15000);
    only_edges(v, s, 112 * 112, 28 * 28 * 15000);
    v->qwen.frames = v->format.frames;
    v->qwen.enlarge = qwen_enlarge_both;
    if (strcmp(v->name, "glmga") == 0)
        v->qwen.features = vision_u32(s, &s->pixels, "patch_expand_factor", 1, 1, 16);
    load_tokens(v, s,
                strcmp(v->name, "glm_ocr") == 0     ? &glm_ocr_tokens
                : strcmp(v->name, "glm4v_moe") == 0 ? &glm_moe_tokens
                                                    : &glm_tokens);
    qwen_load_video(v, s, &d);
}

/* PaddleOCR-VL and Keye-VL. The tower's temporal_patch_size is not used. */
static void load_paddle(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    const bool keye = strncmp(v->name, "Keye", 4) == 0;
    load_pixels(v, s, &d, 2, keye ? 28 * 28 * 130 : 384 * 384, keye ? 28 * 28 * 1280 : 1536 * 1536);
    v->format.layout = VISION_PATCHES;
    v->format.frames = vision_u32(s, &s->pixels, "temporal_patch_size", 1, 1, 1);
    v->qwen.enlarge = enlarge_each;
    load_tokens(v, s, keye ? &qwen_tokens : &paddle_tokens);
}

/* GLM-4.1V's rule with one frame. */
static void load_cosmos3(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half,
                                                   PATCH_3};
    load_pixels(v, s, &d, 2, 256 * 256, 4096 * 4096);
    only_edges(v, s, 256 * 256, 4096 * 4096);
    v->format.frames = vision_u32(s, &s->pixels, "temporal_patch_size", 1, 1, 1);
    v->qwen.enlarge = qwen_enlarge_both;
    load_tokens(v, s, &cosmos3_tokens);
}

/* As Qwen3-VL, but positions have one coordinate, and the tower reads patches in raster order. */
static void load_lfm3(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half,
                                                   PATCH_3};
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    load_sizes(v, s, &d, 56 * 56, 28 * 28 * 1280);
    v->format.layout = VISION_PATCHES;
    v->token = vision_read_token(s, "image_token_id", "<|image_pad|>", 125030, v->marker);
    vision_read_token(s, "vision_start_token_id", "<|vision_start|>", 125009, start);
    vision_read_token(s, "vision_end_token_id", "<|vision_end|>", 125010, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
    qwen_load_video(v, s, &d);
}

/* Patches of images are not merged. */
static void load_video_llama(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half,
                                                   PATCH_3};
    load_pixels(v, s, &d, 1, 56 * 56, 28 * 28 * 1280);
    v->format.frames = vision_u32(s, &s->pixels, "temporal_patch_size", 1, 1, 1);
    load_tokens(v, s, &qwen_tokens);
}

/* Positions have one coordinate, and the tower reads one frame. */
static void load_dots(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    load_pixels(v, s, &d, 2, 56 * 56, 11289600);
    v->token = vision_read_token(s, "image_token_id", "<|imgpad|>", 151665, v->marker);
    vision_read_token(s, NULL, "<|img|>", 151666, start);
    vision_read_token(s, NULL, "<|endofimg|>", 151667, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
}

/* Positions have one coordinate. */
static void load_opencua(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    load_sizes(v, s, &d, 3136, 28 * 28 * 1280);
    v->token = vision_read_token(s, "media_placeholder_token_id", "<|media_placeholder|>", 151664,
                                 v->marker);
}

/* Bounds are those of its authors' code, unless the file has some; templates have a word that is no
 * token. */
static void load_ovis(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half,
                                                   PATCH_3};
    vision_read_format(s, &v->format, &d);
    v->format.patch = vision_u32(s, &s->tower, "patch_size", PATCH_3, 1, 256);
    v->format.merge = vision_u32(s, &s->tower, "hidden_stride", 2, 1, 16);
    v->format.frames = vision_u32(s, &s->tower, "temporal_patch_size", 1, 1, 1);
    v->format.layout = VISION_PATCHES_BY_FEATURE;
    v->qwen.min_pixels = vision_u32(s, &s->pixels, "min_pixels", 448 * 448, 1, VISION_MAX_PIXELS);
    v->qwen.max_pixels = vision_u32(s, &s->pixels, "max_pixels", 1344 * 1792, 1, VISION_MAX_PIXELS);
    if (v->qwen.min_pixels > v->qwen.max_pixels)
        vision_settings_fail(s, "%s: min_pixels is more than max_pixels", s->pixels.name);
    v->qwen.frames = v->qwen.features = 1;
    v->qwen.any_aspect = true;
    v->qwen.enlarge = enlarge_or_squeeze;
    v->token = vision_read_token(s, "image_token_id", "<|image_pad|>", 151655, v->qwen.pad);
    snprintf(v->marker, sizeof(v->marker), "<image>");
}

/* The tower reads patches in raster order, and one frame of an image. */
static void load_ernie(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    char start[VISION_TOKEN_TEXT], end[VISION_TOKEN_TEXT];
    check_size(s, true);
    load_pixels(v, s, &d, 2, 56 * 56, 28 * 28 * 6177);
    v->format.layout = VISION_PATCHES;
    v->token = vision_read_token(s, vision_key(s, "image_token_id", "im_patch_id"),
                                 "<|IMAGE_PLACEHOLDER|>", 100295, v->marker);
    vision_read_token(s, "image_start_token_id", "<|IMAGE_START|>", 101304, start);
    vision_read_token(s, "image_end_token_id", "<|IMAGE_END|>", 101305, end);
    snprintf(v->around, sizeof(v->around), "%s%s%s", start, v->marker, end);
}

/* `resample` is in its file, but its authors' code does not use it. */
static void load_hunyuan_pixels(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_3};
    check_size(s, false);
    load_pixels(v, s, &d, 2, 512 * 512, 2048 * 2048);
    v->format.layout = VISION_PATCHES;
    v->format.filter = VISION_BICUBIC;
    v->format.frames = vision_u32(s, &s->pixels, "temporal_patch_size", 1, 1, 1);
}

/* Positions have one coordinate more: that of the token's place. */
static void load_hunyuan(struct vision *v, struct vision_settings *s)
{
    static const struct qwen_tokens t = {"<｜hy_place▁holder▁no▁102｜>",
                                         "im_start_id",
                                         "<｜hy_place▁holder▁no▁100｜>",
                                         "im_end_id",
                                         "<｜hy_place▁holder▁no▁101｜>",
                                         120120,
                                         120118,
                                         120119};
    load_hunyuan_pixels(v, s);
    vision_u32(s, &s->tower, "cat_extra_token", 1, 1, 1);
    if (!vision_flag(&s->processor, "cat_extra_token", true))
        vision_settings_fail(s, "%s: cat_extra_token must be true", s->processor.name);
    load_tokens(v, s, &t);
}

/* Templates write what is around an image. */
static void load_hy_v4(struct vision *v, struct vision_settings *s)
{
    load_hunyuan_pixels(v, s);
    v->token = vision_read_token(s, "image_token_id", "<|image_pad|>", 120120, v->marker);
}

/* A size of MiniMax's files: the repository's have an object for it. */
static uint32_t compressed(struct vision_settings *s, const char *key)
{
    const struct vision_section in = vision_inside(&s->tower, "img_token_compression_config");
    return vision_u32(s, &in, key, 2, 1, 8);
}

/* The tokens around an image are added with its own. */
static void load_minimax(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_clip_mean,
                                                   vision_clip_std, PATCH_2};
    load_pixels(v, s, &d, compressed(s, "spatial_merge_size"), 4 * 28 * 28, 451584);
    v->format.frames = vision_shared(s, "temporal_patch_size", "temporal_patch_size",
                                     compressed(s, "temporal_patch_size"), 8);
    v->token = vision_read_token(s, vision_key(s, "image_token_index", "image_token_id"),
                                 "]<]image[>[", 200025, v->marker);
    snprintf(v->qwen.start, sizeof(v->qwen.start), "]<]start of image[>[");
    snprintf(v->qwen.end, sizeof(v->qwen.end), "]<]end of image[>[");
    vision_need_token(s, v->qwen.start);
    vision_need_token(s, v->qwen.end);
}

static double at_least(double least, double x) { return x > least ? x : least; }

/* In doubles and in the original's order, including rounding half to even, since a side determines
 * the number of tokens. */
int qwen_fit(const struct vision *v, const struct qwen_bounds *b, struct vision_plan *out,
             struct err *e)
{
    const double f = v->format.patch * v->format.merge * v->qwen.features;
    double h = out->height, w = out->width;
    if (b->enlarge)
        b->enlarge(f, &h, &w);
    if (!v->qwen.any_aspect && fmax(h, w) / fmin(h, w) > MAX_ASPECT)
        return err_set(e, ERR_VALIDATION,
                       "An image of %u x %u pixels has one side of more than %d times the other",
                       out->width, out->height, MAX_ASPECT);
    double rh = nearbyint(h / f) * f, rw = nearbyint(w / f) * f;
    if (b->whole_frames * rh * rw > b->most) {
        const double shrink = sqrt(b->frames * h * w / b->most);
        rh = floor(h / shrink / f) * f;
        rw = floor(w / shrink / f) * f;
    } else if (b->whole_frames * rh * rw < b->least) {
        const double stretch = sqrt(b->least / (b->frames * h * w));
        rh = ceil(h * stretch / f) * f;
        rw = ceil(w * stretch / f) * f;
    }
    if (v->qwen.any_aspect && fmin(rh, rw) < f)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes no feature",
                       out->width, out->height);
    out->crop_height = (uint32_t)at_least(f, rh);
    out->crop_width = (uint32_t)at_least(f, rw);
    out->grid_h = out->crop_height / (v->format.patch * v->format.merge);
    out->grid_w = out->crop_width / (v->format.patch * v->format.merge);
    vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height);
    return 0;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct qwen_bounds b = {(double)v->qwen.min_pixels, (double)v->qwen.max_pixels,
                                  v->qwen.frames, v->qwen.frames, v->qwen.enlarge};
    if (qwen_fit(v, &b, out, e))
        return -1;
    vision_add_crop(out, 0, 0, 0);
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

/* Rows of features have one more at their ends. */
static int plan_rows(const struct vision *v, struct vision_plan *out, struct err *e)
{
    if (plan(v, out, e))
        return -1;
    out->grid_w++;
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

/* Images have one more at both ends. */
static int plan_ends(const struct vision *v, struct vision_plan *out, struct err *e)
{
    if (plan(v, out, e))
        return -1;
    out->n_features += 2;
    return 0;
}

/* Rows have one more, and so have images at both ends. */
static int plan_hunyuan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    if (plan_rows(v, out, e))
        return -1;
    out->n_features += 2;
    return 0;
}

/* Column, row and number of the image, for its features without the first and the last. */
static void position_hunyuan(const struct vision_place *place, uint32_t n, uint32_t i,
                             uint32_t out[3])
{
    uint32_t k = 0;
    while (k < n && i >= place[k].first + place[k].n)
        k++;
    const uint32_t at = k < n && i > place[k].first ? i - place[k].first - 1 : UINT32_MAX;
    const bool inside = k < n && place[k].grid_w && at < place[k].grid_h * place[k].grid_w;
    out[0] = inside ? at % place[k].grid_w : i;
    out[1] = inside ? at / place[k].grid_w : i;
    out[2] = inside ? k : i;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, v->qwen.start);
    vision_repeat(out, v->qwen.pad[0] ? v->qwen.pad : v->marker, p->n_features);
    buf_str(out, v->qwen.end);
}

const struct vision_family vision_qwen = {
    .types = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe",
              "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker", "cohere_compass", "qwen4_exp"},
    .three_positions = true,
    .load = load,
    .plan = plan,
    .plan_video = qwen_plan_video,
    .interval = qwen_interval,
    .expand = expand,
    .expand_video = qwen_expand_video};

const struct vision_family vision_glm4v = {
    .types = {"glm4v", "glm4v_moe", "glm46v", "glmga", "glm_ocr"},
    .three_positions = true,
    .load = load_glm,
    .plan = plan,
    .plan_video = qwen_plan_video,
    .expand = expand,
    .expand_video = qwen_expand_video};

const struct vision_family vision_paddleocr_vl = {.types = {"paddleocr_vl", "Keye", "KeyeVL1_5"},
                                                  .three_positions = true,
                                                  .load = load_paddle,
                                                  .plan = plan,
                                                  .expand = expand};

const struct vision_family vision_cosmos3_edge = {.types = {"cosmos3_edge"},
                                                  .three_positions = true,
                                                  .load = load_cosmos3,
                                                  .plan = plan,
                                                  .expand = expand};

/* Positions have one coordinate. */
const struct vision_family vision_lfm3_vl = {.types = {"lfm3_vl"},
                                             .load = load_lfm3,
                                             .plan = plan,
                                             .plan_video = qwen_plan_video,
                                             .interval = qwen_interval,
                                             .expand = expand,
                                             .expand_video = qwen_expand_video};

const struct vision_family vision_video_llama_3 = {
    .types = {"video_llama_3"}, .load = load_video_llama, .plan = plan, .expand = expand};

const struct vision_family vision_dots_ocr = {
    .types = {"dots_ocr"}, .load = load_dots, .plan = plan, .expand = expand};

const struct vision_family vision_opencua = {
    .types = {"opencua"}, .load = load_opencua, .plan = plan, .expand = expand};

const struct vision_family vision_ernie4_5_vl = {.types = {"ernie4_5_vl_moe", "ernie4_5_moe_vl"},
                                                 .three_positions = true,
                                                 .load = load_ernie,
                                                 .plan = plan,
                                                 .expand = expand};

const struct vision_family vision_ovis2_5 = {
    .types = {"ovis2_5"}, .load = load_ovis, .plan = plan_ends, .expand = expand};

const struct vision_family vision_hunyuan_vl = {.types = {"hunyuan_vl"},
                                                .three_positions = true,
                                                .load = load_hunyuan,
                                                .plan = plan_hunyuan,
                                                .position = position_hunyuan,
                                                .expand = expand};

const struct vision_family vision_hy_v4 = {
    .types = {"hy_v4_vl"}, .three_positions = true, .load = load_hy_v4, .plan = plan_rows};

const struct vision_family vision_minimax_m3 = {
    .types = {"minimax_m3_vl"}, .load = load_minimax, .plan = plan, .expand = expand};

const struct vision_family vision_qwen_flat = {
    .types = {"exaone4_5", "hyperclovax_vision_v2", "vlm"},
    .load = load,
    .plan = plan,
    .expand = expand};
