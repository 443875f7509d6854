/* Decodes pictures in this process: a line for each path on standard input, "width height sha256"
 * or "error: sentence". For tests/golden/image_oracle.py. */
#include "common/image/canvas.h"
#include "common/json/json.h"
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 256 << 20 };

static void print_digest(const struct image_info *info, const uint8_t *rgb)
{
    unsigned char out[32];
    gnutls_hash_fast(GNUTLS_DIG_SHA256, rgb, (size_t)info->width * info->height * 3, out);
    printf("%u %u ", info->width, info->height);
    for (size_t i = 0; i < sizeof(out); i++)
        printf("%02x", out[i]);
    putchar('\n');
}

int main(void)
{
    char path[4096];
    while (fgets(path, sizeof(path), stdin)) {
        struct err e = ERR_INIT;
        struct image_info info;
        size_t n = 0;
        path[strcspn(path, "\n")] = '\0';
        char *bytes = file_read(path, FILE_MAX, &n, &e);
        uint8_t *rgb = NULL;
        if (bytes && image_sniff(bytes, n, &image_default_limits, &info, &e) == 0 &&
            (rgb = malloc((size_t)info.width * info.height * 3)) &&
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
