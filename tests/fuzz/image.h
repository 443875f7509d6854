/* image.h - shared by the fuzzers of image files: decoding in this process, only small images, so
 * that a run is fast. */
#ifndef TESTS_FUZZ_IMAGE_H
#define TESTS_FUZZ_IMAGE_H
#include "common/image/canvas.h"
#include "common/image/film.h"
#include <stdlib.h>
#include <string.h>

static inline void fuzz_check_error(const struct err *e)
{
    if (e->kind == ERR_NONE || !e->msg[0] || strchr(e->msg, '\n'))
        abort();
}

/* Decodes `info`. All bytes of a decoded image exist: under a sanitizer each is read. */
static inline void fuzz_pixels(const struct image_info *info, const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    volatile uint8_t sink = 0;
    const size_t size = image_bytes(info);
    uint8_t *rgb = malloc(size);
    if (image_decode_here(data, n, info, rgb, &e))
        fuzz_check_error(&e);
    else
        for (size_t i = 0; i < size; i++)
            sink = sink ^ rgb[i];
    free(rgb);
}

/* Files of another format are ignored. Of animations also some frames. */
static inline void fuzz_decode(enum image_format format, const uint8_t *data, size_t n)
{
    static const struct image_limits limits = {2000, 100000};
    struct image_info info;
    struct err e = ERR_INIT;
    uint64_t ms;
    if (image_sniff(data, n, &limits, &info, &e)) {
        fuzz_check_error(&e);
        return;
    }
    if (info.format != format)
        return;
    fuzz_pixels(&info, data, n);
    if (film_length(data, n, &ms, &e)) {
        fuzz_check_error(&e);
        return;
    }
    info.times = (struct image_times){5, ms ? 5000.0 / (double)ms : 1};
    fuzz_pixels(&info, data, n);
}
#endif
