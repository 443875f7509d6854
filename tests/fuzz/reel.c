// fuzz-sources: common/image/reel.c common/image/image.c common/image/sniff.c common/image/exif.c
// fuzz-sources: common/image/canvas.c common/image/png.c common/image/jpeg.c common/image/webp.c
// fuzz-sources: common/image/gif.c common/image/*film.c common/buf.c common/err.c common/utf8.c
#include "common/image/reel.h"
#include "tests/fuzz/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int decode(void *arg, const void *bytes, size_t n, const struct image_times *times,
                  struct image *out, struct err *e)
{
    static const struct image_limits limits = {500, 10000};
    struct image_info info;
    *out = (struct image){0};
    (void)arg;
    if (image_sniff(bytes, n, &limits, &info, e))
        return -1;
    if (times)
        info.times = *times;
    uint8_t *rgb = malloc(image_bytes(&info));
    if (!rgb || image_decode_here(bytes, n, &info, rgb, e)) {
        free(rgb);
        return rgb ? -1 : err_nomem(e);
    }
    *out = (struct image){info.width, info.height, rgb, info.times.frames, info.times.fps};
    return 0;
}

/* What is accepted is within the limits; what is decoded has the size that the header says. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct image_limits limits = {500, 10000};
    struct reel_info info;
    struct image p;
    struct err e = ERR_INIT;
    if (reel_sniff(data, n, &limits, &info, &e)) {
        fuzz_check_error(&e);
        return 0;
    }
    if (!info.frames || !info.width || !(info.fps > 0) ||
        (uint64_t)info.width * info.height * info.frames > limits.max_pixels)
        abort();
    if (reel_decode(decode, NULL, data, n, &p, &e) == 0 &&
        (p.frames != info.frames || p.width != info.width || p.height != info.height))
        abort();
    image_free(&p);
    return 0;
}
