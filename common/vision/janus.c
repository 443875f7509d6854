/* Janus (arXiv 2410.13848) and DeepSeek-VL (2403.05525): the whole image in a square, with a border
 * of the mean colour. */
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void load(struct vision *v, struct vision_settings *s)
{
    const bool janus = strcmp(v->name, "janus") == 0;
    struct vision_janus *j = &v->janus;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean, vision_clip_std, 16});
    vision_mean_outside(s, vision_clip_mean, &v->format);
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", janus ? 384 : 224);
    j->side = vision_side(s, &s->pixels, "size", of_tower);
    j->least = vision_u32(s, &s->pixels, "min_size", 14, 1, j->side);
    if (j->side != of_tower || j->side % v->format.patch || j->least > j->side)
        vision_settings_fail(s, "%s: size, min_size, image_size and patch_size disagree",
                             s->pixels.name);
    const uint32_t row = j->side / v->format.patch;
    if (vision_u32(s, &s->processor, "num_image_tokens", row * row, 1, 1 << 20) != row * row)
        vision_settings_fail(s, "%s: num_image_tokens must be %u", s->processor.name, row * row);
    if (!vision_flag(&s->pixels, "do_pad", true))
        vision_settings_fail(s, "%s: do_pad must be true", s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<image_placeholder>",
                                 janus ? 100581 : 100015, v->marker);
    if (janus) {
        snprintf(j->start, sizeof(j->start), "<begin_of_image>");
        snprintf(j->end, sizeof(j->end), "<end_of_image>");
        vision_need_token(s, j->start);
        vision_need_token(s, j->end);
    }
}

/* Python rounds halves to even, as here. */
static uint32_t shrunk(const struct vision_janus *j, uint32_t side, double by)
{
    return (uint32_t)fmax(nearbyint(side * by), j->least);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_janus *j = &v->janus;
    const double by = (double)j->side / (out->width > out->height ? out->width : out->height);
    const uint32_t w = shrunk(j, out->width, by), h = shrunk(j, out->height, by);
    (void)e;
    out->crop_width = out->crop_height = j->side;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), w, h),
                    -(int64_t)((j->side - w) / 2), -(int64_t)((j->side - h) / 2));
    out->grid_h = out->grid_w = j->side / v->format.patch;
    out->n_features = out->grid_h * out->grid_w;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, v->janus.start);
    vision_repeat(out, v->marker, p->n_features);
    buf_str(out, v->janus.end);
}

const struct vision_family vision_janus = {
    .types = {"janus", "deepseek_vl"}, .load = load, .plan = plan, .expand = expand};
