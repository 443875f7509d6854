/* Gemma 3: resized to a square; with pan and scan also crops along the longer side. Gemma 3n: a
 * square alone. */
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

/* The side of a square of area `n`; an error if n is not a square. */
static uint32_t square_root(struct vision_settings *s, uint32_t n)
{
    const uint32_t root = (uint32_t)sqrt((double)n);
    if (root * root != n)
        vision_settings_fail(s, "config.json: the tokens of an image must be a square number");
    return root;
}

static void read_pan_and_scan(struct vision_settings *s, struct vision_gemma3 *g)
{
    g->pan_and_scan = vision_flag(&s->pixels, "do_pan_and_scan", false);
    g->min_crop =
        vision_u32(s, &s->pixels, "pan_and_scan_min_crop_size", 256, 1, VISION_MAX_SETTING);
    g->max_crops =
        vision_u32(s, &s->pixels, "pan_and_scan_max_num_crops", 4, 1, VISION_PAN_MAX_CROPS);
    g->min_ratio = vision_number(s, &s->pixels, "pan_and_scan_min_ratio_to_activate", 1.2);
}

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_gemma3 *g = &v->gemma3;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BILINEAR, vision_half, vision_half, 14});
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 896);
    g->side = vision_side(s, &s->pixels, "size", of_tower);
    g->tokens_side =
        square_root(s, vision_u32(s, &s->config, "mm_tokens_per_image", 256, 1, 1 << 20));
    if (g->side != of_tower || g->side % v->format.patch ||
        g->side / v->format.patch % g->tokens_side)
        vision_settings_fail(s, "%s: size, image_size, patch_size and mm_tokens_per_image disagree",
                             s->pixels.name);
    else
        v->format.merge = g->side / v->format.patch / g->tokens_side;
    read_pan_and_scan(s, g);
    v->token = vision_read_token(s, "image_token_index", "<image_soft_token>", 262144, g->soft);
    vision_read_token(s, "boi_token_index", "<start_of_image>", 255999, g->start);
    vision_read_token(s, "eoi_token_index", "<end_of_image>", 256000, g->end);
    memcpy(v->marker, g->start, sizeof(v->marker));
}

/* Number of crops for these sides; 0: only the whole image. */
static uint32_t parts(const struct vision_gemma3 *g, uint32_t longer, uint32_t shorter)
{
    const double ratio = (double)longer / shorter;
    if (!g->pan_and_scan || ratio < g->min_ratio)
        return 0;
    const uint32_t fit = longer / g->min_crop;
    double n = fmin(floor(ratio + 0.5), fit);
    n = fmin(g->max_crops, fmax(2, n));
    const uint32_t part = (longer + (uint32_t)n - 1) / (uint32_t)n;
    return part < g->min_crop || shorter < g->min_crop ? 0 : (uint32_t)n;
}

static void add(struct vision_plan *p, struct vision_rect cut)
{
    vision_add_crop(p, vision_add_resize(p, -1, cut, p->crop_width, p->crop_height), 0, 0);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_gemma3 *g = &v->gemma3;
    const bool wide = out->width >= out->height;
    const uint32_t longer = wide ? out->width : out->height;
    const uint32_t n = parts(g, longer, wide ? out->height : out->width);
    (void)e;
    out->crop_width = out->crop_height = g->side;
    add(out, vision_whole(out));
    const uint32_t part = n ? (longer + n - 1) / n : 0;
    for (uint32_t i = 0, at = 0; i < n && at < longer; i++, at += part) {
        const uint32_t size = longer - at < part ? longer - at : part;
        add(out, wide ? (struct vision_rect){at, 0, size, out->height}
                      : (struct vision_rect){0, at, out->width, size});
    }
    out->grid_h = out->grid_w = g->tokens_side;
    out->n_features = out->n_crops * g->tokens_side * g->tokens_side;
    return 0;
}

static void add_tokens(const struct vision_gemma3 *g, struct buf *out)
{
    buf_str(out, "\n\n");
    buf_str(out, g->start);
    vision_repeat(out, g->soft, (uint64_t)g->tokens_side * g->tokens_side);
    buf_str(out, g->end);
    buf_str(out, "\n\n");
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    if (p->n_crops > 1)
        buf_str(out, "Here is the original image ");
    add_tokens(&v->gemma3, out);
    if (p->n_crops > 1)
        buf_str(out, " and here are some crops to help you see better ");
    for (uint32_t i = 1; i < p->n_crops; i++) {
        if (i > 1)
            buf_ch(out, ' ');
        add_tokens(&v->gemma3, out);
    }
}

const struct vision_family vision_gemma3 = {.types = {"gemma3", "shieldgemma2"},
                                            .two_way = true,
                                            .load = load,
                                            .plan = plan,
                                            .expand = expand};

/* ---------------------------------------------------------------- Gemma 3n */

/* Its tower is of convolutions: a square picture has a fixed number of features. */
static void load_3n(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults siglip = {VISION_BICUBIC, vision_half, vision_half,
                                                        1},
                                              published = {VISION_BILINEAR, vision_half,
                                                           vision_half, 1};
    struct vision_gemma3 *g = &v->gemma3;
    vision_read_format(s, &v->format, vision_defaults(s, &siglip, &published));
    g->side = vision_side(s, &s->pixels, "size", 768);
    g->tokens_side =
        square_root(s, vision_u32(s, &s->config, "vision_soft_tokens_per_image", 256, 1, 1 << 20));
    v->token = vision_read_token(s, "image_token_id", "<image_soft_token>", 262145, g->soft);
    vision_read_token(s, "boi_token_id", "<start_of_image>", 255999, g->start);
    vision_read_token(s, "eoi_token_id", "<end_of_image>", 262144, g->end);
    memcpy(v->marker, g->soft, sizeof(v->marker));
}

const struct vision_family vision_gemma3n = {
    .types = {"gemma3n"}, .load = load_3n, .plan = plan, .expand = expand};
