/* read.h - one picture from what a body names. Private to router/media. */
#ifndef ROUTER_MEDIA_READ_H
#define ROUTER_MEDIA_READ_H
#include "router/media/media.h"

/* The file, its size, digest and plan, into `out` (its list and its url are the caller's);
 * `max_bytes` and `max_pixels` are what the request has left. out->bytes are malloc's. The words of
 * an error are those of q's protocol. */
int media_read(const struct media *m, const struct ask *q, const struct ask_image *s,
               size_t max_bytes, uint64_t max_pixels, struct medium *out, struct err *e);
#endif
