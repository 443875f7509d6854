/* MiniCPM-V and MiniCPM-OCR: the whole image with about as many pixels as a slice; then, if it
 * has more, slices of its own grid. All keep about their aspect ratio. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct vision_pixel_defaults pixels = {VISION_BICUBIC, vision_half, vision_half, 14};

/* Keys and tokens of all versions. */
static void load_slices(struct vision *v, struct vision_settings *s)
{
    static const char *const tokens[] = {"<image>",  "</image>",   "<slice>",
                                         "</slice>", "<image_id>", "</image_id>"};
    struct vision_minicpmv *f = &v->minicpmv;
    f->side = vision_u32(s, &s->pixels, "scale_resolution", 448, 1, VISION_MAX_SETTING);
    f->max_slices = vision_u32(s, &s->pixels, "max_slice_nums", 9, 1, VISION_MAX_CROPS - 1);
    if (!vision_flag(&s->pixels, "slice_mode", true))
        f->max_slices = 1;
    if (vision_side(s, &s->pixels, "patch_size", v->format.patch) != v->format.patch)
        vision_settings_fail(s, "%s: patch_size must be the tower's", s->pixels.name);
    for (size_t i = 0; i < (f->numbered ? 6 : 4); i++)
        vision_need_token(s, tokens[i]);
}

static void load(struct vision *v, struct vision_settings *s)
{
    struct vision_minicpmv *f = &v->minicpmv;
    const bool ocr = strcmp(v->name, "minicpm_ocr") == 0;
    const char *mode = ocr ? "4x" : "16x";
    const char *small = json_str(s->pixels.o, "small_image_upsize", "always");
    vision_read_format(s, &v->format, &pixels);
    v->format.merge = ocr ? 2 : 4; /* stages of two patches a side */
    f->enlarge = strcmp(small, "always") == 0;
    if (!f->enlarge && strcmp(small, "never") != 0) /* "adaptive" examines pixels */
        vision_settings_fail(s, "%s: small_image_upsize must be always or never", s->pixels.name);
    f->numbered =
        vision_flag(&s->processor, "use_image_id", vision_flag(&s->pixels, "use_image_id", true));
    if (strcmp(json_str(s->pixels.o, "downsample_mode", mode), mode) != 0)
        vision_settings_fail(s, "%s: downsample_mode must be %s", s->pixels.name, mode);
    v->token = vision_read_token(s, "image_token_id", "<|image_pad|>", 248056, v->marker);
    memcpy(f->patch, v->marker, sizeof(f->patch));
    load_slices(v, s);
}

/* MiniCPM-V 4.7 also has the ids of the tokens whose places are on an image's canvas. */
static void load_canvas(struct vision *v, struct vision_settings *s)
{
    static const char *const keys[] = {"image_start_id", "image_end_id", "slice_start_id",
                                       "slice_end_id", "newline_id"};
    load(v, s);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        v->minicpmv.around[i] = vision_u32(s, &s->config, keys[i], UINT32_MAX, 0, INT32_MAX);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (v->minicpmv.around[i] == UINT32_MAX)
            vision_settings_fail(s, "config.json: %s is missing", keys[i]);
}

/* Three halves, as in every published file; absent: the same. */
static void only_halves(struct vision_settings *s, const char *key)
{
    const cJSON *list = json_get(s->pixels.o, key), *x;
    cJSON_ArrayForEach(x, list) if (x->valuedouble != 0.5)
        vision_settings_fail(s, "%s: %s must be 0.5", s->pixels.name, key);
}

/* The files of the authors of MiniCPM-V 2.5 to 4.5: queries make as many features of each slice. */
static void load_resampled(struct vision *v, struct vision_settings *s)
{
    struct vision_minicpmv *f = &v->minicpmv;
    vision_read_format(s, &v->format, &pixels);
    only_halves(s, "norm_mean");
    only_halves(s, "norm_std");
    f->enlarge = true;
    f->numbered =
        vision_flag(&s->pixels, "use_image_id", vision_flag(&s->config, "use_image_id", false));
    f->latents = vision_u32(s, &s->config, "query_num", 64, 1, 4096);
    if (vision_u32(s, &s->pixels, "image_feature_size", f->latents, 1, 4096) != f->latents)
        vision_settings_fail(s, "%s: image_feature_size must be query_num", s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<unk>", 128244, f->patch);
    snprintf(v->marker, sizeof(v->marker), "(<image>./</image>)"); /* no token of the model */
    snprintf(v->around, sizeof(v->around), "%s\n", v->marker);
    load_slices(v, s);
}

/* The next multiple of `unit`, at least one; halves to the even one. */
static double multiple(double length, double unit)
{
    const double n = nearbyint(length / unit) * unit;
    return n > unit ? n : unit;
}

/* Sides of whole features, for about as many pixels as a slice has; a smaller image keeps its own
 * unless `enlarge`. */
static void fit(const struct vision *v, double h, double w, bool enlarge, uint32_t *height,
                uint32_t *width)
{
    const double side = v->minicpmv.side, unit = (double)v->format.patch * v->format.merge;
    if (enlarge || h * w > side * side) {
        const double aspect = w / h;
        h = trunc(side / sqrt(aspect));
        w = trunc(h * aspect);
    }
    *width = (uint32_t)multiple(w, unit);
    *height = (uint32_t)multiple(h, unit);
}

/* The grid of slices whose aspect ratio is nearest, in logarithms, among the grids of about as many
 * slices as the image has pixels for; of equally near ones of as many slices that of more rows. */
static bool slice_grid(const struct vision_minicpmv *f, double h, double w, uint32_t *rows,
                       uint32_t *cols)
{
    const double least = ceil(w * h / ((double)f->side * f->side)), ratio = log(w / h);
    const uint32_t n = least < f->max_slices ? (uint32_t)least : f->max_slices;
    double nearest = INFINITY;
    *rows = *cols = 1;
    if (n <= 1)
        return false;
    for (uint32_t k = n - 1; k <= n + 1 && k <= f->max_slices; k++)
        for (uint32_t r = 1; k > 1 && r <= k; r++) {
            const uint32_t c = k / r;
            const double off = fabs(ratio - log((double)c / r));
            if (c * r != k || off > nearest || (off == nearest && r <= *rows))
                continue;
            nearest = off;
            *rows = r;
            *cols = c;
        }
    return true;
}

static uint64_t add_part(const struct vision *v, struct vision_plan *out, uint32_t of, uint32_t x,
                         uint32_t y, uint32_t width, uint32_t height)
{
    const uint32_t unit = v->format.patch * v->format.merge;
    vision_size_crop(out, vision_add_crop(out, of, x, y), width, height);
    if (v->minicpmv.latents)
        return v->minicpmv.latents;
    return (uint64_t)(width / unit) * (height / unit);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const struct vision_minicpmv *f = &v->minicpmv;
    const uint32_t h = out->height, w = out->width;
    const uint32_t unit = v->format.patch * v->format.merge;
    uint32_t height, width, rows, cols;
    const bool sliced = slice_grid(f, h, w, &rows, &cols);
    (void)e;
    fit(v, h, w, !sliced && f->enlarge, &height, &width);
    const uint32_t whole = vision_add_resize(out, -1, vision_whole(out), width, height);
    uint64_t features = add_part(v, out, whole, 0, 0, width, height);
    if (v->family->canvas) {
        out->grid_h = height / unit;
        out->grid_w = width / unit;
    }
    if (sliced) {
        fit(v, multiple(h, rows) / rows, multiple(w, cols) / cols, true, &height, &width);
        const uint32_t all =
            vision_add_resize(out, -1, vision_whole(out), cols * width, rows * height);
        out->rows = rows;
        out->cols = cols;
        if (v->family->canvas)
            out->tiles = (struct vision_tiles){rows, cols, height / unit, width / unit};
        for (uint32_t i = 0; i < rows * cols; i++)
            features += add_part(v, out, all, i % cols * width, i / cols * height, width, height);
    }
    out->n_features = features < UINT32_MAX ? (uint32_t)features : UINT32_MAX;
    return 0;
}

static void put_part(const struct vision *v, const struct vision_plan *p, uint32_t crop,
                     struct buf *out)
{
    const uint32_t unit = v->format.patch * v->format.merge;
    buf_str(out, crop ? "<slice>" : "<image>");
    vision_repeat(out, v->minicpmv.patch,
                  v->minicpmv.latents ? v->minicpmv.latents
                                      : (uint64_t)(vision_crop_width(p, crop) / unit) *
                                            (vision_crop_height(p, crop) / unit));
    buf_str(out, crop ? "</slice>" : "</image>");
}

static void number(const struct vision *v, uint32_t nth, struct buf *out)
{
    if (v->minicpmv.numbered)
        buf_fmt(out, "<image_id>%u</image_id>", nth);
}

static void expand(const struct vision *v, const struct vision_plan *p, struct buf *out)
{
    put_part(v, p, 0, out);
    for (uint32_t i = 1; i < p->n_crops; i++) {
        if (i > 1 && (i - 1) % p->cols == 0)
            buf_str(out, "\n");
        put_part(v, p, i, out);
    }
}

/* ---------------------------------------------------------------- places on a canvas */

/* Place i of n, evenly spread over `side` places, ends aligned; halves to the even one. In fp32 and
 * from the nearer end, as torch.linspace() computes it. */
static uint32_t spread(uint32_t side, uint32_t n, uint32_t i)
{
    const float end = (float)(side - 1), step = n > 1 ? end / (float)(n - 1) : 0;
    return (uint32_t)rintf(i < n / 2 || n < 2 ? step * (float)i : end - step * (float)(n - 1 - i));
}

/* Token `at` of the slices behind an image and its end, from 0: `<slice>`, features, `</slice>`,
 * and a newline between two rows. A slice's ends are at its corners, a newline is behind its row.
 */
static void on_slices(const struct vision_tiles *t, uint32_t at, uint32_t *y, uint32_t *x)
{
    const uint32_t cells = t->height * t->width, each = cells + 2, row = t->cols * each + 1;
    const uint32_t r = at / row, c = at % row, k = c / each, q = c % each;
    *y = *x = 0;
    if (r >= t->rows || (r == t->rows - 1 && c == row - 1))
        return; /* behind all of them */
    *y = r * t->height;
    *x = k * t->width;
    if (c == row - 1 || q == each - 1)
        *y += t->height - 1;
    if (c == row - 1)
        return;
    if (q == each - 1)
        *x += t->width - 1;
    else if (q > 0) {
        *y += (q - 1) / t->width;
        *x += (q - 1) % t->width;
    }
}

/* Token i of an image whose canvas begins at `origin`. The whole image is stretched over its
 * slices. */
static void on_canvas(const struct vision_place *p, uint32_t i, uint32_t origin, uint32_t out[3])
{
    const struct vision_tiles *t = &p->tiles;
    const uint32_t h = t->rows ? t->rows * t->height : p->grid_h;
    const uint32_t w = t->rows ? t->cols * t->width : p->grid_w;
    const uint32_t at = i - p->first, cells = p->grid_h * p->grid_w;
    uint32_t y = 0, x = 0;
    out[0] = origin;
    if (i < p->first) {
        out[1] = out[2] = origin ? origin - 1 : 0;
        return;
    }
    if (at < cells) {
        y = spread(h, p->grid_h, at / p->grid_w);
        x = spread(w, p->grid_w, at % p->grid_w);
    } else if (at == cells) {
        y = h;
        x = w;
    } else if (t->rows) {
        on_slices(t, at - cells - 1, &y, &x);
    }
    out[1] = origin + y;
    out[2] = origin + x;
}

/* Text continues behind the longer side of the canvas, and one place further. */
static void position(const struct vision_place *place, uint32_t n, uint32_t i, uint32_t out[3])
{
    uint32_t origin = 0, from = 0;
    for (uint32_t k = 0; k < n; k++) {
        const struct vision_place *p = &place[k];
        const struct vision_tiles *t = &p->tiles;
        const uint32_t begin = p->first ? p->first - 1 : 0, end = p->first + p->n + p->behind;
        const uint32_t h = t->rows ? t->rows * t->height : p->grid_h;
        const uint32_t w = t->rows ? t->cols * t->width : p->grid_w;
        if (i < begin)
            break;
        origin += begin - from;
        if (i < end) {
            on_canvas(p, i, origin, out);
            return;
        }
        origin += (h > w ? h : w) + 1;
        from = end;
    }
    out[0] = out[1] = out[2] = origin + i - from;
}

const struct vision_family vision_minicpmv = {.types = {"minicpmv4_6", "minicpm_ocr"},
                                              .load = load,
                                              .plan = plan,
                                              .number = number,
                                              .expand = expand};
const struct vision_family vision_minicpmv_canvas = {.types = {"minicpmv4_7"},
                                                     .three_positions = true,
                                                     .canvas = true,
                                                     .load = load_canvas,
                                                     .plan = plan,
                                                     .position = position,
                                                     .number = number,
                                                     .expand = expand};
const struct vision_family vision_minicpmv_first = {.types = {"minicpmv", "minicpmo"},
                                                    .load = load_resampled,
                                                    .plan = plan,
                                                    .number = number,
                                                    .expand = expand};
