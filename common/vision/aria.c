/* Aria (arXiv 2410.05993): an image whose longer side is that of a square. Only patches that have a
 * part of it are seen; the number of tokens depends on the square. */
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>

/* Tokens of a square of `side` pixels. */
static uint32_t tokens_of(struct vision_settings *s, uint32_t side)
{
    const struct vision_section sizes = vision_inside(&s->processor, "size_conversion");
    char key[16];
    snprintf(key, sizeof(key), "%u", side);
    return vision_u32(s, &sizes, key, side == 490 ? 128 : 256, 1, 1 << 14);
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half, 32};
    struct vision_aria *a = &v->aria;
    vision_read_format(s, &v->format, &d);
    const uint32_t p = v->format.patch = vision_u32(s, &s->tower, "patch_size", 32, 1, 64);
    a->side = vision_u32(s, &s->pixels, "max_image_size", 980, 1, VISION_MAX_SETTING);
    a->least = vision_u32(s, &s->pixels, "min_image_size", 336, 1, VISION_MAX_SETTING);
    /* the text's side has a table of its own: how many queries this many patches have */
    const struct vision_section table = vision_inside(&s->config, "projector_patch_to_query_dict");
    char key[16];
    snprintf(key, sizeof(key), "%u", a->side / p * (a->side / p));
    a->tokens = table.o ? vision_u32(s, &table, key, tokens_of(s, a->side), 1, 1 << 14)
                        : tokens_of(s, a->side);
    if (vision_side(s, &s->tower, "image_size", 224) != a->side || a->side % p ||
        a->least > a->side)
        vision_settings_fail(s,
                             "%s: max_image_size must be image_size, whole patches, and not less "
                             "than min_image_size",
                             s->pixels.name);
    if (vision_flag(&s->pixels, "split_image", false))
        vision_settings_fail(s, "%s: split_image must be false", s->pixels.name);
    v->token = vision_read_token(s, vision_key(s, "image_token_index", "image_token_id"), "<|img|>",
                                 9, v->marker);
    if (s->t && tokenizer_id(s->t, "<fim_prefix>") >= 0 && tokenizer_id(s->t, "<fim_suffix>") >= 0)
        snprintf(v->around, sizeof(v->around), "<fim_prefix>%s<fim_suffix>", v->marker);
}

static uint32_t whole(uint32_t n, uint32_t patch) { return (n + patch - 1) / patch * patch; }

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_aria *a = &v->aria;
    const uint32_t p = v->format.patch;
    const double w = out->width, h = out->height, by = a->side / fmax(w, h);
    const uint32_t width = w >= h ? a->side : (uint32_t)fmax(floor(w * by), a->least);
    const uint32_t height = w >= h ? (uint32_t)fmax(floor(h * by), a->least) : a->side;
    (void)e;
    const uint32_t crop =
        vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), width, height), 0, 0);
    vision_size_crop(out, crop, whole(width, p), whole(height, p));
    out->n_features = a->tokens;
    return 0;
}

const struct vision_family vision_aria = {.types = {"aria"}, .load = load, .plan = plan};
