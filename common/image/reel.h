/* reel.h - a video as the image files of its frames, in one file of our own.
 *
 * The router makes it from what a client sent, and the shard reads it: a magic number, frames per
 * second, the number of frames, then each frame's file after its length. Numbers are little-endian.
 * All frames have one size. Each is decoded as any other image, in the sandboxed process. An
 * animation has another magic number, and its own file once, which is decoded at these times. */
#ifndef COMMON_IMAGE_REEL_H
#define COMMON_IMAGE_REEL_H
#include "common/buf.h"
#include "common/image/image.h"
#include <stdbool.h>

#define REEL_MIME "video/x-reel"
enum { REEL_MAX_FRAMES = 768 }; /* of the format; a model's limit is vision_most_frames() */

struct reel_frame {
    const void *bytes;
    size_t n;
};
/* Appends the reel of frames[0 .. n), n <= REEL_MAX_FRAMES. Out of memory: see out->oom. */
void reel_write(struct buf *out, const struct reel_frame *frames, uint32_t n, double fps);
/* The same of an animation (GIF, WebP), of which `t` is shown. */
void reel_write_film(struct buf *out, const struct reel_frame *file, const struct image_times *t);

bool reel_is(const void *bytes, size_t n);
struct reel_info {
    uint32_t width, height, frames;
    double fps; /* above 0 */
};
/* Reads the headers of all frames. ERR_VALIDATION, one sentence: no reel, a frame that is no image,
 * frames of several sizes, or more pixels in all frames than the limits allow in an image. */
int reel_sniff(const void *bytes, size_t n, const struct image_limits *l, struct reel_info *out,
               struct err *e);
/* image_decode() of common/image/decoder.h, or what stands for it. */
typedef int reel_decode_fn(void *arg, const void *bytes, size_t n, const struct image_times *times,
                           struct image *out, struct err *e);
/* Decodes a reel: frame by frame, an animation at once. `out` is zeroed after an error. */
int reel_decode(reel_decode_fn *decode, void *arg, const void *bytes, size_t n, struct image *out,
                struct err *e);
#endif
