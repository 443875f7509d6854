/* Milliseconds of decoding a picture, here and in the decoding process: the best and the median of
 * 40.
 *
 *   image [file ...]
 *
 * Defaults to TEST_DATA's vision/images/large_1280x853.jpg. The last line of a file is "image
 * <name> <here, best> <here, median> <process, best> <process, median>". */
#include "common/clock.h"
#include "common/image/canvas.h"
#include "common/image/decoder.h"
#include "common/json/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 40, FILE_MAX = 256 << 20 };

static void stop(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void decode_here(const char *bytes, size_t n)
{
    struct image_info info;
    struct err e = ERR_INIT;
    if (image_sniff(bytes, n, &image_default_limits, &info, &e))
        stop(&e);
    uint8_t *rgb = malloc((size_t)info.width * info.height * 3);
    if (image_decode_here(bytes, n, &info, rgb, &e))
        stop(&e);
    free(rgb);
}

static void decode_there(struct image_decoder *d, const char *bytes, size_t n)
{
    struct image p;
    struct err e = ERR_INIT;
    if (image_decode(d, bytes, n, NULL, &p, &e))
        stop(&e);
    image_free(&p);
}

static void measure(struct image_decoder *d, const char *path)
{
    int64_t here[RUNS], there[RUNS];
    struct err e = ERR_INIT;
    size_t n;
    char *bytes = file_read(path, FILE_MAX, &n, &e);
    if (!bytes)
        stop(&e);
    decode_there(d, bytes, n); /* starts the process */
    for (int i = 0; i < RUNS; i++) {
        const int64_t t = clock_ns();
        decode_here(bytes, n);
        here[i] = clock_ns();
        decode_there(d, bytes, n);
        there[i] = clock_ns() - here[i];
        here[i] -= t;
    }
    qsort(here, RUNS, sizeof(here[0]), by_value);
    qsort(there, RUNS, sizeof(there[0]), by_value);
    const char *name = strrchr(path, '/');
    printf("image %s %.2f %.2f %.2f %.2f\n", name ? name + 1 : path, (double)here[0] / 1e6,
           (double)here[RUNS / 2] / 1e6, (double)there[0] / 1e6, (double)there[RUNS / 2] / 1e6);
    free(bytes);
}

int main(int argc, char **argv)
{
    image_decoder_main(argc, argv);
    const struct image_decoder_options o = {.limits = image_default_limits, .timeout_ms = 60000};
    struct err e = ERR_INIT;
    char path[1024];
    const char *data = getenv("TEST_DATA");
    snprintf(path, sizeof(path), "%s/vision/images/large_1280x853.jpg", data ? data : TEST_DATA);
    FILE *f = argc < 2 ? fopen(path, "r") : NULL;
    if (argc < 2 && !f) {
        printf("skipped: no picture (%s)\n", path);
        return 0;
    }
    if (f)
        fclose(f);
    struct image_decoder *d = image_decoder_new(&o, &e);
    if (!d)
        stop(&e);
    for (int i = 1; i < argc; i++)
        measure(d, argv[i]);
    if (argc < 2)
        measure(d, path);
    image_decoder_free(d);
    return 0;
}
