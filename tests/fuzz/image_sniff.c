// fuzz-sources: common/image/image.c common/image/sniff.c common/image/exif.c common/image/canvas.c
// fuzz-sources: common/image/png.c common/image/jpeg.c common/image/webp.c common/image/gif.c
// fuzz-sources: common/image/*film.c common/err.c common/utf8.c
#include "tests/fuzz/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What is accepted is within the limits. The bytes are an EXIF block, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct image_limits limits = {5000, 1000000};
    struct image_info info = {0};
    struct err e = ERR_INIT;
    const uint32_t orientation = exif_orientation(data, n);
    if (orientation < 1 || orientation > 8)
        abort();
    if (image_sniff(data, n, &limits, &info, &e)) {
        fuzz_check_error(&e);
        return 0;
    }
    if (info.format == IMAGE_UNKNOWN || !info.width || !info.height || info.width > 5000 ||
        info.height > 5000 || (uint64_t)info.width * info.height > limits.max_pixels ||
        info.orientation < 1 || info.orientation > 8)
        abort();
    return 0;
}
