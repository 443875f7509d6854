/* PerceptionLM: the whole image as one tile, and then stretched to a grid of tiles. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <string.h>

static uint32_t tower_patch(struct vision_settings *s)
{
    const struct vision_section args = vision_inside(&s->tower, "model_args");
    const char *name = json_str(s->tower.o, "architecture", "");
    const uint32_t def = strstr(name, "_patch16_") ? 16 : 14;
    return vision_u32(s, &args, "patch_size", def, 1, 64);
}

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_BICUBIC, vision_half, vision_half, 14};
    struct vision_perception_lm *f = &v->perception_lm;
    const char *type = json_str(s->pixels.o, "vision_input_type", "thumb+tile");
    vision_read_format(s, &v->format, &d);
    v->format.patch = tower_patch(s);
    v->format.merge = vision_u32(s, &s->config, "projector_pooling_ratio", 1, 1, 16);
    const struct vision_section args = vision_inside(&s->tower, "model_args");
    f->tile = vision_u32(s, &s->pixels, "tile_size", 448, 1, VISION_MAX_SETTING);
    f->tiled = strcmp(type, "thumb+tile") == 0;
    f->max_tiles = vision_u32(s, &s->pixels, "max_num_tiles", 36, 1, VISION_MAX_CROPS - 1);
    if (f->tile % (v->format.patch * v->format.merge) ||
        vision_side(s, &args, "img_size", f->tile) != f->tile ||
        vision_u32(s, &s->processor, "pooling_ratio", v->format.merge, 1, 16) != v->format.merge ||
        vision_u32(s, &s->processor, "patch_size", v->format.patch, 1, 64) != v->format.patch)
        vision_settings_fail(s, "%s: tile_size, img_size, patch_size and pooling_ratio disagree",
                             s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<|image|>", 128002, v->marker);
}

/* ---------------------------------------------------------------- the grid of tiles */

struct grid {
    uint32_t cols, rows;
};

static uint32_t common_divisor(uint32_t a, uint32_t b) { return b ? common_divisor(b, a % b) : a; }

/* Sides of the image on a canvas, with its aspect ratio. As in the published code one of them is
 * rounded, which decides between canvases. */
static void fit(struct grid canvas, uint32_t tile, double w, double h, double out[2])
{
    const double by = fmin(canvas.cols * (double)tile / w, canvas.rows * (double)tile / h);
    const double ratio = w / h;
    out[0] = ratio > 1 ? by * w : floor(by * h * ratio);
    out[1] = ratio > 1 ? floor(by * w / ratio) : by * h;
}

/* What a search keeps: the canvas of the largest shorter side that holds the image, the last of
 * equals. */
struct search {
    uint32_t tile;
    double w, h, side;
    bool found;
    struct grid best;
};

static void try_canvas(struct search *s, struct grid g)
{
    double sides[2];
    if ((double)g.cols * s->tile < s->w || (double)g.rows * s->tile < s->h)
        return;
    fit(g, s->tile, s->w, s->h, sides);
    const double side = sides[s->w >= s->h];
    if (s->found && side < s->side)
        return;
    s->found = true;
    s->side = side;
    s->best = g;
}

/* The multiples of a x b tiles of up to max_tiles, in descending order. */
static void try_multiples(struct search *s, const struct vision_perception_lm *f, struct grid g)
{
    uint32_t m = 1;
    while ((m + 1) * (m + 1) * g.cols * g.rows <= f->max_tiles)
        m++;
    for (; m; m--)
        try_canvas(s, (struct grid){m * g.cols, m * g.rows});
}

/* Canvases of one aspect ratio follow each other, in the order of the largest ones: by descending
 * number of tiles, then ascending columns. */
static bool smallest_canvas(const struct vision_perception_lm *f, struct search *s)
{
    for (uint32_t n = f->max_tiles; n; n--)
        for (uint32_t cols = 1; cols <= n; cols++) {
            if (n % cols)
                continue;
            const uint32_t m = common_divisor(cols, n / cols);
            const struct grid g = {cols / m, n / cols / m};
            if ((m + 1) * (m + 1) * g.cols * g.rows > f->max_tiles) /* the largest of its ratio */
                try_multiples(s, f, g);
        }
    return s->found;
}

/* The grid whose ratio is nearest to the image's, towards a square; the largest one of it. */
static struct grid nearest_ratio(const struct vision_perception_lm *f, double w, double h)
{
    struct grid best = {1, 1};
    const double ratio = w / h;
    double nearest = INFINITY;
    for (uint32_t cols = 1; cols <= f->max_tiles; cols++)
        for (uint32_t rows = 1; rows * cols <= f->max_tiles; rows++) {
            const double k = (double)cols / rows;
            const double d = ratio >= 1 ? ratio - k : 1 / ratio - 1 / k;
            if (ratio >= 1 ? k > ratio : k <= ratio)
                continue;
            if (d < nearest || (d == nearest && cols * rows > best.cols * best.rows)) {
                nearest = d;
                best = (struct grid){cols, rows};
            }
        }
    return best;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_perception_lm *f = &v->perception_lm;
    const uint32_t t = f->tile;
    struct search s = {.tile = t, .w = out->width, .h = out->height};
    (void)e;
    out->crop_width = out->crop_height = t;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), t, t), 0, 0);
    if (f->tiled) {
        const struct grid g = smallest_canvas(f, &s) ? s.best : nearest_ratio(f, s.w, s.h);
        vision_add_tiles(out, vision_add_resize(out, -1, vision_whole(out), g.cols * t, g.rows * t),
                         g.rows, g.cols, t, 0, 0);
    }
    out->grid_h = out->grid_w = t / (v->format.patch * v->format.merge);
    out->n_features = out->n_crops * out->grid_h * out->grid_w;
    return 0;
}

const struct vision_family vision_perception_lm = {
    .types = {"perception_lm"}, .load = load, .plan = plan};
