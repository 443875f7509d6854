/* Muse Glimmer: one crop, whose grid of features has the aspect ratio nearest to the image's among
 * the four grids around its own size, or around the largest size of at most so many features. */
#include "common/vision/settings.h"
#include <math.h>

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults d = {VISION_LANCZOS, vision_half, vision_half, 14};
    vision_read_format(s, &v->format, &d);
    v->format.patch = vision_shared(s, "patch_size", "patch_size", d.patch, 256);
    v->format.merge = vision_shared(s, "merge_size", "merge_size", 2, 16);
    v->format.frames = vision_shared(s, "patch_temporal", "temporal_patch_size", 2, 8);
    v->format.layout = VISION_PATCHES;
    v->muse.most = vision_u32(s, &s->pixels, "max_image_tokens", 4096, 1, 1u << 20);
    v->token = vision_read_token(s, "image_token_id", "<|patch|>", 200092, v->marker);
    vision_need_token(s, "<|image_start|>");
    vision_need_token(s, "<|image_end|>");
}

/* ---------------------------------------------------------------- equally near grids */

/* The authors' code takes the nearest grid of a Python set. All grids of a square image are equally
 * near, so that the order of the set decides. It is that of the table of CPython (Objects/
 * setobject.c): eight slots, a pair at that of its hash or, where others are, at the slots that its
 * hash gives after it. A pair's hash is Objects/tupleobject.c's, of xxHash (Collet). */
enum { SLOTS = 8, CANDIDATES = 4 };
struct grid {
    uint64_t rows, cols;
};

static uint64_t hash_of(struct grid g)
{
    const uint64_t prime_1 = 11400714785074694791U, prime_2 = 14029467366897019727U;
    const uint64_t prime_5 = 2870177450012600261U, of[] = {g.rows, g.cols};
    uint64_t h = prime_5;
    for (int i = 0; i < 2; i++) {
        h += of[i] * prime_2;
        h = (h << 31 | h >> 33) * prime_1;
    }
    h += 2 ^ (prime_5 ^ 3527539);
    return h == UINT64_MAX ? 1546275796 : h;
}

static bool equal(struct grid a, struct grid b) { return a.rows == b.rows && a.cols == b.cols; }

/* Adds a grid to the table, of which `used` slots are known, if it is not there. */
static void add_grid(struct grid table[SLOTS], bool used[SLOTS], struct grid g)
{
    uint64_t rest = hash_of(g), at = rest % SLOTS;
    while (used[at] && !equal(table[at], g)) {
        rest >>= 5;
        at = (at * 5 + 1 + rest) % SLOTS;
    }
    table[at] = g;
    used[at] = true;
}

/* ---------------------------------------------------------------- plans */

static double at_least_one(double x) { return x < 1 ? 1 : x; }

/* The grid of features of h x w pixels, `unit` pixels a side each. In doubles and in the original's
 * order, since a size that is a whole number of features has fewer candidates. */
static struct grid choose(double h, double w, double unit, double most)
{
    double rows = h / unit, cols = w / unit, nearest = INFINITY;
    const double ratio = cols / rows;
    struct grid table[SLOTS], best = {0};
    bool used[SLOTS] = {false};
    if (rows * cols > most) {
        rows = pow(most / ratio, 0.5);
        cols = rows * ratio;
    }
    for (int i = 0; i < CANDIDATES; i++)
        add_grid(table, used,
                 (struct grid){(uint64_t)(i / 2 ? ceil(rows) : floor(rows)),
                               (uint64_t)(i % 2 ? ceil(cols) : floor(cols))});
    for (int i = 0; i < SLOTS; i++) {
        if (!used[i] || !table[i].rows || !table[i].cols ||
            (double)(table[i].rows * table[i].cols) > most)
            continue;
        const double off = fabs((double)table[i].rows / (double)table[i].cols - h / w);
        if (off < nearest) {
            nearest = off;
            best = table[i];
        }
    }
    if (!best.rows)
        best = (struct grid){(uint64_t)at_least_one(nearbyint(rows)),
                             (uint64_t)at_least_one(nearbyint(cols))};
    return best;
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t unit = v->format.patch * v->format.merge;
    const struct grid g = choose(out->height, out->width, unit, v->muse.most);
    (void)e;
    out->grid_h = (uint32_t)g.rows;
    out->grid_w = (uint32_t)g.cols;
    out->n_features = out->grid_h * out->grid_w;
    out->crop_height = out->grid_h * unit;
    out->crop_width = out->grid_w * unit;
    vision_add_crop(
        out, vision_add_resize(out, -1, vision_whole(out), out->crop_width, out->crop_height), 0,
        0);
    return 0;
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    buf_str(out, "<|image_start|>");
    vision_repeat(out, v->marker, p->n_features);
    buf_str(out, "<|image_end|>");
}

const struct vision_family vision_muse_glimmer = {
    .types = {"muse_glimmer", "muse_spark"}, .load = load, .plan = plan, .expand = expand};
