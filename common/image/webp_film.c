/* WebP animations with libwebp's animation decoder, which composes frames. Transparent places are
 * white: the background colour of the file is a hint that viewers ignore. */
#include "common/image/canvas.h"
#include "common/image/film.h"
#include <stdlib.h>
#include <webp/demux.h>

/* A composed frame, RGBA, as frame number `i` of the video. */
static void put(const struct image_info *info, const uint8_t *rgba, uint32_t i, uint8_t *row,
                uint8_t *rgb)
{
    const struct canvas c = canvas_over(info, rgb + (size_t)i * info->width * info->height * 3);
    for (uint32_t y = 0; y < c.height; y++) {
        rgb_from_rgba(row, rgba + (size_t)y * c.width * 4, c.width);
        canvas_put(&c, y, row);
    }
}

/* libwebp's timestamps are the ends of frames, from the files' durations. */
static int play(WebPAnimDecoder *d, const struct image_info *info, uint8_t *row, uint8_t *rgb,
                struct err *e)
{
    const struct image_times *t = &info->times;
    uint8_t *rgba = NULL;
    uint64_t ms = 0;
    uint32_t next = 0;
    int end = 0, before = 0;
    while (next < t->frames && WebPAnimDecoderHasMoreFrames(d)) {
        if (!WebPAnimDecoderGetNext(d, &rgba, &end) || end < before)
            return image_broken(IMAGE_WEBP, e);
        ms += film_delay((uint64_t)(end - before));
        before = end;
        while (film_due(t, next, (double)ms))
            put(info, rgba, next++, row, rgb);
    }
    if (!rgba)
        return image_broken(IMAGE_WEBP, e);
    while (next < t->frames)
        put(info, rgba, next++, row, rgb);
    return 0;
}

int webp_film_decode(const uint8_t *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                     struct err *e)
{
    const WebPData data = {bytes, n};
    const struct canvas c = canvas_over(info, rgb);
    WebPAnimDecoderOptions options;
    WebPAnimInfo file;
    if (!WebPAnimDecoderOptionsInit(&options))
        return err_set(e, ERR_SYSTEM, "libwebp has another version than its headers");
    options.color_mode = MODE_RGBA;
    options.use_threads = 0;
    WebPAnimDecoder *d = WebPAnimDecoderNew(&data, &options);
    if (!d)
        return image_broken(IMAGE_WEBP, e);
    uint8_t *row = malloc((size_t)c.width * 3);
    int rc = row ? 0 : err_nomem(e);
    if (rc == 0 && (!WebPAnimDecoderGetInfo(d, &file) || file.canvas_width != c.width ||
                    file.canvas_height != c.height))
        rc = image_broken(IMAGE_WEBP, e);
    if (rc == 0)
        rc = play(d, info, row, rgb, e);
    free(row);
    WebPAnimDecoderDelete(d);
    return rc;
}
