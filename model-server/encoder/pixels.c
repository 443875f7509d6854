#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One of the plan's resizes: the part of it that is used. */
struct part {
    struct vision_rect used;
    struct pixel_view view; /* its pixels, of `used` alone */
    uint8_t *own;           /* where they lie if they are no other's */
};

struct work {
    const struct vision_format *format;
    const struct vision_plan *plan;
    const struct pixels_workers *workers;
    enum vision_layout layout;
    struct part parts[VISION_MAX_RESIZES];
    float *out;
    struct byte_numbers numbers;
    struct resample_kernels kernels;
};
enum { BLACK_RUN = 1024 }; /* pixels that are made black at once */

size_t pixels_count(const struct vision_format *f, const struct vision_plan *p,
                    enum vision_layout layout)
{
    return (size_t)p->n_crops * 3 * p->crop_width * p->crop_height *
           (layout == VISION_PLANES ? 1 : f->frames);
}

static void run(const struct pixels_workers *w,
                void (*fn)(void *arg, int thread, size_t begin, size_t end), void *arg, size_t n)
{
    if (w->run)
        w->run(w->device, fn, arg, n);
    else
        fn(arg, 0, 0, n);
}

/* ---------------------------------------------------------------- resizing */

static void widen(struct vision_rect *r, int64_t x, int64_t y, int64_t x_end, int64_t y_end)
{
    if (x >= x_end || y >= y_end)
        return;
    if (r->width == 0) {
        *r = (struct vision_rect){(uint32_t)x, (uint32_t)y, (uint32_t)(x_end - x),
                                  (uint32_t)(y_end - y)};
        return;
    }
    const int64_t right = r->x + (int64_t)r->width, below = r->y + (int64_t)r->height;
    r->x = x < r->x ? (uint32_t)x : r->x;
    r->y = y < r->y ? (uint32_t)y : r->y;
    r->width = (uint32_t)((x_end > right ? x_end : right) - r->x);
    r->height = (uint32_t)((y_end > below ? y_end : below) - r->y);
}

static int64_t clamp(int64_t v, int64_t most) { return v < 0 ? 0 : v > most ? most : v; }

/* What crops and later resizes need of resize i; empty where they need nothing. */
static struct vision_rect used_of(const struct vision_plan *p, uint32_t i)
{
    const struct vision_resize *r = &p->resizes[i];
    struct vision_rect used = {0};
    for (uint32_t k = 0; k < p->n_crops; k++)
        if (p->crops[k].of == i)
            widen(&used, clamp(p->crops[k].x, r->width), clamp(p->crops[k].y, r->height),
                  clamp(p->crops[k].x + (int64_t)p->crop_width, r->width),
                  clamp(p->crops[k].y + (int64_t)p->crop_height, r->height));
    for (uint32_t k = i + 1; k < p->n_resizes; k++)
        if (p->resizes[k].of == (int32_t)i) {
            const struct vision_rect *c = &p->resizes[k].cut;
            widen(&used, c->x, c->y, (int64_t)c->x + c->width, (int64_t)c->y + c->height);
        }
    return used;
}

static struct pixel_view cut(const struct pixel_view *v, const struct vision_rect *r)
{
    return (struct pixel_view){v->rgb + r->y * v->row_bytes + 3 * (size_t)r->x, v->row_bytes,
                               r->width, r->height};
}

struct resizing {
    struct resample resample;
    uint8_t *to, *scratch;
    size_t to_bytes, scratch_bytes;
};

static void resize_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct resizing *z = arg;
    resample_rows(&z->resample, z->to, z->to_bytes, (uint32_t)begin, (uint32_t)end,
                  z->scratch + (size_t)thread * z->scratch_bytes);
}

static int resize(const struct pixels_workers *w, const struct pixel_view *from,
                  const struct vision_resize *r, enum vision_filter filter, struct part *out,
                  struct err *e)
{
    struct resizing z = {.to_bytes = 3 * (size_t)out->used.width + 1};
    if (resample_open(&z.resample, from, r->width, r->height, out->used, filter, w->features, e))
        return -1;
    z.scratch_bytes = (resample_scratch(&z.resample) + 63) / 64 * 64;
    z.scratch = malloc((size_t)w->threads * z.scratch_bytes + 1);
    z.to = out->own = malloc(out->used.height * z.to_bytes);
    const int rc = z.scratch && z.to ? 0 : err_nomem(e);
    if (rc == 0)
        run(w, resize_rows, &z, out->used.height);
    free(z.scratch);
    resample_close(&z.resample);
    out->view = (struct pixel_view){out->own, z.to_bytes, out->used.width, out->used.height};
    return rc;
}

static int make_part(struct work *k, const struct image *picture, uint32_t i, struct err *e)
{
    const struct vision_resize *r = &k->plan->resizes[i];
    struct part *out = &k->parts[i];
    struct pixel_view from = {picture->rgb, 3 * (size_t)picture->width, picture->width,
                              picture->height};
    struct vision_rect c = r->cut;
    out->used = used_of(k->plan, i);
    if (out->used.width == 0)
        return 0;
    if (r->of >= 0) {
        const struct part *before = &k->parts[r->of];
        from = before->view;
        c.x -= before->used.x;
        c.y -= before->used.y;
    }
    from = cut(&from, &c);
    if (r->width == from.width && r->height == from.height) { /* nothing changes */
        out->view = cut(&from, &out->used);
        return 0;
    }
    return resize(k->workers, &from, r, k->format->filter, out, e);
}

/* ---------------------------------------------------------------- numbers */

static void make_numbers(struct byte_numbers *n, const struct vision_format *f)
{
    n->rescale = f->rescale;
    memcpy(n->mean, f->mean, sizeof(n->mean));
    memcpy(n->std, f->std, sizeof(n->std));
    for (int c = 0; c < 3; c++)
        for (int b = 0; b < 256; b++)
            n->value[c][b] = ((float)(b * f->rescale) - f->mean[c]) / f->std[c];
}

/* n pixels to a place of each channel, and to each frame there; `rgb` NULL: black ones. */
static void convert(const struct work *k, float *to, size_t plane, uint32_t frames, size_t frame,
                    const uint8_t *rgb, uint32_t n)
{
    static const uint8_t black[3 * BLACK_RUN];
    for (; !rgb && n > BLACK_RUN; n -= BLACK_RUN, to += BLACK_RUN)
        k->kernels.spread(to, plane, frames, frame, black, BLACK_RUN, &k->numbers);
    k->kernels.spread(to, plane, frames, frame, rgb ? rgb : black, n, &k->numbers);
}

/* n pixels of row y of a crop from x on, to the patches that they lie in. */
static void to_patches(const struct work *k, size_t crop, uint32_t x, uint32_t y, uint32_t n,
                       const uint8_t *rgb)
{
    const uint32_t p = k->format->patch, frames = k->format->frames;
    const uint32_t m = k->layout == VISION_PATCHES ? 1 : k->format->merge;
    const uint32_t cols = k->plan->crop_width / p, rows = k->plan->crop_height / p, row = y / p;
    const size_t area = (size_t)p * p, numbers = 3 * frames * area; /* of a patch */
    /* Blocks of m x m patches are in raster order, and the patches within a block. */
    const size_t first = crop * rows * cols + (size_t)(row / m) * m * cols + row % m * m;
    uint32_t block = x / p / m, within = x / p % m, in_x = x % p;
    while (n > 0) {
        const uint32_t take = n < p - in_x ? n : p - in_x;
        const size_t patch = first + (size_t)block * m * m + within;
        convert(k, k->out + patch * numbers + (size_t)(y % p) * p + in_x, frames * area, frames,
                area, rgb, take);
        rgb = rgb ? rgb + 3 * (size_t)take : NULL;
        n -= take;
        in_x = 0;
        if (++within == m) {
            within = 0;
            block++;
        }
    }
}

static void to_layout(const struct work *k, size_t crop, uint32_t x, uint32_t y, uint32_t n,
                      const uint8_t *rgb)
{
    const uint32_t w = k->plan->crop_width;
    const size_t plane = (size_t)w * k->plan->crop_height;
    if (k->layout == VISION_PLANES)
        convert(k, k->out + crop * 3 * plane + (size_t)y * w + x, plane, 1, 0, rgb, n);
    else
        to_patches(k, crop, x, y, n, rgb);
}

/* Row y of a crop: black, pixels, black. */
static void crop_row(const struct work *k, size_t crop, uint32_t y)
{
    const struct vision_crop *c = &k->plan->crops[crop];
    const struct vision_resize *r = &k->plan->resizes[c->of];
    const struct part *part = &k->parts[c->of];
    const uint32_t width = k->plan->crop_width;
    const int64_t source_y = c->y + (int64_t)y;
    const int64_t from = clamp(c->x, r->width), to = clamp(c->x + (int64_t)width, r->width);
    if (source_y < 0 || source_y >= r->height || from >= to) {
        to_layout(k, crop, 0, y, width, NULL);
        return;
    }
    const uint32_t before = (uint32_t)(from - c->x), n = (uint32_t)(to - from);
    to_layout(k, crop, 0, y, before, NULL);
    to_layout(k, crop, before, y, n,
              part->view.rgb + (size_t)(source_y - part->used.y) * part->view.row_bytes +
                  3 * (size_t)(from - part->used.x));
    to_layout(k, crop, before + n, y, width - before - n, NULL);
}

static void crop_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct work *k = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        crop_row(k, i / k->plan->crop_height, (uint32_t)(i % k->plan->crop_height));
}

int pixels_make(const struct vision_format *f, const struct vision_plan *p,
                const struct image *picture, enum vision_layout layout,
                const struct pixels_workers *w, float *out, struct err *e)
{
    const struct pixels_workers alone = {.threads = 1, .features = resample_features()};
    struct work k = {
        .format = f, .plan = p, .workers = w ? w : &alone, .layout = layout, .out = out};
    int rc = 0;
    assert(picture->width == p->width && picture->height == p->height);
    make_numbers(&k.numbers, f);
    resample_kernels_init(&k.kernels, k.workers->features);
    for (uint32_t i = 0; i < p->n_resizes && rc == 0; i++)
        rc = make_part(&k, picture, i, e);
    if (rc == 0)
        run(k.workers, crop_rows, &k, (size_t)p->n_crops * p->crop_height);
    for (uint32_t i = 0; i < p->n_resizes; i++)
        free(k.parts[i].own);
    return rc;
}
