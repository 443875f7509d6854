/* resample.h - resizing of RGB pictures, bit-identical to Pillow 8 to 12.
 *
 * Two passes, horizontal then vertical. Each is a weighted sum of pixels under a filter whose width
 * grows with the reduction, rounded to 8 bits. If a picture is reduced in height and is more than
 * 100 times as high as wide, the vertical pass is first. Only a window of the result is computed.
 */
#ifndef MODEL_SERVER_ENCODER_RESAMPLE_H
#define MODEL_SERVER_ENCODER_RESAMPLE_H
#include "common/err.h"
#include "common/vision/vision.h"
#include "model-server/encoder/resample_kernels.h"

/* Pixels that the view does not own. */
struct pixel_view {
    const uint8_t *rgb; /* [height] rows of [width][3] */
    size_t row_bytes;   /* from one row to the next */
    uint32_t width, height;
};

struct resample {
    struct pixel_view from;
    struct vision_rect window;    /* part of the result that is computed */
    struct taps across, down;     /* weights of the horizontal and the vertical pass */
    bool same_width, same_height; /* no horizontal pass, no vertical pass */
    bool down_first;
    uint32_t ring_rows; /* rows between the passes, in a thread's scratch memory */
    size_t ring_bytes;  /* bytes of such a row */
    struct resample_kernels kernels;
};

/* Prepares resizing `from` to width x height (at least 1 each). `window` is not empty, and inside
 * the result. `features`: as for resample_kernels_init(). The pixels are not copied: they must stay
 * valid until resample_close(). ERR_SYSTEM: out of memory; then nothing is to be closed. */
int resample_open(struct resample *r, const struct pixel_view *from, uint32_t width,
                  uint32_t height, struct vision_rect window, enum vision_filter filter,
                  unsigned features, struct err *e);
void resample_close(struct resample *r);
/* Bytes of scratch memory that a thread needs in resample_rows(). */
size_t resample_scratch(const struct resample *r);
/* Computes rows [begin, end) of the window. `to` is the first row of the whole window; rows are
 * `to_bytes` > 3 * window.width apart. Several threads may call it at once, each with its own
 * scratch memory. */
void resample_rows(const struct resample *r, uint8_t *to, size_t to_bytes, uint32_t begin,
                   uint32_t end, void *scratch);
#endif
