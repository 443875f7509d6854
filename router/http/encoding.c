#include "router/http/encoding.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>

enum { GZIP_WINDOW = 15 + 16, ZLIB_WINDOW = 15, STEP = 64 << 10 };

const struct encoding *encoding_of(const char *header, bool *known)
{
    static const struct encoding rows[] = {
        {"gzip", GZIP_WINDOW}, {"x-gzip", GZIP_WINDOW}, {"deflate", ZLIB_WINDOW}};
    *known = true;
    if (!header || !*header || !strcasecmp(header, "identity"))
        return NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcasecmp(header, rows[i].name))
            return &rows[i];
    *known = false;
    return NULL;
}

/* Some clients send `deflate` without zlib's header (RFC 9110, 8.4.1.2). */
static int window_of(const struct encoding *c, const unsigned char *p, size_t n)
{
    const bool bare = c->window == ZLIB_WINDOW && n >= 2 &&
                      ((p[0] & 15) != Z_DEFLATED || ((unsigned)p[0] << 8 | p[1]) % 31 != 0);
    return bare ? -c->window : c->window;
}

/* Several gzip members in a row are one text (RFC 1952, 2.2). 1: the end of the body; 0: go on. */
static int next_member(z_stream *z)
{
    if (z->avail_in == 0)
        return 1;
    return inflateReset(z) == Z_OK ? 0 : -1;
}

/* Inflates one step. 1: the end of the body; 0: go on; -1: broken, or out of memory. */
static int step(z_stream *z, struct buf *out, unsigned char *block)
{
    z->next_out = block;
    z->avail_out = STEP;
    const int rc = inflate(z, Z_NO_FLUSH);
    buf_add(out, (const char *)block, STEP - z->avail_out);
    if (out->oom || (rc != Z_OK && rc != Z_STREAM_END))
        return -1;
    return rc == Z_STREAM_END ? next_member(z) : 0;
}

int encoding_unpack(const struct encoding *c, const char *p, size_t n, size_t max, struct buf *out,
                    struct err *e)
{
    z_stream z = {.next_in = (const unsigned char *)p, .avail_in = (unsigned)n};
    unsigned char *block = n <= UINT32_MAX ? malloc(STEP) : NULL;
    int rc = 0;
    if (!block || inflateInit2(&z, window_of(c, z.next_in, n)) != Z_OK) {
        free(block);
        return err_nomem(e);
    }
    while (rc == 0 && out->len <= max)
        rc = step(&z, out, block);
    inflateEnd(&z);
    free(block);
    if (rc == 1 && out->len <= max)
        return 0;
    const bool nomem = out->oom, large = out->len > max;
    buf_free(out);
    if (nomem)
        return err_nomem(e);
    return large ? err_set(e, ERR_TOO_LARGE,
                           "Failed to buffer the request body: length limit exceeded")
                 : err_set(e, ERR_SYNTAX, "Failed to decompress the request body: not valid %s",
                           c->name);
}
