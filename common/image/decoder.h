/* decoder.h - decodes images in a separate, sandboxed process.
 *
 * The process has no network, no files and little memory: resource limits and a seccomp filter are
 * active before it reads a byte of an image. It is started on first use, and restarted after a
 * crash. Any thread may call; calls are serialised. */
#ifndef COMMON_IMAGE_DECODER_H
#define COMMON_IMAGE_DECODER_H
#include "common/image/image.h"

/* Limit of a file. The process may map this much, plus 16 bytes for each of max_pixels, plus 64
 * MiB, beyond its program. */
enum { IMAGE_FILE_MAX_BYTES = 256 << 20 };

struct image_decoder;
struct image_decoder_options {
    struct image_limits limits;
    uint32_t timeout_ms; /* per image; the process is killed after this time, in which pauses of
                            the caller's whole container do not count */
    uint32_t lifetime_s; /* CPU seconds after which the process is replaced; 0: 60 */
};
struct image_decoder *image_decoder_new(const struct image_decoder_options *o, struct err *e);
void image_decoder_free(struct image_decoder *d); /* ends the process; NULL is allowed */

/* Decodes an image, or with `times` an animation, whose pixels of all frames together are limited
 * as those of an image. `out` is zeroed after an error. ERR_VALIDATION: the image is broken, too
 * large, or crashed the process (one sentence without bytes of the image); the next call works.
 * ERR_SYSTEM: the process could not be started. */
int image_decode(struct image_decoder *d, const void *bytes, size_t n,
                 const struct image_times *times, struct image *out, struct err *e);

/* Call first in main(): does not return in the decoding process. */
void image_decoder_main(int argc, char **argv);
#endif
