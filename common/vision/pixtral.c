/* Pixtral's tower, in Mistral 3, Mistral Large 4, LLaVA and LightOnOCR: one crop of the image's
 * aspect ratio, with a token at the end of each row of features, which LightOnOCR does not have. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>
#include <strings.h>

/* Its files say mistral3 or lighton_ocr. */
static bool is_lighton(const struct vision *v, const struct vision_settings *s)
{
    static const char name[] = "LightOnOCR";
    const cJSON *word = json_get(s->config.o, "architectures");
    word = cJSON_IsArray(word) ? json_first(word) : NULL;
    return strcmp(v->name, "lighton_ocr") == 0 ||
           (word && cJSON_IsString(word) &&
            strncasecmp(word->valuestring, name, sizeof(name) - 1) == 0);
}

/* An image is whole patches of the preprocessor, whose features may leave a rest. */
static void load_lighton(struct vision *v, struct vision_settings *s)
{
    const uint32_t patch = v->format.patch;
    v->pixtral.unit = vision_side(s, &s->pixels, "patch_size", patch);
    if (v->pixtral.unit % patch)
        vision_settings_fail(s, "%s: patch_size must be a multiple of %u", s->pixels.name, patch);
    v->token = vision_read_token(s, vision_key(s, "image_token_id", "image_token_index"),
                                 "<|image_pad|>", 151655, v->marker);
}

/* `longest_edge`, or a square that the image must fit. */
static uint32_t read_longest(struct vision_settings *s, uint32_t def, uint32_t unit)
{
    const struct vision_section size = vision_inside(&s->pixels, "size");
    if (json_get(size.o, "longest_edge") || (size.o && !json_get(size.o, "height")))
        return vision_edge(s, "longest_edge", def, unit);
    const uint32_t side = vision_side(s, &s->pixels, "size", def);
    if (side < unit)
        vision_settings_fail(s, "%s: size must be at least %u", s->pixels.name, unit);
    return side;
}

/* The processor of prompts, not that of images, says what a feature is. */
static void check_processor(const struct vision *v, struct vision_settings *s)
{
    const struct vision_format *f = &v->format;
    if (vision_u32(s, &s->processor, "patch_size", f->patch, 1, 256) != f->patch ||
        vision_u32(s, &s->processor, "spatial_merge_size", f->merge, 1, 16) != f->merge)
        vision_settings_fail(s, "%s: patch_size and spatial_merge_size must be the tower's",
                             s->processor.name);
}

static void load(struct vision *v, struct vision_settings *s)
{
    const bool lighton = is_lighton(v, s), mistral = lighton || strcmp(v->name, "llava") != 0;
    vision_read_format(s, &v->format,
                       &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean,
                                                       vision_clip_std, mistral ? 14 : 16});
    v->format.merge = mistral ? vision_u32(s, &s->config, "spatial_merge_size", 2, 1, 16) : 1;
    v->pixtral.unit = v->format.patch * v->format.merge;
    v->pixtral.longest = read_longest(s, mistral ? 1540 : 1024, v->pixtral.unit);
    if (lighton) {
        load_lighton(v, s);
        return;
    }
    check_processor(v, s);
    v->token = vision_read_token(s, "image_token_index", "[IMG]", 10, v->marker);
    vision_read_token(s, NULL, "[IMG_BREAK]", 12, v->pixtral.row_end);
    vision_read_token(s, NULL, "[IMG_END]", 13, v->pixtral.end);
}

/* Rounds up to a multiple; at least one unit, where transformers fails with a height of 0. */
static uint32_t rounded_up(double side, uint32_t unit)
{
    const uint32_t whole = side < 1 ? 1 : (uint32_t)side;
    return (whole + unit - 1) / unit * unit;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t unit = v->pixtral.unit, cell = v->format.patch * v->format.merge;
    const double longest = v->pixtral.longest;
    double h = out->height, w = out->width;
    const double ratio = fmax(h / longest, w / longest);
    if (ratio > 1) {
        h = floor(h / ratio);
        w = floor(w / ratio);
    }
    out->crop_height = rounded_up(h, unit);
    out->crop_width = rounded_up(w, unit);
    vision_add_crop(
        out, vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height), 0,
        0);
    out->grid_h = out->crop_height / cell;
    out->grid_w = out->crop_width / cell;
    out->n_features = out->grid_h * out->grid_w;
    if (!out->n_features)
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes no feature",
                       out->width, out->height);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t row = 0; row < p->grid_h; row++) {
        vision_repeat(out, v->marker, p->grid_w);
        buf_str(out, row + 1 < p->grid_h ? v->pixtral.row_end : v->pixtral.end);
    }
}

const struct vision_family vision_pixtral = {
    .types = {"mistral3", "mistral_large4", "llava", "lighton_ocr"},
    .tower = "pixtral",
    .load = load,
    .plan = plan,
    .expand = expand};
