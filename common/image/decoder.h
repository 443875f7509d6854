/* decoder.h - pictures decoded in another process.
 *
 * The process has no network, no files and little memory: resource limits and a seccomp filter
 * hold before it reads a byte of a picture. It is started when it is first needed, and again after
 * it died. Any thread may call; calls take turns. */
#ifndef COMMON_IMAGE_DECODER_H
#define COMMON_IMAGE_DECODER_H
#include "common/image/image.h"

/* Of a file, whatever its picture's size. The process may map this much, 16 bytes for each of
 * max_pixels, and 64 MiB, beyond its program. */
enum { IMAGE_FILE_MAX_BYTES = 256 << 20 };

struct image_decoder;
struct image_decoder_options {
    struct image_limits limits;
    uint32_t timeout_ms; /* of one picture; the process is killed when it takes longer */
    uint32_t lifetime_s; /* of processor time, then a fresh process takes over; 0: 60 */
};
struct image_decoder *image_decoder_new(const struct image_decoder_options *o, struct err *e);
void image_decoder_free(struct image_decoder *d); /* ends the process; NULL is fine */

/* `out` is zeros after an error.
 * ERR_VALIDATION: the picture is broken, or too large, or ended the process (one sentence, none of
 * its bytes). The next call works. ERR_SYSTEM: no process could be made. */
int image_decode(struct image_decoder *d, const void *bytes, size_t n, struct image *out,
                 struct err *e);

/* To be called first in main(): does not return in the decoding process itself. */
void image_decoder_main(int argc, char **argv);
#endif
