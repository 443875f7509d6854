/* Aya Vision (arXiv 2505.08751): tiles and the whole picture as InternVL cuts them, each behind its
 * name. */
#include "common/vision/settings.h"
#include <stdio.h>

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults got = {VISION_BICUBIC, vision_clip_mean,
                                                     vision_clip_std, 14},
                                              published = {VISION_BICUBIC, vision_half, vision_half,
                                                           14};
    struct vision_internvl *f = &v->internvl;
    vision_read_format(s, &v->format, vision_defaults(s, &got, &published));
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", 384);
    f->tile = vision_side(s, &s->pixels, "size", of_tower);
    f->min_tiles = vision_u32(s, &s->pixels, "min_patches", 1, 1, VISION_MAX_CROPS - 1);
    f->max_tiles = vision_u32(s, &s->pixels, "max_patches", 12, 1, VISION_MAX_CROPS - 1);
    f->thumbnail = true; /* transformers' processor cuts, whatever the file says */
    v->format.merge = vision_u32(s, &s->config, "downsample_factor", 2, 1, 16);
    f->tile_tokens =
        vision_tile_tokens(s, &(struct vision_grids){f->tile, f->min_tiles, f->max_tiles}, of_tower,
                           v->format.patch * v->format.merge);
    v->token = vision_read_token(s, "image_token_index", "<|IMG_PATCH|>", 255036, f->patch);
    snprintf(v->marker, sizeof(v->marker), "<image>"); /* of templates; no token of the model */
    vision_need_token(s, "<|START_OF_IMG|>");
    vision_need_token(s, "<|END_OF_IMG|>");
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const struct vision_internvl *f = &v->internvl;
    buf_str(out, "<|START_OF_IMG|>");
    for (uint32_t i = 1; i < p->n_crops; i++) {
        buf_fmt(out, "TILE_%u", i);
        vision_repeat(out, f->patch, f->tile_tokens);
    }
    buf_str(out, "TILE_GLOBAL");
    vision_repeat(out, f->patch, f->tile_tokens);
    buf_str(out, "<|END_OF_IMG|>");
}

const struct vision_family vision_aya = {
    .types = {"aya_vision"}, .load = load, .plan = vision_plan_internvl, .expand = expand};
