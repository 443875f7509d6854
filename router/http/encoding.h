/* encoding.h - compressed bodies of requests: a row for each content coding that is taken. */
#ifndef ROUTER_HTTP_ENCODING_H
#define ROUTER_HTTP_ENCODING_H
#include "common/buf.h"
#include "common/err.h"

struct encoding;

/* The codings that are taken, for the header Accept-Encoding of a refusal. */
#define ENCODINGS "gzip, deflate, zstd"

/* Of a header Content-Encoding; `identity` and NULL have none. NULL with *known false: it is not
 * taken. */
const struct encoding *encoding_of(const char *header, bool *known);
/* Decompresses a body of at most `max` bytes into `out`, which is empty on failure. ERR_SYNTAX: it
 * is broken, or ends early. ERR_TOO_LARGE: it would be longer. Pure. */
int encoding_unpack(const struct encoding *c, const char *p, size_t n, size_t max, struct buf *out,
                    struct err *e);
#endif
