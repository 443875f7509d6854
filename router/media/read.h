/* read.h - reads one image named in a body. Private to router/media. */
#ifndef ROUTER_MEDIA_READ_H
#define ROUTER_MEDIA_READ_H
#include "router/media/media.h"

/* Reads file, size, digest and plan into `out`; its list and url are the caller's. `max_bytes` and
 * `max_pixels`: what the request has left. out->bytes are malloc'ed. Error messages are those of
 * q's protocol. */
int media_read(const struct media *m, const struct ask *q, const struct ask_image *s,
               size_t max_bytes, uint64_t max_pixels, struct medium *out, struct err *e);
/* Part of it: does the URL of a video have the files of its frames? */
bool media_has_frames(const struct ask_image *s);
/* Then: the frames of a video's data URL, as a reel (common/image/reel.h). Before any is
 * decoded, their number is compared with `most_frames`, at most REEL_MAX_FRAMES. */
int media_read_video(const struct ask_image *s, uint32_t most_frames, size_t max_bytes,
                     struct medium *out, struct err *e);
/* Otherwise the file in `out`, which is replaced by the reel of that animation: with the frames
 * that it shows at every 1 / s->fps seconds. ERR_VALIDATION: it is none (MP4 ..), or too long. */
int media_read_film(const struct ask_image *s, uint32_t most_frames, struct medium *out,
                    struct err *e);
#endif
