/* canvas.h - where decoders put rows, and how stored pixels become RGB.
 *
 * For the decoders of this folder alone. A canvas turns the picture while it is written: decoders
 * deliver rows as the file stores them, the memory holds the picture as it is shown. */
#ifndef COMMON_IMAGE_CANVAS_H
#define COMMON_IMAGE_CANVAS_H
#include "common/image/image.h"
#include <stdbool.h>

struct canvas {
    uint8_t *rgb;           /* [height][width][3] as shown; the caller's */
    uint32_t width, height; /* as stored: exchanged where the orientation is above 4 */
    uint32_t orientation;   /* 1 .. 8 */
};

/* A canvas for the picture that `info` describes, over `rgb`: width * height * 3 bytes. */
struct canvas canvas_over(const struct image_info *info, uint8_t *rgb);
/* Where row y may be written in place; NULL: rows are turned, canvas_put() must place them. */
uint8_t *canvas_row(const struct canvas *c, uint32_t y);
/* Copies `rgb`, [width][3], to its place. Does nothing where it is canvas_row(c, y) itself. */
void canvas_put(const struct canvas *c, uint32_t y, const uint8_t *rgb);

/* n pixels of a row to [n][3]. Alpha is blended over white in Pillow's integers. */
void rgb_from_grey(uint8_t *rgb, const uint8_t *grey, size_t n);
void rgb_from_grey_alpha(uint8_t *rgb, const uint8_t *grey_alpha, size_t n);
void rgb_from_rgba(uint8_t *rgb, const uint8_t *rgba, size_t n);
/* As Adobe writes it: each ink inverted. `cmyk` is [n][4]. */
void rgb_from_inverted_cmyk(uint8_t *rgb, const uint8_t *cmyk, size_t n);

/* 256 colours over white. Start from zeros: what a file leaves out is black, as in Pillow. */
struct palette {
    uint8_t rgb[256][3];
};
void palette_grey(struct palette *p); /* for a file without a palette */
void palette_set(struct palette *p, unsigned i, uint8_t red, uint8_t green, uint8_t blue);
/* To be called after the entry's colour is set. */
void palette_blend(struct palette *p, unsigned i, uint8_t alpha);
void rgb_from_palette(uint8_t *rgb, const uint8_t *index, size_t n, const struct palette *p);

/* The decoders, one file each. The canvas has the size that image_sniff() read; a file that turns
 * out to have another is refused. ERR_VALIDATION: broken; ERR_SYSTEM: no memory. */
int png_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int jpeg_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int webp_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int gif_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
/* The decoder of info->format; `info` is image_sniff()'s of the same bytes. `rgb`: as shown,
 * info->width * info->height * 3 bytes. Its content is undefined after an error. */
int image_decode_here(const void *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                      struct err *e);
/* err_set() with ERR_VALIDATION: "the JPEG file is broken or incomplete". */
int image_broken(enum image_format f, struct err *e);

/* Orientation, 1 .. 8, of an EXIF block: a TIFF header, after "Exif\0\0" or without. Whatever it
 * lacks: 1. */
uint32_t exif_orientation(const uint8_t *p, size_t n);
#endif
