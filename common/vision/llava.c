/* LLaVA 1.5 and CLIP: the central square of the image. LLaVA-NeXT: the whole image as a square, and
 * the image padded to one of a list of resolutions and cut into tiles. LLaVA-OneVision (arXiv
 * 2408.03326): the same with more resolutions; too many features are interpolated to fewer. The
 * processor of transformers shows each image of a prompt with several as one square; here each is
 * cut into tiles. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- load */

static bool is_siglip(const struct vision_settings *s)
{
    return strstr(json_str(s->tower.o, "model_type", ""), "siglip");
}

/* Rows that are features besides the patches: "default" drops the first row, CLIP's class token,
 * and "full" keeps it. SigLIP has none. `full`: CLIP may have "full". */
static uint32_t read_strategy(struct vision_settings *s, const char *def, bool full)
{
    const char *tower = json_str(s->tower.o, "model_type", "");
    const char *strategy = json_str(s->config.o, "vision_feature_select_strategy", def);
    const bool all = strcmp(strategy, "full") == 0;
    if ((!all && strcmp(strategy, "default") != 0) || (is_siglip(s) ? !all : all && !full))
        vision_settings_fail(s, "config.json: vision_feature_select_strategy %s with a tower %s",
                             strategy, tower);
    return all && !is_siglip(s);
}

/* `size`: a number, or its `shortest_edge`; a bound of the longer side is not supported. */
static uint32_t read_shortest(struct vision_settings *s, uint32_t def)
{
    const cJSON *size = json_get(s->pixels.o, "size");
    if (json_get(size, "longest_edge"))
        vision_settings_fail(s, "%s: size must not have longest_edge", s->pixels.name);
    return cJSON_IsNumber(size) ? vision_side(s, &s->pixels, "size", def)
                                : vision_edge(s, "shortest_edge", def, 1);
}

/* A pair is a square. */
static void read_size(struct vision_llava *l, struct vision_settings *s, uint32_t def)
{
    const cJSON *size = json_get(s->pixels.o, "size");
    l->square = cJSON_IsArray(size) || json_get(size, "height");
    l->shortest = l->square ? vision_side(s, &s->pixels, "size", def) : read_shortest(s, def);
}

/* LLaVA's own processor may pad an image to a square with the mean colour before it resizes it;
 * CLIP's and SigLIP's do not. */
static void read_padding(struct vision *v, struct vision_settings *s)
{
    const char *type = json_str(s->pixels.o, "image_processor_type", "");
    v->llava.padded = strcmp(v->name, "llava") == 0 && strncmp(type, "CLIP", 4) != 0 &&
                      strncmp(type, "Siglip", 6) != 0 && vision_flag(&s->pixels, "do_pad", false);
    if (v->llava.padded)
        vision_mean_outside(s, vision_clip_mean, &v->format);
}

/* The size of a square. `whole`: the tile is whole patches. `side`: default of the tower. */
static void load_side(struct vision *v, struct vision_settings *s, bool whole, uint32_t side)
{
    struct vision_llava *l = &v->llava;
    const uint32_t of_tower = vision_side(s, &s->tower, "image_size", side);
    read_size(l, s, of_tower);
    l->tile = l->square ? l->shortest : vision_side(s, &s->pixels, "crop_size", of_tower);
    if (l->tile != of_tower || l->tile < v->format.patch || (whole && l->tile % v->format.patch) ||
        l->shortest < l->tile)
        vision_settings_fail(s, "%s: size, crop_size, image_size and patch_size disagree",
                             s->pixels.name);
    vision_keeps_square(s, l->tile);
}

/* `patch`, `side`: defaults of the tower. */
static void load_square(struct vision *v, struct vision_settings *s, bool whole, uint32_t patch,
                        uint32_t side)
{
    vision_read_format(s, &v->format,
                       &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean,
                                                       vision_clip_std, patch,
                                                       .crops = !is_siglip(s)});
    load_side(v, s, whole, side);
}

static void load_common(struct vision *v, struct vision_settings *s, bool whole)
{
    load_square(v, s, whole, 14, strcmp(v->name, "video_llava") ? 336 : 224);
    v->token = vision_read_token(s, "image_token_index", "<image>", 32000, v->marker);
}

/* CLIP and SigLIP: an image has no place in a text. */
static void set_alone(struct vision *v)
{
    static const char marker[] = "<image>";
    memcpy(v->marker, marker, sizeof(marker));
}

/* The image becomes a square, of which whole patches are looked at. */
static void load_siglip(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults defaults = {VISION_BICUBIC, vision_half, vision_half,
                                                          16};
    vision_read_format(s, &v->format, &defaults);
    load_side(v, s, false, 224);
    set_alone(v);
    if (!v->llava.square)
        vision_settings_fail(s, "%s: size must be a square", s->pixels.name);
}

static void load_clip(struct vision *v, struct vision_settings *s)
{
    load_square(v, s, true, 32, 224);
    set_alone(v);
    if (!v->llava.square && !vision_flag(&s->pixels, "do_center_crop", true))
        vision_settings_fail(s, "%s: do_center_crop must be true", s->pixels.name);
}

static void load_llava(struct vision *v, struct vision_settings *s)
{
    load_common(v, s, !is_siglip(s));
    v->llava.class_rows = read_strategy(s, "default", strcmp(v->name, "vipllava") != 0);
    read_padding(v, s);
    if (!v->llava.square && !vision_flag(&s->pixels, "do_center_crop", true))
        vision_settings_fail(s, "%s: do_center_crop must be true", s->pixels.name);
}

/* FastVLM: as LLaVA 1.5, with a tower of convolutions, of which 64 pixels a side are a feature. */
static void load_fast(struct vision *v, struct vision_settings *s)
{
    struct vision_llava *l = &v->llava;
    vision_read_format(s, &v->format,
                       &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean,
                                                       vision_clip_std, 64, .crops = true});
    l->shortest = read_shortest(s, 1024);
    l->tile = vision_side(s, &s->pixels, "crop_size", l->shortest);
    if (v->format.patch != 64 || l->tile % 64 || l->shortest < l->tile ||
        vision_u32(s, &s->processor, "patch_size", 64, 1, 256) != 64 ||
        !vision_flag(&s->pixels, "do_center_crop", true))
        vision_settings_fail(s, "%s: size, crop_size, do_center_crop and patch_size disagree",
                             s->pixels.name);
    v->token = vision_read_token(s, vision_key(s, "image_token_index", "image_token_id"), "<image>",
                                 151646, v->marker);
}

/* GOT-OCR 2: the whole image as a square; the tower leaves a feature of 4 x 4 patches. */
static void load_got(struct vision *v, struct vision_settings *s)
{
    struct vision_llava *l = &v->llava;
    vision_read_format(
        s, &v->format,
        &(struct vision_pixel_defaults){VISION_BICUBIC, vision_clip_mean, vision_clip_std, 16});
    v->format.patch *= 4;
    l->square = true;
    l->shortest = l->tile = vision_side(s, &s->tower, "image_size", 1024);
    if (vision_side(s, &s->pixels, "size", l->tile) != l->tile || l->tile % v->format.patch)
        vision_settings_fail(s, "%s: size, image_size and patch_size disagree", s->pixels.name);
    v->token = vision_read_token(s, vision_key(s, "image_token_index", "image_token_id"),
                                 "<imgpad>", 151859, v->marker);
}

static uint32_t pinpoint_side(struct vision_settings *s, const struct vision_llava *l,
                              const cJSON *side)
{
    const double d = side && cJSON_IsNumber(side) ? side->valuedouble : 0;
    if (d >= l->tile && d <= VISION_MAX_SETTING && fmod(d, l->tile) == 0)
        return (uint32_t)d;
    vision_settings_fail(s, "image_grid_pinpoints must be pairs of multiples of %u", l->tile);
    return l->tile;
}

static void add_pinpoint(struct vision_llava *l, uint32_t rows, uint32_t cols)
{
    l->pinpoints[l->n_pinpoints].height = rows * l->tile;
    l->pinpoints[l->n_pinpoints++].width = cols * l->tile;
}

/* False: no file has a list. */
static bool load_pinpoints(struct vision *v, struct vision_settings *s)
{
    struct vision_llava *l = &v->llava;
    if (l->shortest != l->tile || vision_side(s, &s->pixels, "crop_size", l->tile) != l->tile)
        vision_settings_fail(s, "%s: size and crop_size disagree", s->pixels.name);
    const cJSON *list = json_get(s->pixels.o, "image_grid_pinpoints"), *pair;
    list = list ? list : json_get(s->config.o, "image_grid_pinpoints");
    cJSON_ArrayForEach(pair, list)
    {
        const uint32_t h = pinpoint_side(s, l, json_first(pair));
        const uint32_t w = pinpoint_side(s, l, json_first(pair) ? json_first(pair)->next : NULL);
        if (l->n_pinpoints == VISION_MAX_PINPOINTS ||
            (uint64_t)(h / l->tile) * (w / l->tile) > VISION_MAX_CROPS - 1) {
            vision_settings_fail(s, "image_grid_pinpoints are too many or have too many tiles");
            break;
        }
        l->pinpoints[l->n_pinpoints].height = h;
        l->pinpoints[l->n_pinpoints++].width = w;
    }
    if (list && !l->n_pinpoints)
        vision_settings_fail(s, "image_grid_pinpoints is not a list, or is empty");
    return list;
}

static void load_next(struct vision *v, struct vision_settings *s)
{
    static const uint8_t hub[][2] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
    load_common(v, s, !is_siglip(s));
    read_strategy(s, "default", false);
    const bool listed = load_pinpoints(v, s);
    for (size_t i = 0; !listed && i < sizeof(hub) / sizeof(hub[0]); i++)
        add_pinpoint(&v->llava, hub[i][0], hub[i][1]);
}

enum { ONEVISION_SIDE = 6 }; /* tiles of a side, where no file says */

static void load_onevision(struct vision *v, struct vision_settings *s)
{
    static const char prefix[] = "anyres_max_";
    const char *aspect = json_str(s->config.o, "vision_aspect_ratio", "anyres_max_9");
    load_common(v, s, false);
    read_strategy(s, "full", false);
    const bool listed = load_pinpoints(v, s);
    for (uint32_t i = 0; !listed && i < ONEVISION_SIDE * ONEVISION_SIDE; i++)
        add_pinpoint(&v->llava, 1 + i / ONEVISION_SIDE, 1 + i % ONEVISION_SIDE);
    char *end = NULL;
    const unsigned long most = strncmp(aspect, prefix, sizeof(prefix) - 1) == 0
                                   ? strtoul(aspect + sizeof(prefix) - 1, &end, 10)
                                   : 0;
    if (most < 1 || most > VISION_MAX_CROPS || *end)
        vision_settings_fail(s,
                             "config.json: vision_aspect_ratio must be anyres_max_N, N from 1 "
                             "to %d",
                             VISION_MAX_CROPS);
    v->llava.most_tiles = (uint32_t)most;
}

/* ---------------------------------------------------------------- plans */

/* Pixels of a tile that its patches cover: of SigLIP's 384 the last 6 are not looked at. */
static uint32_t whole_patches(const struct vision *v)
{
    return v->llava.tile / v->format.patch * v->format.patch;
}

static int plan_llava(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_llava *l = &v->llava;
    if (l->padded)
        vision_square_canvas(out);
    const struct vision_rect whole = vision_whole(out);
    const bool wide = whole.width > whole.height;
    const double longer = wide ? whole.width : whole.height,
                 shorter = wide ? whole.height : whole.width;
    const uint32_t other =
        l->square ? l->shortest : (uint32_t)((double)l->shortest * longer / shorter);
    const uint32_t w = wide ? other : l->shortest, h = wide ? l->shortest : other;
    (void)e;
    out->crop_width = out->crop_height = whole_patches(v);
    vision_add_crop(out, vision_add_resize(out, -1, whole, w, h), (w - l->tile) / 2,
                    (h - l->tile) / 2);
    out->grid_h = out->grid_w = l->tile / v->format.patch;
    out->n_features = out->grid_h * out->grid_w + l->class_rows;
    return 0;
}

static int plan_clip(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const int rc = plan_llava(v, out, e);
    out->n_features = 1;
    return rc;
}

/* The resolution with the most effective pixels, then the least waste; the first of equals. */
static uint32_t best_pinpoint(const struct vision_llava *l, double w, double h)
{
    uint32_t best = 0;
    double most = 0, least = INFINITY;
    for (uint32_t i = 0; i < l->n_pinpoints; i++) {
        const double tw = l->pinpoints[i].width, th = l->pinpoints[i].height;
        const double scale = fmin(tw / w, th / h);
        const double used = fmin(floor(w * scale) * floor(h * scale), w * h);
        const double wasted = tw * th - used;
        if (used > most || (used == most && wasted < least)) {
            most = used;
            least = wasted;
            best = i;
        }
    }
    return best;
}

/* The grid of joined tiles without the padding: removed equally on both sides, so an odd row of
 * padding stays. */
static void unpad(struct vision_plan *p, uint32_t side)
{
    const uint32_t h = p->rows * side, w = p->cols * side;
    p->grid_h = h;
    p->grid_w = w;
    if ((uint64_t)p->width * h > (uint64_t)p->height * w) {
        p->grid_y = (h - (uint32_t)((uint64_t)p->height * w / p->width)) / 2;
        p->grid_h -= 2 * p->grid_y;
    } else {
        p->grid_x = (w - (uint32_t)((uint64_t)p->width * h / p->height)) / 2;
        p->grid_w -= 2 * p->grid_x;
    }
}

static int plan_next(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_llava *l = &v->llava;
    const double w = out->width, h = out->height;
    const uint32_t best = best_pinpoint(l, w, h), side = l->tile / v->format.patch;
    const uint32_t tw = l->pinpoints[best].width, th = l->pinpoints[best].height;
    const double scale_w = tw / w, scale_h = th / h;
    uint32_t rw = tw, rh = th;
    (void)e;
    if (scale_w < scale_h)
        rh = (uint32_t)fmin(ceil(h * scale_w), th);
    else
        rw = (uint32_t)fmin(ceil(w * scale_h), tw);
    out->crop_width = out->crop_height = whole_patches(v);
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), l->tile, l->tile), 0, 0);
    vision_add_tiles(out, vision_add_resize(out, -1, vision_whole(out), rw, rh), th / l->tile,
                     tw / l->tile, l->tile, -(int64_t)((tw - rw) / 2), -(int64_t)((th - rh) / 2));
    unpad(out, side);
    out->n_features = side * side + out->grid_h * out->grid_w + out->grid_h;
    return 0;
}

/* What is more than a tenth too long at each side, for this many tiles, becomes that many. */
static int plan_onevision(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t side = v->llava.tile / v->format.patch;
    if (plan_next(v, out, e))
        return -1;
    const double most = (double)v->llava.most_tiles * side * side;
    const double ratio = sqrt((double)out->grid_h * out->grid_w / most);
    if (ratio > 1.1) {
        out->shrunk_h = (uint32_t)(out->grid_h / ratio);
        out->shrunk_w = (uint32_t)(out->grid_w / ratio);
        if (!out->shrunk_h || !out->shrunk_w)
            return err_set(e, ERR_VALIDATION, "An image of %u x %u pixels becomes no feature",
                           out->width, out->height);
        out->n_features = side * side + out->shrunk_h * (out->shrunk_w + 1);
    }
    return 0;
}

const struct vision_family vision_llava = {
    .types = {"llava", "vipllava", "video_llava"}, .load = load_llava, .plan = plan_llava};
const struct vision_family vision_clip = {
    .types = {"clip", "metaclip_2"}, .load = load_clip, .plan = plan_clip, .alone = true};
const struct vision_family vision_siglip = {
    .types = {"siglip"}, .load = load_siglip, .plan = plan_clip, .alone = true};
const struct vision_family vision_fast_vlm = {
    .types = {"fast_vlm"}, .load = load_fast, .plan = plan_llava};
const struct vision_family vision_got_ocr2 = {
    .types = {"got_ocr2", "pp_chart2table"}, .load = load_got, .plan = plan_llava};
const struct vision_family vision_llava_next = {
    .types = {"llava_next", "llava_next_video"}, .load = load_next, .plan = plan_next};
const struct vision_family vision_llava_onevision = {
    .types = {"llava_onevision", "R", "bee"}, .load = load_onevision, .plan = plan_onevision};
