/* Idefics 3, SmolVLM and ModernVBERT: resized to a fixed longer side and cut into square tiles,
 * followed by the whole image. */
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

enum { MAX_LONGEST = 4096 }; /* transformers' MAX_IMAGE_SIZE, independent of the settings */

/* SmolVLM's frames are never split. Their size is among the settings of how videos are sampled. */
static void load_video(struct vision *v, struct vision_settings *s,
                       const struct vision_pixel_defaults *d)
{
    struct vision_idefics3 *f = &v->idefics3;
    const struct vision_section max = vision_inside(&s->video, "max_image_size");
    const struct vision_section sampling = vision_inside(&s->video, "video_sampling");
    const struct vision_section of_sampling = vision_inside(&sampling, "video_size");
    const struct vision_section own = vision_inside(&s->video, "size");
    const struct vision_section *size = of_sampling.o ? &of_sampling : &own;
    vision_read_video_format(s, v, d);
    vision_u32(s, &max, "longest_edge", f->tile, f->tile, f->tile);
    f->longest_of_frame = vision_u32(s, size, "longest_edge", 4 * f->tile, 1, VISION_MAX_SETTING);
    vision_take_frames(s, v, v->token, v->marker, "<video>");
}

/* What a model's files may leave to its class. */
static const struct kind {
    const char *name, *factor; /* the key of `merge` */
    uint32_t patch, side, merge, token;
} kinds[] = {{"idefics3", "scale_factor", 14, 364, 2, 128257},
             {"smolvlm", "scale_factor", 16, 512, 4, 49190},
             {"modernvbert", "pixel_shuffle_factor", 16, 224, 4, 50407}};

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_idefics3 *f = &v->idefics3;
    const struct kind *k = &kinds[0];
    while (strcmp(v->name, k->name) != 0)
        k++;
    const struct vision_section max = vision_inside(&s->pixels, "max_image_size");
    const struct vision_pixel_defaults d = {VISION_LANCZOS, vision_half, vision_half, k->patch};
    vision_read_format(s, &v->format, &d);
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", k->side);
    f->tile = vision_u32(s, &max, "longest_edge", of_tower, 1, VISION_MAX_SETTING);
    f->longest = vision_edge(s, "longest_edge", 4 * f->tile, 1);
    f->split = vision_flag(&s->pixels, "do_image_splitting", true);
    v->format.merge = vision_u32(s, &s->config, k->factor, k->merge, 1, 16);
    if (f->tile != of_tower || f->tile % (v->format.patch * v->format.merge))
        vision_settings_fail(s, "%s: max_image_size, image_size, patch_size and %s disagree",
                             s->pixels.name, k->factor);
    const uint32_t side = f->tile / (v->format.patch * v->format.merge);
    f->tile_tokens = side * side;
    v->token = vision_read_token(s, "image_token_id", "<image>", k->token, v->marker);
    vision_need_token(s, "<fake_token_around_image>");
    if (strcmp(k->name, "smolvlm") == 0)
        load_video(v, s, &d);
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

/* As an image that is not split. */
static int plan_video(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_idefics3 *f = &v->idefics3;
    uint32_t w = out->width, h = out->height;
    (void)e;
    to_longest(&w, &h, f->longest_of_frame < MAX_LONGEST ? f->longest_of_frame : MAX_LONGEST);
    uint32_t last = vision_add_resize(out, -1, vision_whole(out), w, h);
    if (w != f->tile || h != f->tile)
        last = vision_add_resize(out, (int32_t)last, (struct vision_rect){0, 0, w, h}, f->tile,
                                 f->tile);
    out->crop_width = out->crop_height = f->tile;
    vision_add_crop(out, last, 0, 0);
    out->grid_h = out->grid_w = f->tile / (v->format.patch * v->format.merge);
    vision_add_frames(out);
    return 0;
}

static void put_whole(const struct vision *v, struct buf *out)
{
    buf_str(out, "<fake_token_around_image><global-img>");
    vision_repeat(out, v->marker, v->idefics3.tile_tokens);
    buf_str(out, "<fake_token_around_image>");
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
    if (p->rows)
        buf_ch(out, '\n');
    put_whole(v, out);
}

_Static_assert(VISION_MAX_CROPS < 100, "a number of frames has two digits");

/* From 1 to 99, in words. */
static void put_number(uint32_t n, struct buf *out)
{
    static const char *const ones[] = {"",        "one",     "two",       "three",    "four",
                                       "five",    "six",     "seven",     "eight",    "nine",
                                       "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                       "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
    static const char *const tens[] = {"",      "",      "twenty",  "thirty", "forty",
                                       "fifty", "sixty", "seventy", "eighty", "ninety"};
    if (n >= 20)
        buf_fmt(out, "%s%s", tens[n / 10], n % 10 ? "-" : "");
    buf_str(out, ones[n < 20 ? n : n % 10]);
}

/* Each frame behind its time, behind a sentence with the number of frames and the video's length.
 */
static void expand_video(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    const unsigned long long all = (unsigned long long)(p->frames / p->fps);
    buf_str(out, "You are provided the following series of ");
    put_number(p->frames, out);
    buf_fmt(out, " frames from a %llu:%02llu:%02llu [H:MM:SS] video.\n", all / 3600, all / 60 % 60,
            all % 60);
    for (uint32_t i = 0; i < p->frames; i++) {
        const unsigned long long at = (unsigned long long)(i / p->fps);
        buf_fmt(out, "\nFrame from %02llu:%02llu:", at / 60, at % 60);
        put_whole(v, out);
    }
    buf_str(out, "\n\n");
}

const struct vision_family vision_idefics3 = {.types = {"idefics3", "smolvlm", "modernvbert"},
                                              .load = load,
                                              .plan = plan,
                                              .plan_video = plan_video,
                                              .expand = expand,
                                              .expand_video = expand_video};
