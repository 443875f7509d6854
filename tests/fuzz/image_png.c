// fuzz-sources: common/image/image.c common/image/sniff.c common/image/exif.c common/image/canvas.c
// fuzz-sources: common/image/png.c common/image/jpeg.c common/image/webp.c common/image/gif.c
// fuzz-sources: common/image/*film.c common/err.c common/utf8.c
#include "tests/fuzz/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_decode(IMAGE_PNG, data, n);
    return 0;
}
