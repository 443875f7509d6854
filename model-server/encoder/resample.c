#include "model-server/encoder/resample.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- filters */

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x)
{
    x *= M_PI;
    return x == 0.0 ? 1.0 : sin(x) / x;
}

static double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

static double box(double x) { return -0.5 < x && x <= 0.5 ? 1.0 : 0.0; }

/* Its constants are floats in Pillow. */
static double hamming(double x)
{
    x = fabs(x);
    return x < 1.0 ? sinc(x) * ((double)0.54F + (double)0.46F * cos(x * M_PI)) : 0.0;
}

/* Without VISION_NEAREST, which has one tap. */
static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {[VISION_BILINEAR] = {bilinear, 1.0},
               [VISION_BICUBIC] = {bicubic, 2.0},
               [VISION_LANCZOS] = {lanczos, 3.0},
               [VISION_BOX] = {box, 0.5},
               [VISION_HAMMING] = {hamming, 1.0}};

/* ---------------------------------------------------------------- taps */

static void taps_free(struct taps *t)
{
    free(t->first);
    free(t->count);
    free(t->k);
    free(t->low);
    free(t->high);
    *t = (struct taps){0};
}

/* Allocates taps for n outputs of at most `most` inputs. */
static int taps_new(struct taps *t, uint32_t n, uint32_t most)
{
    *t = (struct taps){.n = n, .stride = (most + TAP_GROUP - 1) / TAP_GROUP * TAP_GROUP};
    const size_t all = (size_t)n * t->stride;
    t->first = malloc(n * sizeof(*t->first));
    t->count = malloc(n * sizeof(*t->count));
    t->k = calloc(all, sizeof(*t->k));
    t->low = calloc(all, sizeof(*t->low));
    t->high = calloc(all, sizeof(*t->high));
    return t->first && t->count && t->k && t->low && t->high ? 0 : -1;
}

/* Stores a weight as a fixed-point number, rounded half away from zero, and its two parts. */
static void store(struct taps *t, size_t at, double weight)
{
    const double scaled = weight * (1 << TAP_BITS);
    t->k[at] = (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    t->low[at] = (int16_t)(t->k[at] & ((1 << TAP_LOW_BITS) - 1));
    t->high[at] = (int16_t)(t->k[at] >> TAP_LOW_BITS);
}

/* One tap: the input at the centre of the output. Centres are summed up one after the other, as in
 * Pillow. */
static int taps_nearest(struct taps *t, uint32_t in, uint32_t out, uint32_t first, uint32_t n,
                        struct err *e)
{
    const double scale = (double)in / out;
    double centre = scale * 0.5;
    if (taps_new(t, n, 1))
        return err_nomem(e);
    for (uint32_t i = 0; i < first + n; i++, centre += scale) {
        if (i < first)
            continue;
        t->first[i - first] = centre < in ? (uint32_t)centre : in - 1;
        t->count[i - first] = 1;
        store(t, (size_t)(i - first) * t->stride, 1);
    }
    t->most = 1;
    return 0;
}

/* Taps of outputs first .. first + n - 1 of `out`, from `in` inputs. Double precision in Pillow's
 * order of operations: the last bit of a weight can change a pixel. */
static int taps_make(struct taps *t, uint32_t in, uint32_t out, uint32_t first, uint32_t n,
                     enum vision_filter filter, struct err *e)
{
    if (filter == VISION_NEAREST)
        return taps_nearest(t, in, out, first, n, e);
    const double scale = (double)in / out, wide = scale < 1.0 ? 1.0 : scale;
    const double support = filters[filter].support * wide, narrow = 1.0 / wide;
    const uint32_t most = (uint32_t)ceil(support) * 2 + 1;
    double *w = malloc(most * sizeof(*w));
    if (!w || taps_new(t, n, most < in ? most : in)) {
        free(w);
        return err_nomem(e);
    }
    for (uint32_t i = 0; i < n; i++) {
        const double centre = (first + i + 0.5) * scale;
        const double low = centre - support + 0.5, high = centre + support + 0.5;
        const uint32_t from = low < 0 ? 0 : (uint32_t)low, to = high > in ? in : (uint32_t)high;
        const uint32_t count = to > from ? to - from : 0;
        double sum = 0;
        for (uint32_t j = 0; j < count; j++) {
            w[j] = filters[filter].weight((from + j - centre + 0.5) * narrow);
            sum += w[j];
        }
        for (uint32_t j = 0; j < count; j++)
            store(t, (size_t)i * t->stride + j, sum != 0.0 ? w[j] / sum : w[j]);
        t->first[i] = from;
        t->count[i] = count;
        t->most = t->count[i] > t->most ? t->count[i] : t->most;
    }
    free(w);
    return 0;
}

/* ---------------------------------------------------------------- open */

enum { AHEAD = 8 }; /* most rows per call of the horizontal kernel */

void resample_close(struct resample *r)
{
    taps_free(&r->across);
    taps_free(&r->down);
}

int resample_open(struct resample *r, const struct pixel_view *from, uint32_t width,
                  uint32_t height, struct vision_rect window, enum vision_filter filter,
                  unsigned features, struct err *e)
{
    *r = (struct resample){.from = *from,
                           .window = window,
                           .same_width = from->width == width,
                           .same_height = from->height == height,
                           .down_first =
                               from->height > (uint64_t)from->width * 100 && height < from->height};
    resample_kernels_init(&r->kernels, features);
    if ((!r->same_width &&
         taps_make(&r->across, from->width, width, window.x, window.width, filter, e)) ||
        (!r->same_height &&
         taps_make(&r->down, from->height, height, window.y, window.height, filter, e))) {
        resample_close(r);
        return -1;
    }
    r->ring_rows = r->same_height ? 0 : r->down.most + AHEAD;
    r->ring_bytes = r->same_width ? 0 : 3 * (size_t)window.width + 1;
    if (r->down_first) {
        r->ring_rows = 1;
        r->ring_bytes = 3 * (size_t)from->width;
    }
    return 0;
}

size_t resample_scratch(const struct resample *r)
{
    return (r->same_height ? 0 : r->down.most * sizeof(uint8_t *)) + r->ring_rows * r->ring_bytes;
}

/* ---------------------------------------------------------------- rows */

static const uint8_t *source_row(const struct resample *r, uint32_t y)
{
    return r->from.rgb + y * r->from.row_bytes;
}

/* The horizontal pass of rows y .. y + n - 1 of the source. */
static void go_across(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t y,
                      uint32_t n)
{
    if (!r->same_width) {
        r->kernels.across(to, to_bytes, source_row(r, y), r->from.row_bytes, r->from.width, n,
                          &r->across);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + i * to_bytes, source_row(r, y + i) + 3 * (size_t)r->window.x,
               3 * (size_t)r->window.width);
}

/* A ring of rows after the horizontal pass: row y of the source is at y % ring_rows. */
struct ring {
    uint8_t *bytes;
    uint32_t next, last; /* the next row to compute; the end of the rows that are needed */
};

static void fill(const struct resample *r, struct ring *g, uint32_t until)
{
    while (g->next < until) {
        const uint32_t slot = g->next % r->ring_rows;
        uint32_t n = g->last - g->next < AHEAD ? g->last - g->next : AHEAD;
        if (n > r->ring_rows - slot)
            n = r->ring_rows - slot;
        go_across(r, g->bytes + slot * r->ring_bytes, r->ring_bytes, g->next, n);
        g->next += n;
    }
}

static void across_then_down(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t begin,
                             uint32_t end, const uint8_t **rows, uint8_t *bytes)
{
    const struct taps *t = &r->down;
    struct ring g = {bytes, t->first[begin], t->first[end - 1] + t->count[end - 1]};
    for (uint32_t i = begin; i < end; i++) {
        if (!r->same_width)
            fill(r, &g, t->first[i] + t->count[i]);
        for (uint32_t j = 0; j < t->count[i]; j++)
            rows[j] = r->same_width ? source_row(r, t->first[i] + j) + 3 * (size_t)r->window.x
                                    : bytes + (t->first[i] + j) % r->ring_rows * r->ring_bytes;
        r->kernels.down(to + i * to_bytes, rows, 3 * (size_t)r->window.width, t, i);
    }
}

static void down_then_across(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t begin,
                             uint32_t end, const uint8_t **rows, uint8_t *line)
{
    const struct taps *t = &r->down;
    for (uint32_t i = begin; i < end; i++) {
        for (uint32_t j = 0; j < t->count[i]; j++)
            rows[j] = source_row(r, t->first[i] + j);
        r->kernels.down(line, rows, 3 * (size_t)r->from.width, t, i);
        if (r->same_width)
            memcpy(to + i * to_bytes, line + 3 * (size_t)r->window.x, 3 * (size_t)r->window.width);
        else
            r->kernels.across(to + i * to_bytes, to_bytes, line, 0, r->from.width, 1, &r->across);
    }
}

void resample_rows(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t begin,
                   uint32_t end, void *scratch)
{
    if (begin >= end)
        return;
    if (r->same_height) {
        go_across(r, to + begin * to_bytes, to_bytes, r->window.y + begin, end - begin);
        return;
    }
    const uint8_t **rows = scratch;
    uint8_t *bytes = (uint8_t *)(rows + r->down.most);
    (r->down_first ? down_then_across : across_then_down)(r, to, to_bytes, begin, end, rows, bytes);
}
