/* resample.h - resizing of RGB pictures, as Pillow 8 to 12 does it, to the bit.
 *
 * Two passes, each a weighted sum of the pixels under a filter that is as wide as the shrinking
 * asks for, each rounded to 8 bits: across, then down. A picture of more than 100 times its width
 * that gets lower goes down first. Only a window of the result is computed. */
#ifndef MODEL_SERVER_ENCODER_RESAMPLE_H
#define MODEL_SERVER_ENCODER_RESAMPLE_H
#include "common/err.h"
#include "common/vision/vision.h"
#include "model-server/encoder/resample_kernels.h"

/* Pixels of another owner. */
struct pixel_view {
    const uint8_t *rgb; /* [height] rows of [width][3] */
    size_t row_bytes;   /* from one row to the next */
    uint32_t width, height;
};

struct resample {
    struct pixel_view from;
    struct vision_rect window; /* of the result */
    struct taps across, down;
    bool same_width, same_height, down_first; /* which passes there are */
    uint32_t ring_rows;
    size_t ring_bytes; /* of a row */
    struct resample_kernels kernels;
};

/* `from` becomes width x height (at least 1 each), of which `window` is wanted: not empty, and
 * inside. `features`: of resample_kernels_init(). The pixels are not copied. */
int resample_open(struct resample *r, const struct pixel_view *from, uint32_t width,
                  uint32_t height, struct vision_rect window, enum vision_filter filter,
                  unsigned features, struct err *e);
void resample_close(struct resample *r);
/* Bytes that a thread needs to work in resample_rows(). */
size_t resample_scratch(const struct resample *r);
/* Rows [begin, end) of the window to `to`, which has room for all of its rows, `to_bytes` >
 * 3 * window.width apart. Any number of threads at once, each with its own scratch. */
void resample_rows(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t begin,
                   uint32_t end, void *scratch);
#endif
