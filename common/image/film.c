/* Walks over the blocks of a GIF and the chunks of a WebP file. */
#include "common/image/film.h"
#include "common/image/canvas.h"
#include <string.h>

enum { LEAST_MS = 10, USUAL_MS = 100 };

uint64_t film_delay(uint64_t ms) { return ms <= LEAST_MS ? USUAL_MS : ms; }

/* ---------------------------------------------------------------- GIF */
enum {
    GIF_HEADER = 13,
    GIF_DESCRIPTOR = 10,
    GIF_CONTROL = 8, /* of a graphics control extension without its terminator */
};

static size_t colours(uint8_t flags) { return flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0; }

/* The offset behind the sub-blocks that start at `at`; n + 1: they do not end. */
static size_t skip_blocks(const uint8_t *p, size_t n, size_t at)
{
    while (at < n && p[at])
        at += (size_t)p[at] + 1;
    return at < n ? at + 1 : n + 1;
}

static uint32_t walk_gif(const uint8_t *p, size_t n, uint64_t *ms)
{
    uint32_t frames = 0, delay = 0;
    size_t at = n >= GIF_HEADER ? GIF_HEADER + colours(p[10]) : n;
    while (at < n) {
        if (p[at] == '!' && n - at >= 2) {
            if (p[at + 1] == 0xf9 && n - at >= GIF_CONTROL)
                delay = little(p + at + 4, 2);
            at = skip_blocks(p, n, at + 2);
        } else if (p[at] == ',' && n - at > GIF_DESCRIPTOR) {
            at = skip_blocks(p, n, at + GIF_DESCRIPTOR + colours(p[at + 9]) + 1);
            if (at > n)
                break;
            frames++;
            *ms += film_delay(10ULL * delay);
            delay = 0;
        } else {
            break; /* the trailer */
        }
    }
    return frames;
}

/* ---------------------------------------------------------------- WebP */
enum { RIFF_HEADER = 12, RIFF_CHUNK = 8, ANMF_HEADER = 16 };

static uint32_t walk_webp(const uint8_t *p, size_t n, uint64_t *ms)
{
    uint32_t frames = 0;
    for (size_t at = RIFF_HEADER; at <= n && n - at >= RIFF_CHUNK;) {
        const size_t size = little(p + at + 4, 4), room = n - at - RIFF_CHUNK;
        if (size > room)
            break;
        const uint8_t *const body = p + at + RIFF_CHUNK;
        if (!memcmp(p + at, "ANMF", 4) && size >= ANMF_HEADER) {
            frames++;
            *ms += film_delay(little(body + 12, 3));
        } else if (!memcmp(p + at, "VP8 ", 4) || !memcmp(p + at, "VP8L", 4)) {
            frames++; /* a still image */
            *ms += USUAL_MS;
        }
        at += RIFF_CHUNK + size + (size < room && size % 2);
    }
    return frames;
}

int film_length(const void *bytes, size_t n, uint64_t *ms, struct err *e)
{
    const uint8_t *const p = bytes;
    const bool gif = n >= 6 && (!memcmp(p, "GIF87a", 6) || !memcmp(p, "GIF89a", 6));
    const bool webp = n >= RIFF_HEADER && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4);
    *ms = 0;
    if (!gif && !webp)
        return err_set(e, ERR_VALIDATION, "the video is neither frames nor a GIF or WebP file");
    if (!(gif ? walk_gif : walk_webp)(p, n, ms))
        return image_broken(gif ? IMAGE_GIF : IMAGE_WEBP, e);
    return 0;
}
