/* Idefics 3 and SmolVLM: resized to a fixed longer side and cut into square tiles, followed by the
 * whole image. */
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

enum { MAX_LONGEST = 4096 }; /* transformers' MAX_IMAGE_SIZE, independent of the settings */

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_idefics3 *f = &v->idefics3;
    const bool smol = strcmp(v->name, "smolvlm") == 0;
    const struct vision_section max = vision_inside(&s->pixels, "max_image_size");
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_LANCZOS, vision_half, vision_half, smol ? 16 : 14});
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", smol ? 512 : 364);
    f->tile = vision_u32(s, &max, "longest_edge", of_tower, 1, VISION_MAX_SETTING);
    f->longest = vision_edge(s, "longest_edge", 4 * f->tile, 1);
    f->split = vision_flag(&s->pixels, "do_image_splitting", true);
    v->format.merge = vision_u32(s, &s->config, "scale_factor", smol ? 4 : 2, 1, 16);
    if (f->tile != of_tower || f->tile % (v->format.patch * v->format.merge))
        vision_settings_fail(s,
                             "%s: max_image_size, image_size, patch_size and scale_factor disagree",
                             s->pixels.name);
    const uint32_t side = f->tile / (v->format.patch * v->format.merge);
    f->tile_tokens = side * side;
    v->token = vision_read_token(s, "image_token_id", "<image>", smol ? 49190 : 128257, v->marker);
    vision_need_token(s, "<fake_token_around_image>");
}

static uint32_t at_least_one(double x) { return x < 1 ? 1 : (uint32_t)x; }

/* The longer side becomes `longest`; the other keeps the aspect ratio, is even and at least 1. */
static void to_longest(uint32_t *w, uint32_t *h, uint32_t longest)
{
    const double aspect = (double)*w / *h;
    const bool wide = *w >= *h;
    uint32_t other = (uint32_t)(wide ? longest / aspect : longest * aspect);
    other = at_least_one(other + other % 2);
    *w = wide ? longest : other;
    *h = wide ? other : longest;
}

static void below_bound(uint32_t *w, uint32_t *h)
{
    const double aspect = (double)*w / *h;
    if (*w >= *h && *w > MAX_LONGEST) {
        *w = MAX_LONGEST;
        *h = at_least_one(MAX_LONGEST / aspect);
    } else if (*h > MAX_LONGEST) {
        *h = MAX_LONGEST;
        *w = at_least_one(MAX_LONGEST * aspect);
    }
}

static uint32_t up_to_tiles(double side, uint32_t tile)
{
    return (at_least_one(side) + tile - 1) / tile * tile;
}

static void to_tiles(uint32_t *w, uint32_t *h, uint32_t tile)
{
    const double aspect = (double)*w / *h;
    if (*w >= *h) {
        *w = up_to_tiles(*w, tile);
        *h = up_to_tiles(*w / aspect, tile);
    } else {
        *h = up_to_tiles(*h, tile);
        *w = up_to_tiles(*h * aspect, tile);
    }
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_idefics3 *f = &v->idefics3;
    uint32_t w = out->width, h = out->height;
    (void)e;
    to_longest(&w, &h, f->longest);
    below_bound(&w, &h);
    uint32_t last = vision_add_resize(out, -1, vision_whole(out), w, h);
    struct vision_rect all = {0, 0, w, h};
    out->crop_width = out->crop_height = f->tile;
    if (f->split) {
        to_tiles(&w, &h, f->tile);
        last = vision_add_resize(out, (int32_t)last, all, w, h);
        all = (struct vision_rect){0, 0, w, h};
        if (w > f->tile || h > f->tile)
            vision_add_tiles(out, last, h / f->tile, w / f->tile, f->tile, 0, 0);
    }
    if (w != f->tile || h != f->tile)
        last = vision_add_resize(out, (int32_t)last, all, f->tile, f->tile);
    vision_add_crop(out, last, 0, 0);
    out->grid_h = out->grid_w = f->tile / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * f->tile_tokens;
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    for (uint32_t row = 1; row <= p->rows; row++) {
        for (uint32_t col = 1; col <= p->cols; col++) {
            buf_fmt(out, "<fake_token_around_image><row_%u_col_%u>", row, col);
            vision_repeat(out, v->marker, v->idefics3.tile_tokens);
        }
        buf_ch(out, '\n');
    }
    buf_str(out, p->rows ? "\n<fake_token_around_image><global-img>"
                         : "<fake_token_around_image><global-img>");
    vision_repeat(out, v->marker, v->idefics3.tile_tokens);
    buf_str(out, "<fake_token_around_image>");
}

const struct vision_family vision_idefics3 = {
    .types = {"idefics3", "smolvlm"}, .load = load, .plan = plan, .expand = expand};
