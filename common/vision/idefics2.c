/* Idefics 2: an image within two bounds of its sides; or its four quarters, each so, and then the
 * whole. Each becomes as many tokens. */
#include "common/vision/settings.h"
#include <string.h>

static const char FAKE[] = "<fake_token_around_image>";

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BILINEAR, vision_half, vision_half, 32};
    const struct vision_section perceiver = vision_inside(&s->config, "perceiver_config");
    struct vision_idefics2 *f = &v->idefics2;
    vision_read_format(s, &v->format, &d);
    const uint32_t side = vision_side(s, &s->tower, "image_size", 224);
    f->shortest = vision_edge(s, "shortest_edge", 378, 1);
    f->longest = vision_edge(s, "longest_edge", 980, 1);
    f->split = vision_flag(&s->pixels, "do_image_splitting", false);
    f->latents = vision_u32(s, &perceiver, "resampler_n_latents", 64, 1, 4096);
    if (f->shortest > f->longest || f->shortest < v->format.patch ||
        f->longest / v->format.patch > side / v->format.patch)
        vision_settings_fail(s,
                             "%s: shortest_edge must hold a patch, and longest_edge be from there "
                             "to image_size",
                             s->pixels.name);
    if (vision_u32(s, &s->processor, "image_seq_len", f->latents, 1, 4096) != f->latents)
        vision_settings_fail(s, "%s: image_seq_len must be resampler_n_latents", s->processor.name);
    v->token = vision_read_token(s, "image_token_id", "<image>", 32001, v->marker);
    vision_need_token(s, FAKE);
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* A part of the image, within the bounds; what does not fill a patch is not seen. */
static void add_part(const struct vision *v, struct vision_plan *out, struct vision_rect cut)
{
    const struct vision_idefics2 *f = &v->idefics2;
    const uint32_t p = v->format.patch;
    const double aspect = (double)cut.width / cut.height;
    uint32_t w = cut.width, h = cut.height;
    if (w >= h && w > f->longest) {
        w = f->longest;
        h = (uint32_t)(w / aspect);
    } else if (h > w && h > f->longest) {
        h = f->longest;
        w = (uint32_t)(h * aspect);
    }
    w = larger(w, f->shortest);
    h = larger(h, f->shortest);
    const uint32_t crop = vision_add_crop(out, vision_add_resize(out, -1, cut, w, h), 0, 0);
    vision_size_crop(out, crop, w / p * p, h / p * p);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t w = out->width, h = out->height, x = w / 2, y = h / 2;
    if (v->idefics2.split && (!x || !y))
        return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels cannot be split", w, h);
    if (v->idefics2.split) {
        add_part(v, out, (struct vision_rect){0, 0, x, y});
        add_part(v, out, (struct vision_rect){x, 0, w - x, y});
        add_part(v, out, (struct vision_rect){0, y, x, h - y});
        add_part(v, out, (struct vision_rect){x, y, w - x, h - y});
    }
    add_part(v, out, vision_whole(out));
    out->n_features = out->n_crops * v->idefics2.latents;
    return 0;
}

/* Between two parts, and between two images side by side, one token stands. */
static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const size_t n = sizeof(FAKE) - 1;
    if (out->len < n || memcmp(out->p + out->len - n, FAKE, n) != 0)
        buf_str(out, FAKE);
    for (uint32_t i = 0; i < p->n_crops; i++) {
        vision_repeat(out, v->marker, v->idefics2.latents);
        buf_str(out, FAKE);
    }
}

const struct vision_family vision_idefics2 = {
    .types = {"idefics2"}, .load = load, .plan = plan, .expand = expand};
