/* image.h - a picture file of a stranger to rows of 8-bit RGB.
 *
 * PNG, JPEG, WebP and GIF (first frame). What a picture means follows Pillow's arithmetic: EXIF
 * orientation applied, alpha blended over white, palettes and grey widened, 16 bits cut to the high
 * byte, CMYK as Adobe writes it (docs/decisions/images.md). image_sniff() reads headers only;
 * image_decode() runs the decoders in a process of its own (decoder.h), never in the caller's. */
#ifndef COMMON_IMAGE_IMAGE_H
#define COMMON_IMAGE_IMAGE_H
#include "common/err.h"
#include <stddef.h>
#include <stdint.h>

enum image_format { IMAGE_UNKNOWN, IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF };
const char *image_mime(enum image_format f); /* "image/png"; static */

struct image_limits {
    uint32_t max_side;   /* either side, in pixels */
    uint64_t max_pixels; /* width * height */
};
extern const struct image_limits image_default_limits; /* 16384, 50 million */

struct image_info {
    enum image_format format;
    uint32_t width, height; /* as shown: after the EXIF orientation */
    uint32_t orientation;   /* 1 .. 8 */
};
/* What the file's own header says, whatever it is called. Allocates nothing. ERR_VALIDATION, one
 * sentence, for what is no picture of the four formats, or is beyond the limits. */
int image_sniff(const void *bytes, size_t n, const struct image_limits *l, struct image_info *out,
                struct err *e);

struct image {
    uint32_t width, height;
    uint8_t *rgb; /* [height][width][3], free() */
};
void image_free(struct image *p);
/* 64 bits of SHA-256 over width, height and pixels: equal pictures have equal digests. Never 0. */
uint64_t image_digest(const struct image *p);
#endif
