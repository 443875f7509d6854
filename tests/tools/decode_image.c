/* Decodes pictures in this process: a line for each path on standard input, "width height sha256"
 * or "error: sentence". Behind a path and a tab may be a number of frames per second: then an
 * animation is decoded, and the number of frames comes first. For tests/golden/image_oracle.py. */
#include "common/image/canvas.h"
#include "common/image/film.h"
#include "common/json/json.h"
#include <gnutls/crypto.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 256 << 20 };

static void print_digest(const struct image_info *info, const uint8_t *rgb)
{
    unsigned char out[32];
    gnutls_hash_fast(GNUTLS_DIG_SHA256, rgb, image_bytes(info), out);
    if (info->times.frames)
        printf("%u ", info->times.frames);
    printf("%u %u ", info->width, info->height);
    for (size_t i = 0; i < sizeof(out); i++)
        printf("%02x", out[i]);
    putchar('\n');
}

/* All frames of an animation at this rate; `fps` NULL: a still image. */
static int set_times(struct image_info *info, const char *bytes, size_t n, const char *fps,
                     struct err *e)
{
    uint64_t ms;
    if (!fps)
        return 0;
    if (film_length(bytes, n, &ms, e))
        return -1;
    info->times.fps = strtod(fps, NULL);
    info->times.frames = (uint32_t)ceil((double)ms * info->times.fps / 1000);
    return 0;
}

int main(void)
{
    char path[4096];
    while (fgets(path, sizeof(path), stdin)) {
        struct err e = ERR_INIT;
        struct image_info info;
        size_t n = 0;
        path[strcspn(path, "\n")] = '\0';
        char *fps = strchr(path, '\t');
        if (fps)
            *fps++ = '\0';
        char *bytes = file_read(path, FILE_MAX, &n, &e);
        uint8_t *rgb = NULL;
        if (bytes && image_sniff(bytes, n, &image_default_limits, &info, &e) == 0 &&
            set_times(&info, bytes, n, fps, &e) == 0 && (rgb = malloc(image_bytes(&info))) &&
            image_decode_here(bytes, n, &info, rgb, &e) == 0)
            print_digest(&info, rgb);
        else
            printf("error: %s\n", e.msg);
        fflush(stdout);
        free(rgb);
        free(bytes);
    }
    return 0;
}
