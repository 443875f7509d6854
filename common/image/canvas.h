/* canvas.h - the output of decoders, and conversion of stored pixels to RGB.
 *
 * Private to this folder. A canvas applies the EXIF orientation: decoders deliver rows as stored in
 * the file, and the memory holds the image as displayed. */
#ifndef COMMON_IMAGE_CANVAS_H
#define COMMON_IMAGE_CANVAS_H
#include "common/image/image.h"
#include <stdbool.h>

struct canvas {
    uint8_t *rgb;           /* [height][width][3] as displayed; the caller's */
    uint32_t width, height; /* as stored: swapped if the orientation is above 4 */
    uint32_t orientation;   /* 1 .. 8 */
};

/* A canvas for the image in `info` over `rgb`: width * height * 3 bytes. */
struct canvas canvas_over(const struct image_info *info, uint8_t *rgb);
/* Where row y may be written in place; NULL: rows are transformed, use canvas_put(). */
uint8_t *canvas_row(const struct canvas *c, uint32_t y);
/* Copies `rgb`, [width][3], to its place. No effect if that is canvas_row(c, y) itself. */
void canvas_put(const struct canvas *c, uint32_t y, const uint8_t *rgb);

/* Convert n pixels of a row to [n][3]. Alpha is blended over white with Pillow's integer
 * arithmetic. */
void rgb_from_grey(uint8_t *rgb, const uint8_t *grey, size_t n);
void rgb_from_grey_alpha(uint8_t *rgb, const uint8_t *grey_alpha, size_t n);
void rgb_from_rgba(uint8_t *rgb, const uint8_t *rgba, size_t n);
/* Adobe's CMYK, with inverted inks. `cmyk` is [n][4]. */
void rgb_from_inverted_cmyk(uint8_t *rgb, const uint8_t *cmyk, size_t n);

/* 256 colours over white. Zero-initialise: missing entries are black, as in Pillow. */
struct palette {
    uint8_t rgb[256][3];
};
void palette_grey(struct palette *p); /* for a file without a palette */
void palette_set(struct palette *p, unsigned i, uint8_t red, uint8_t green, uint8_t blue);
/* Call after the entry's colour was set. */
void palette_blend(struct palette *p, unsigned i, uint8_t alpha);
void rgb_from_palette(uint8_t *rgb, const uint8_t *index, size_t n, const struct palette *p);

/* The decoders, one file each. The canvas has the size read by image_sniff(); a file with another
 * size is refused. ERR_VALIDATION: broken; ERR_SYSTEM: out of memory. */
int png_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int jpeg_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int webp_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
int gif_file_decode(const uint8_t *bytes, size_t n, const struct canvas *c, struct err *e);
/* A little-endian number of up to four bytes. */
static inline uint32_t little(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}
/* Runs the decoder of info->format; `info` is from image_sniff() of the same bytes, with
 * info->times for an animation (GIF and WebP; other formats are refused). `rgb`: as displayed,
 * image_bytes(); undefined after an error. */
int image_decode_here(const void *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                      struct err *e);
/* err_set() with ERR_VALIDATION: "the JPEG file is broken or incomplete". */
int image_broken(enum image_format f, struct err *e);

/* Orientation, 1 .. 8, of an EXIF block: a TIFF header, optionally after "Exif\0\0". 1 if absent or
 * invalid. */
uint32_t exif_orientation(const uint8_t *p, size_t n);
#endif
