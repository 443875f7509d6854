#include "common/image/canvas.h"
#include "common/image/film.h"
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

const struct image_limits image_default_limits = {16384, 50000000};

const char *image_mime(enum image_format f)
{
    static const char *const mime[] = {[IMAGE_UNKNOWN] = "application/octet-stream",
                                       [IMAGE_PNG] = "image/png",
                                       [IMAGE_JPEG] = "image/jpeg",
                                       [IMAGE_WEBP] = "image/webp",
                                       [IMAGE_GIF] = "image/gif"};
    return mime[f];
}

int image_broken(enum image_format f, struct err *e)
{
    static const char *const names[] = {[IMAGE_UNKNOWN] = "image",
                                        [IMAGE_PNG] = "PNG",
                                        [IMAGE_JPEG] = "JPEG",
                                        [IMAGE_WEBP] = "WebP",
                                        [IMAGE_GIF] = "GIF"};
    return err_set(e, ERR_VALIDATION, "the %s file is broken or incomplete", names[f]);
}

int image_decode_here(const void *bytes, size_t n, const struct image_info *info, uint8_t *rgb,
                      struct err *e)
{
    static int (*const decoders[])(const uint8_t *bytes, size_t n, const struct canvas *c,
                                   struct err *e) = {[IMAGE_PNG] = png_file_decode,
                                                     [IMAGE_JPEG] = jpeg_file_decode,
                                                     [IMAGE_WEBP] = webp_file_decode,
                                                     [IMAGE_GIF] = gif_file_decode};
    const struct canvas c = canvas_over(info, rgb);
    if (info->times.frames)
        return info->format == IMAGE_GIF    ? gif_film_decode(bytes, n, info, rgb, e)
               : info->format == IMAGE_WEBP ? webp_film_decode(bytes, n, info, rgb, e)
                                            : image_broken(info->format, e);
    return decoders[info->format](bytes, n, &c, e);
}

void image_free(struct image *p)
{
    free(p->rgb);
    *p = (struct image){0};
}

uint64_t image_digest(const struct image *p)
{
    uint8_t out[32], size[8];
    uint64_t digest = 0;
    gnutls_hash_hd_t h;
    for (int i = 0; i < 4; i++) {
        size[i] = (uint8_t)(p->width >> 8 * i);
        size[4 + i] = (uint8_t)(p->height >> 8 * i);
    }
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        abort();
    gnutls_hash(h, size, sizeof(size));
    if (p->frames) {
        gnutls_hash(h, &p->frames, sizeof(p->frames));
        gnutls_hash(h, &p->fps, sizeof(p->fps));
    }
    gnutls_hash(h, p->rgb, (size_t)p->width * p->height * 3 * (p->frames ? p->frames : 1));
    gnutls_hash_deinit(h, out);
    for (int i = 0; i < 8; i++)
        digest = digest << 8 | out[i];
    return digest ? digest : 1;
}
