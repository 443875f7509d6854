#include "model-server/encoder/pixels.h"
#include "model-server/backend/numbers.h"
#include "model-server/encoder/resample.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The part of one of the plan's resizes that is used. */
struct part {
    struct vision_rect used;
    struct pixel_view view; /* the pixels of `used` */
    uint8_t *own;           /* memory of these pixels; NULL: they are part of another picture */
};

struct work {
    const struct vision_format *format;
    const struct vision_plan *plan;
    const struct pixels_workers *workers;
    enum vision_layout layout;
    /* The frame of a row of patches that is written, and how many after it are copies of it; and
     * the number of rows, of patches or of planes' pixels, before it. */
    uint32_t frame, copies;
    size_t first_row;
    struct part parts[VISION_MAX_RESIZES];
    const uint8_t *outside; /* OUTSIDE_RUN pixels */
    float *out;
    struct byte_numbers numbers;
    struct resample_kernels kernels;
};
enum { OUTSIDE_RUN = 1024 }; /* pixels outside an image per call of a kernel */

size_t pixels_count(const struct vision_format *f, const struct vision_plan *p,
                    enum vision_layout layout)
{
    return 3 * (size_t)vision_pixels_before(p, p->n_crops) *
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

/* The part of resize i that crops and later resizes use; empty: none. */
static struct vision_rect used_of(const struct vision_plan *p, uint32_t i)
{
    const struct vision_resize *r = &p->resizes[i];
    struct vision_rect used = {0};
    for (uint32_t k = 0; k < p->n_crops; k++)
        if (p->crops[k].of == i)
            widen(&used, clamp(p->crops[k].x, r->width), clamp(p->crops[k].y, r->height),
                  clamp(p->crops[k].x + (int64_t)vision_crop_width(p, k), r->width),
                  clamp(p->crops[k].y + (int64_t)vision_crop_height(p, k), r->height));
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
    if (r->width == from.width && r->height == from.height) { /* no resizing */
        out->view = cut(&from, &out->used);
        return 0;
    }
    return resize(k->workers, &from, r, k->format->filter, out, e);
}

/* ---------------------------------------------------------------- normalisation */

static float rounded(float x) { return f32_of_bf16(bf16_of_f32(x)); }

/* As in PyTorch with tensors of bfloat16, and the factor in fp32. */
static float number_bf16(const struct vision_format *f, int c, int b)
{
    const float x = rounded((float)b * (float)f->rescale);
    return rounded(rounded(x - rounded(f->mean[c])) / rounded(f->std[c]));
}

static void make_numbers(struct byte_numbers *n, const struct vision_format *f)
{
    n->rescale = f->rescale;
    memcpy(n->mean, f->mean, sizeof(n->mean));
    memcpy(n->std, f->std, sizeof(n->std));
    for (int c = 0; c < 3; c++)
        for (int b = 0; b < 256; b++)
            n->value[c][b] =
                f->bf16 ? number_bf16(f, c, b) : ((float)(b * f->rescale) - f->mean[c]) / f->std[c];
}

/* The destination of a row of pixels: channels are `plane` floats apart, copies of a channel
 * `frame`. */
struct place {
    float *at;
    size_t plane, frame;
    uint32_t frames;
};

/* Normalises n pixels; `rgb` NULL: those outside. Returns the destination of the next pixel. */
static struct place convert(const struct work *k, struct place to, const uint8_t *rgb, uint32_t n)
{
    while (n > 0) {
        const uint32_t take = rgb || n < OUTSIDE_RUN ? n : OUTSIDE_RUN;
        k->kernels.spread(to.at, to.plane, to.frames, to.frame, rgb ? rgb : k->outside, take,
                          &k->numbers);
        to.at += take;
        n -= take;
    }
    return to;
}

/* Pixels x .. x + n - 1 of row y of a crop; `outside` where the crop exceeds the picture. */
static void span(const struct work *k, const struct vision_crop *c, uint32_t x, uint32_t y,
                 uint32_t n, struct place to)
{
    const struct vision_resize *r = &k->plan->resizes[c->of];
    const struct part *part = &k->parts[c->of];
    const int64_t source_x = c->x + (int64_t)x, source_y = c->y + (int64_t)y;
    const int64_t begin = clamp(-source_x, n), end = clamp(r->width - source_x, n);
    if (source_y < 0 || source_y >= r->height || begin >= end) {
        convert(k, to, NULL, n);
        return;
    }
    to = convert(k, to, NULL, (uint32_t)begin);
    to = convert(k, to,
                 part->view.rgb + (size_t)(source_y - part->used.y) * part->view.row_bytes +
                     3 * (size_t)(source_x + begin - part->used.x),
                 (uint32_t)(end - begin));
    convert(k, to, NULL, n - (uint32_t)end);
}

/* The crop that contains row *i of all crops, in rows of `unit` pixels; *i becomes the row in it.
 */
static uint32_t crop_of(const struct vision_plan *p, size_t *i, uint32_t unit)
{
    uint32_t crop = 0;
    for (; *i >= vision_crop_height(p, crop) / unit; crop++)
        *i -= vision_crop_height(p, crop) / unit;
    return crop;
}

/* Rows of pixels of all crops, to planes. */
static void plane_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct work *k = arg;
    const struct vision_plan *p = k->plan;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t y = k->first_row + i;
        const uint32_t crop = crop_of(p, &y, 1), w = vision_crop_width(p, crop);
        span(k, &p->crops[crop], 0, (uint32_t)y, w,
             (struct place){k->out + 3 * vision_pixels_before(p, crop) + y * w,
                            (size_t)w * vision_crop_height(p, crop), 0, 1});
    }
}

/* Patches that are written together. With all patches of a row, cache lines that two rows of pixels
 * share would be evicted in between. With one patch, each read would wait for memory. */
enum { PATCH_RUN = 16 };

/* Rows of patches of all crops, to patches. */
static void patch_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct work *k = arg;
    const uint32_t p = k->format->patch, frames = k->format->frames;
    const uint32_t m = k->layout == VISION_PATCHES ? 1 : k->format->merge;
    const size_t area = (size_t)p * p, numbers = area * 3 * frames; /* of a patch */
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t row = k->first_row + i;
        const uint32_t crop = crop_of(k->plan, &row, p);
        const uint32_t cols = vision_crop_width(k->plan, crop) / p;
        const size_t before = vision_pixels_before(k->plan, crop) / area; /* patches */
        /* Blocks of m x m patches are in raster order, and the patches within a block. */
        float *first =
            k->out + (before + row / m * m * cols + row % m * m) * numbers + k->frame * area;
        for (uint32_t run = 0; run < cols; run += PATCH_RUN)
            for (uint32_t y = 0; y < p; y++)
                for (uint32_t col = run; col < cols && col < run + PATCH_RUN; col++)
                    span(k, &k->plan->crops[crop], col * p, (uint32_t)row * p + y, p,
                         (struct place){first + ((size_t)(col / m) * m * m + col % m) * numbers +
                                            (size_t)y * p,
                                        frames * area, area, k->copies});
    }
}

/* The picture on its canvas; the caller frees out->rgb. */
static int make_canvas(const struct vision_format *f, const struct vision_rect *c,
                       const struct image *picture, struct image *out, struct err *e)
{
    const size_t pixels = (size_t)c->width * c->height, row = 3 * (size_t)picture->width;
    *out = (struct image){.width = c->width, .height = c->height, .rgb = malloc(3 * pixels + 1)};
    if (!out->rgb)
        return err_nomem(e);
    for (size_t i = 0; i < 3 * pixels; i++)
        out->rgb[i] = f->outside[i % 3];
    for (size_t y = 0; y < picture->height; y++)
        memcpy(out->rgb + 3 * ((c->y + y) * c->width + c->x), picture->rgb + y * row, row);
    return 0;
}

/* Writes `rows` rows of one picture, of pixels in planes, otherwise of patches. */
static int make_rows(struct work *k, const struct image *picture, size_t rows, struct err *e)
{
    const struct vision_plan *p = k->plan;
    int rc = 0;
    for (uint32_t i = 0; i < p->n_resizes && rc == 0; i++)
        rc = make_part(k, picture, i, e);
    if (rc == 0)
        run(k->workers, k->layout == VISION_PLANES ? plane_rows : patch_rows, k, rows);
    for (uint32_t i = 0; i < p->n_resizes; i++) {
        free(k->parts[i].own);
        k->parts[i].own = NULL;
    }
    return rc;
}

static int make_picture(struct work *k, const struct image *picture, struct err *e)
{
    const struct vision_plan *p = k->plan;
    const uint32_t unit = k->layout == VISION_PLANES ? 1 : k->format->patch;
    size_t rows = 0;
    k->copies = k->format->frames;
    for (uint32_t i = 0; i < p->n_crops; i++)
        rows += vision_crop_height(p, i) / unit;
    return make_rows(k, picture, rows, e);
}

static int make_video(struct work *k, const struct image *video, struct err *e)
{
    const struct vision_plan *p = k->plan;
    const uint32_t each = k->format->frames, last = p->frames - 1;
    const size_t rows = p->crop_height / (k->layout == VISION_PLANES ? 1 : k->format->patch);
    int rc = 0;
    assert(p->frames <= p->n_crops * each && (k->layout != VISION_PLANES || each == 1));
    k->copies = 1;
    for (uint32_t i = 0; i < p->n_crops * each && rc == 0; i++) {
        const size_t from = i < last ? i : last;
        const struct image frame = {.width = video->width,
                                    .height = video->height,
                                    .rgb = video->rgb + from * video->width * video->height * 3};
        k->frame = i % each;
        k->first_row = i / each * rows;
        rc = make_rows(k, &frame, rows, e);
    }
    return rc;
}

int pixels_make(const struct vision_format *f, const struct vision_plan *p,
                const struct image *picture, enum vision_layout layout,
                const struct pixels_workers *w, float *out, struct err *e)
{
    const struct pixels_workers alone = {.threads = 1, .features = resample_features()};
    uint8_t outside[3 * OUTSIDE_RUN];
    struct work k = {.format = f,
                     .plan = p,
                     .workers = w ? w : &alone,
                     .layout = layout,
                     .outside = outside,
                     .out = out};
    struct image canvas = {0};
    for (int i = 0; i < 3 * OUTSIDE_RUN; i++)
        outside[i] = f->outside[i % 3];
    assert(picture->width == p->width && picture->height == p->height &&
           picture->frames == p->frames);
    int rc = p->canvas.width ? make_canvas(f, &p->canvas, picture, &canvas, e) : 0;
    if (canvas.rgb)
        picture = &canvas;
    make_numbers(&k.numbers, f);
    resample_kernels_init(&k.kernels, k.workers->features);
    if (f->bf16) /* the other variants compute in fp32 instead of reading the table */
        k.kernels.spread = resample_spread_ref;
    if (rc == 0)
        rc = p->frames ? make_video(&k, picture, e) : make_picture(&k, picture, e);
    free(canvas.rgb);
    return rc;
}
