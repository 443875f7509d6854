/* image.h - decodes untrusted image files to rows of 8-bit RGB.
 *
 * PNG, JPEG, WebP and GIF (first frame). Conversion follows Pillow: EXIF orientation applied, alpha
 * blended over white, palettes and grey expanded, 16 bits truncated to the high byte, CMYK as Adobe
 * writes it (docs/decisions/images.md). image_sniff() reads headers only; image_decode() runs the
 * decoders in a separate process (decoder.h), never in the caller's. */
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

/* What is decoded of an animation: frame i as it is shown i / fps seconds after the beginning. */
struct image_times {
    uint32_t frames; /* 0: a still image, of which fps is not used */
    double fps;
};
struct image_info {
    enum image_format format;
    uint32_t width, height;   /* as displayed: after the EXIF orientation */
    uint32_t orientation;     /* 1 .. 8 */
    struct image_times times; /* image_sniff() leaves 0 frames */
};
/* Bytes of RGB. */
static inline size_t image_bytes(const struct image_info *i)
{
    return (size_t)i->width * i->height * 3 * (i->times.frames ? i->times.frames : 1);
}
/* Reads format and size from the file's header, ignoring its name. Allocates nothing.
 * ERR_VALIDATION, one sentence, if it is no image in one of the four formats, or exceeds the
 * limits. */
int image_sniff(const void *bytes, size_t n, const struct image_limits *l, struct image_info *out,
                struct err *e);

struct image {
    uint32_t width, height;
    uint8_t *rgb; /* [height][width][3]; of a video [frames][height][width][3]; free() */
    uint32_t frames;
    double fps; /* frames a second of a video; an image has no frames and no fps */
};
void image_free(struct image *p);
/* 64 bits of SHA-256 over width, height and pixels, and a video's frames and fps: equal images have
 * equal digests. Never 0. */
uint64_t image_digest(const struct image *p);
#endif
