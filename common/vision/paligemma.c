/* PaliGemma 1 and 2 (arXiv 2407.07726, 2412.03555): resized to a square. The prompt is a prefix
 * with bidirectional attention: images, <bos>, the text, a newline. */
#include "common/vision/settings.h"

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_paligemma *p = &v->paligemma;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BICUBIC, vision_half, vision_half, 14});
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 224);
    p->side = vision_side(s, &s->pixels, "size", of_tower);
    const uint32_t rows = p->side / v->format.patch;
    p->tokens = vision_u32(s, &s->pixels, "image_seq_length", rows * rows, 1, 1 << 20);
    if (p->side != of_tower || p->side % v->format.patch || rows == 0 || p->tokens != rows * rows)
        vision_settings_fail(s, "%s: size, image_size, patch_size and image_seq_length disagree",
                             s->pixels.name);
    vision_keeps_square(s, p->side);
    v->token = vision_read_token(s, "image_token_index", "<image>", 257152, v->marker);
    vision_read_token(s, "bos_token_id", "<bos>", 2, p->bos);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_paligemma *p = &v->paligemma;
    (void)e;
    out->crop_width = out->crop_height = p->side;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), p->side, p->side), 0, 0);
    out->grid_h = out->grid_w = p->side / v->format.patch;
    out->n_features = p->tokens;
    return 0;
}

static struct vision_frame frame(const struct vision *v)
{
    return (struct vision_frame){v->paligemma.bos, "\n", true, false};
}

const struct vision_family vision_paligemma = {.types = {"paligemma"},
                                               .two_way = true,
                                               .prefix = true,
                                               .load = load,
                                               .plan = plan,
                                               .frame = frame};
