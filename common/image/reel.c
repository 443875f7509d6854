#include "common/image/reel.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 8 + 4, LENGTH_BYTES = 4 };
/* No image file begins with it. */
static const uint8_t magic[MAGIC_BYTES] = {0x8b, 'R', 'E', 'E', 'L', '\r', '\n', 0x1a};
static const uint8_t film_magic[MAGIC_BYTES] = {0x8b, 'F', 'I', 'L', 'M', '\r', '\n', 0x1a};

/* ---------------------------------------------------------------- numbers */

static void put(struct buf *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        buf_ch(out, (char)(v >> 8 * i));
}

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* ---------------------------------------------------------------- files */

static void put_head(struct buf *out, const uint8_t with[MAGIC_BYTES], uint32_t n, double fps)
{
    uint64_t bits;
    assert(n <= REEL_MAX_FRAMES);
    memcpy(&bits, &fps, sizeof(bits));
    buf_add(out, with, MAGIC_BYTES);
    put(out, bits, 8);
    put(out, n, 4);
}

static void put_file(struct buf *out, const struct reel_frame *f)
{
    put(out, f->n, LENGTH_BYTES);
    buf_add(out, f->bytes, f->n);
}

void reel_write(struct buf *out, const struct reel_frame *frames, uint32_t n, double fps)
{
    put_head(out, magic, n, fps);
    for (uint32_t i = 0; i < n; i++)
        put_file(out, &frames[i]);
}

void reel_write_film(struct buf *out, const struct reel_frame *file, const struct image_times *t)
{
    put_head(out, film_magic, t->frames, t->fps);
    put_file(out, file);
}

static bool is_film(const void *bytes, size_t n)
{
    return n >= MAGIC_BYTES && !memcmp(bytes, film_magic, MAGIC_BYTES);
}

bool reel_is(const void *bytes, size_t n)
{
    return (n >= MAGIC_BYTES && !memcmp(bytes, magic, MAGIC_BYTES)) || is_film(bytes, n);
}

static int broken(struct err *e)
{
    return err_set(e, ERR_VALIDATION, "the video is broken or incomplete");
}

/* The next frame of the `left` bytes at *p, which it passes. */
static int next_frame(const uint8_t **p, size_t *left, struct reel_frame *out, struct err *e)
{
    const size_t n = *left >= LENGTH_BYTES ? get(*p, LENGTH_BYTES) : 0;
    if (*left < LENGTH_BYTES || n > *left - LENGTH_BYTES)
        return broken(e);
    *out = (struct reel_frame){*p + LENGTH_BYTES, n};
    *p += LENGTH_BYTES + n;
    *left -= LENGTH_BYTES + n;
    return 0;
}

static int read_head(const uint8_t *p, size_t n, struct reel_info *out, struct err *e)
{
    *out = (struct reel_info){0};
    if (!reel_is(p, n) || n < HEAD_BYTES)
        return broken(e);
    const uint64_t bits = get(p + MAGIC_BYTES, 8);
    memcpy(&out->fps, &bits, sizeof(bits));
    out->frames = (uint32_t)get(p + MAGIC_BYTES + 8, 4);
    if (!(isfinite(out->fps) && out->fps > 0) || !out->frames)
        return broken(e);
    if (out->frames > REEL_MAX_FRAMES)
        return err_set(e, ERR_VALIDATION, "a video may have at most %d frames. Given: %u",
                       REEL_MAX_FRAMES, out->frames);
    return 0;
}

int reel_sniff(const void *bytes, size_t n, const struct image_limits *l, struct reel_info *out,
               struct err *e)
{
    const uint8_t *p = bytes;
    struct reel_frame frame;
    struct image_info info;
    if (read_head(p, n, out, e))
        return -1;
    size_t left = n - HEAD_BYTES;
    const uint32_t files = is_film(p, n) ? 1 : out->frames;
    p += HEAD_BYTES;
    for (uint32_t i = 0; i < files; i++) {
        if (next_frame(&p, &left, &frame, e) || image_sniff(frame.bytes, frame.n, l, &info, e))
            return -1;
        if (i == 0) {
            out->width = info.width;
            out->height = info.height;
        }
        if (info.width != out->width || info.height != out->height)
            return err_set(e, ERR_VALIDATION,
                           "the frames of a video have one size; one has %u x %u pixels, the first "
                           "one %u x %u",
                           info.width, info.height, out->width, out->height);
    }
    if ((uint64_t)out->width * out->height * out->frames > l->max_pixels)
        return err_set(e, ERR_VALIDATION,
                       "a video of %u frames of %u x %u pixels has more than %llu pixels",
                       out->frames, out->width, out->height, (unsigned long long)l->max_pixels);
    return left ? broken(e) : 0;
}

static int decode_film(reel_decode_fn *decode, void *arg, const uint8_t *p, size_t left,
                       const struct reel_info *info, struct image *out, struct err *e)
{
    const struct image_times times = {info->frames, info->fps};
    struct reel_frame file;
    if (next_frame(&p, &left, &file, e) || decode(arg, file.bytes, file.n, &times, out, e))
        return -1;
    if (out->width == info->width && out->height == info->height && out->frames == info->frames)
        return 0;
    image_free(out);
    return broken(e);
}

int reel_decode(reel_decode_fn *decode, void *arg, const void *bytes, size_t n, struct image *out,
                struct err *e)
{
    struct reel_info info;
    struct reel_frame frame;
    *out = (struct image){0};
    if (reel_sniff(bytes, n, &image_default_limits, &info, e))
        return -1;
    const uint8_t *p = (const uint8_t *)bytes + HEAD_BYTES;
    const size_t each = (size_t)info.width * info.height * 3;
    size_t left = n - HEAD_BYTES;
    if (is_film(bytes, n))
        return decode_film(decode, arg, p, left, &info, out, e);
    uint8_t *rgb = malloc(each * info.frames);
    int rc = rgb ? 0 : err_nomem(e);
    for (uint32_t i = 0; rc == 0 && i < info.frames; i++) {
        struct image one = {0};
        rc = next_frame(&p, &left, &frame, e) ? -1
                                              : decode(arg, frame.bytes, frame.n, NULL, &one, e);
        if (rc == 0 && (one.width != info.width || one.height != info.height))
            rc = broken(e); /* its header has another size */
        if (rc == 0)
            memcpy(rgb + i * each, one.rgb, each);
        image_free(&one);
    }
    if (rc) {
        free(rgb);
        return -1;
    }
    *out = (struct image){.width = info.width,
                          .height = info.height,
                          .rgb = rgb,
                          .frames = info.frames,
                          .fps = info.fps};
    return 0;
}
