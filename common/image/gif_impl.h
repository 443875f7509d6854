/* gif_impl.h - private to gif.c and gif_film.c: giflib over a file in memory. */
#ifndef COMMON_IMAGE_GIF_IMPL_H
#define COMMON_IMAGE_GIF_IMPL_H
#include "common/image/canvas.h"
#include <gif_lib.h>

enum { GIF_OPAQUE = -1 };

/* What a graphics control extension says about the next frame. */
struct gif_control {
    int transparent; /* a colour, or GIF_OPAQUE */
    int disposal, delay;
};

struct gif_source {
    const uint8_t *p;
    size_t left;
};

/* NULL with an error. `s` lives as long as the result. Close it by DGifCloseFile(). */
GifFileType *gif_open(struct gif_source *s, struct err *e);
/* Reads up to the next frame and its description. 1: found, 0: the end, -1: broken. Extensions
 * before it set parts of *control. */
int gif_next_frame(GifFileType *gif, struct gif_control *control);
/* The colours of the frame; the transparent one is white. */
void gif_palette(const GifFileType *gif, int transparent, struct palette *p);
/* The row number of line i in an interlaced frame: every eighth, then those between, ... */
uint32_t gif_interlaced_row(uint32_t i, uint32_t height);
#endif
