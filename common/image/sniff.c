/* Reads the headers of the four formats without a decoder: no decoder runs before the size is
 * known. */
#include "common/image/canvas.h"
#include <string.h>

/* Output of a format's reader: the size as stored. 0: ok; -1: broken. */
struct header {
    uint32_t width, height;
    uint32_t orientation;
};

static uint32_t big(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* ---------------------------------------------------------------- PNG */
enum { PNG_SIGNATURE = 8, PNG_FRAME = 12 /* length, type, checksum */, PNG_IHDR = 13 };

static int read_png(const uint8_t *p, size_t n, struct header *h)
{
    size_t at = PNG_SIGNATURE;
    if (n < at + PNG_FRAME + PNG_IHDR || big(p + at, 4) != PNG_IHDR ||
        memcmp(p + at + 4, "IHDR", 4) != 0)
        return -1;
    h->width = big(p + at + 8, 4);
    h->height = big(p + at + 12, 4);
    while (n - at >= PNG_FRAME) {
        const size_t size = big(p + at, 4);
        if (size > n - at - PNG_FRAME || !memcmp(p + at + 4, "IEND", 4))
            break;
        if (!memcmp(p + at + 4, "eXIf", 4)) {
            h->orientation = exif_orientation(p + at + 8, size);
            break;
        }
        at += PNG_FRAME + size;
    }
    return 0;
}

/* ---------------------------------------------------------------- JPEG */
enum { JPEG_SCAN = 0xda, JPEG_END = 0xd9, JPEG_APP1 = 0xe1, JPEG_TEM = 0x01 };

static bool is_frame_header(unsigned marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool is_bare(unsigned marker) { return marker == JPEG_TEM || (marker & 0xf8) == 0xd0; }

/* Segments up to the first scan. Bytes between segments are skipped, as decoders do. */
static int read_jpeg(const uint8_t *p, size_t n, struct header *h)
{
    bool exif = false;
    for (size_t at = 2; n - at >= 4;) {
        if (p[at] != 0xff || p[at + 1] == 0xff || p[at + 1] == 0) {
            at++;
            continue;
        }
        const unsigned marker = p[at + 1];
        const size_t size = big(p + at + 2, 2);
        if (marker == JPEG_SCAN || marker == JPEG_END)
            break;
        at += 2;
        if (is_bare(marker))
            continue;
        if (size < 2 || size > n - at)
            break;
        if (is_frame_header(marker) && !h->width && size >= 8) {
            h->height = big(p + at + 3, 2);
            h->width = big(p + at + 5, 2);
        } else if (marker == JPEG_APP1 && !exif && size >= 8 && !memcmp(p + at + 2, "Exif\0", 6)) {
            exif = true;
            h->orientation = exif_orientation(p + at + 2, size - 2);
        }
        at += size;
    }
    return h->width ? 0 : -1;
}

/* ---------------------------------------------------------------- WebP */
enum { RIFF_HEADER = 12, RIFF_CHUNK = 8 };

static int read_webp_size(const uint8_t *type, const uint8_t *p, size_t n, struct header *h)
{
    if (!memcmp(type, "VP8X", 4) && n >= 10) {
        h->width = little(p + 4, 3) + 1;
        h->height = little(p + 7, 3) + 1;
    } else if (!memcmp(type, "VP8L", 4) && n >= 5 && p[0] == 0x2f) {
        const uint32_t bits = little(p + 1, 4);
        h->width = (bits & 0x3fff) + 1;
        h->height = (bits >> 14 & 0x3fff) + 1;
    } else if (!memcmp(type, "VP8 ", 4) && n >= 10 && !memcmp(p + 3, "\x9d\x01\x2a", 3)) {
        h->width = little(p + 6, 2) & 0x3fff;
        h->height = little(p + 8, 2) & 0x3fff;
    } else {
        return -1;
    }
    return 0;
}

static int read_webp(const uint8_t *p, size_t n, struct header *h)
{
    size_t at = RIFF_HEADER;
    if (n < at + RIFF_CHUNK || read_webp_size(p + at, p + at + RIFF_CHUNK, n - at - RIFF_CHUNK, h))
        return -1;
    if (memcmp(p + at, "VP8X", 4) != 0)
        return 0;
    while (n - at >= RIFF_CHUNK) {
        const size_t size = little(p + at + 4, 4), room = n - at - RIFF_CHUNK;
        if (size > room)
            break;
        if (!memcmp(p + at, "EXIF", 4)) {
            h->orientation = exif_orientation(p + at + RIFF_CHUNK, size);
            break;
        }
        at += RIFF_CHUNK + size + (size < room && size % 2);
    }
    return 0;
}

/* ---------------------------------------------------------------- GIF */
enum { GIF_HEADER = 13, GIF_EXTENSION = '!', GIF_IMAGE = ',', GIF_DESCRIPTOR = 10 };

static size_t gif_colours(uint8_t flags)
{
    return flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0;
}

/* The offset after the blocks that start at `at`; n: they do not end. */
static size_t gif_skip_blocks(const uint8_t *p, size_t n, size_t at)
{
    while (at < n && p[at])
        at += (size_t)p[at] + 1;
    return at < n ? at + 1 : n;
}

/* A larger first frame extends the canvas, as in Pillow. */
static int read_gif(const uint8_t *p, size_t n, struct header *h)
{
    if (n < GIF_HEADER)
        return -1;
    h->width = little(p + 6, 2);
    h->height = little(p + 8, 2);
    size_t at = GIF_HEADER + gif_colours(p[10]);
    while (at < n && n - at >= 2 && p[at] == GIF_EXTENSION)
        at = gif_skip_blocks(p, n, at + 2);
    if (at >= n || n - at < GIF_DESCRIPTOR || p[at] != GIF_IMAGE)
        return -1;
    const uint32_t right = little(p + at + 1, 2) + little(p + at + 5, 2);
    const uint32_t below = little(p + at + 3, 2) + little(p + at + 7, 2);
    h->width = right > h->width ? right : h->width;
    h->height = below > h->height ? below : h->height;
    return 0;
}

/* ---------------------------------------------------------------- all */
static enum image_format format_of(const uint8_t *p, size_t n)
{
    if (n >= PNG_SIGNATURE && !memcmp(p, "\x89PNG\r\n\x1a\n", PNG_SIGNATURE))
        return IMAGE_PNG;
    if (n >= 3 && !memcmp(p, "\xff\xd8\xff", 3))
        return IMAGE_JPEG;
    if (n >= RIFF_HEADER && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4))
        return IMAGE_WEBP;
    if (n >= 6 && (!memcmp(p, "GIF87a", 6) || !memcmp(p, "GIF89a", 6)))
        return IMAGE_GIF;
    return IMAGE_UNKNOWN;
}

/* Formats that are not read, by the bytes at an offset, so that a refusal can name them. SVG is
 * text, which may begin otherwise. */
static const char *name_of_other(const uint8_t *p, size_t n)
{
    static const struct {
        size_t at, n;
        const char *bytes, *name;
    } others[] = {
        {4, 8, "ftypavif", "AVIF"},
        {4, 8, "ftypavis", "AVIF"},
        {4, 8, "ftypheic", "HEIC"},
        {4, 8, "ftypheix", "HEIC"},
        {4, 8, "ftyphevc", "HEIC"},
        {4, 8, "ftypmif1", "HEIF"},
        {4, 8, "ftypmsf1", "HEIF"},
        {0, 4, "II*\0", "TIFF"},
        {0, 4, "MM\0*", "TIFF"},
        {0, 2, "BM", "BMP"},
        {0, 4, "<svg", "SVG"},
        {0, 5, "<?xml", "XML"},
        {0, 4, "\0\0\1\0", "ICO"},
        {0, 2, "\xff\x0a", "JPEG XL"},
        {4, 8, "JXL \r\n\x87\n", "JPEG XL"},
        {4, 8, "jP  \r\n\x87\n", "JPEG 2000"},
        {0, 5, "%PDF-", "PDF"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (n >= others[i].at + others[i].n &&
            !memcmp(p + others[i].at, others[i].bytes, others[i].n))
            return others[i].name;
    return NULL;
}

static int refuse_unknown(const uint8_t *p, size_t n, struct err *e)
{
    const char *name = name_of_other(p, n);
    if (!name)
        return err_set(e, ERR_VALIDATION, "the image is not a PNG, JPEG, WebP or GIF file");
    return err_set(e, ERR_VALIDATION, "the image is in %s format, not PNG, JPEG, WebP or GIF",
                   name);
}

static int check_limits(const struct image_limits *l, const struct header *h, struct err *e)
{
    if (h->width > l->max_side || h->height > l->max_side)
        return err_set(e, ERR_VALIDATION,
                       "the image has %u x %u pixels, and neither side may have more than %u",
                       h->width, h->height, l->max_side);
    if ((uint64_t)h->width * h->height > l->max_pixels)
        return err_set(e, ERR_VALIDATION,
                       "the image has %u x %u pixels, more than the %llu that are allowed",
                       h->width, h->height, (unsigned long long)l->max_pixels);
    return 0;
}

int image_sniff(const void *bytes, size_t n, const struct image_limits *l, struct image_info *out,
                struct err *e)
{
    static int (*const readers[])(const uint8_t *p, size_t n,
                                  struct header *h) = {[IMAGE_PNG] = read_png,
                                                       [IMAGE_JPEG] = read_jpeg,
                                                       [IMAGE_WEBP] = read_webp,
                                                       [IMAGE_GIF] = read_gif};
    struct header h = {.orientation = 1};
    const enum image_format format = format_of(bytes, n);
    if (format == IMAGE_UNKNOWN)
        return refuse_unknown(bytes, n, e);
    if (readers[format](bytes, n, &h) || !h.width || !h.height)
        return image_broken(format, e);
    if (check_limits(l, &h, e))
        return -1;
    const bool turned = h.orientation > 4;
    *out = (struct image_info){.format = format,
                               .width = turned ? h.height : h.width,
                               .height = turned ? h.width : h.height,
                               .orientation = h.orientation};
    return 0;
}
