/* film.h - animated GIF and WebP files as videos: frames at a constant rate.
 *
 * Frame i of a video is what the animation shows i / fps seconds after it began. Private to this
 * folder, except for film_length(). */
#ifndef COMMON_IMAGE_FILM_H
#define COMMON_IMAGE_FILM_H
#include "common/image/image.h"
#include <stdbool.h>

/* How long an animation takes, without a decoder: the sum of its complete frames' times. Browsers'
 * rule: a frame of 10 ms or less takes 100 ms. Linear time, no allocation. ERR_VALIDATION, one
 * sentence: neither GIF nor WebP, or without a complete frame. */
int film_length(const void *bytes, size_t n, uint64_t *ms, struct err *e);
/* The time of a frame by that rule. */
uint64_t film_delay(uint64_t ms);

/* Is frame `next` of the video shown before `end_ms`? */
static inline bool film_due(const struct image_times *t, uint32_t next, double end_ms)
{
    return next < t->frames && next * 1000.0 / t->fps < end_ms;
}

/* The decoders. Each writes info->times.frames frames of [height][width][3] to `rgb`; behind the
 * end of the animation its last frame is repeated. ERR_VALIDATION: broken; ERR_SYSTEM: out of
 * memory. */
int gif_film_decode(const uint8_t *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                    struct err *e);
int webp_film_decode(const uint8_t *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                     struct err *e);
#endif
