#include "router/http/encoding.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

/* ZSTD_WINDOW_LOG: 8 MiB, the most that RFC 9659 allows in a body. */
enum { GZIP_WINDOW = 15 + 16, ZLIB_WINDOW = 15, ZSTD_WINDOW_LOG = 23, STEP = 64 << 10 };

/* What a decoder ends with. MORE: the body became longer than `max` before its end. */
enum outcome { WHOLE, MORE, BROKEN, NO_MEMORY };
struct job {
    const char *p;
    size_t n, max;
    struct buf *out;
    char *block; /* [STEP] */
};
struct encoding {
    const char *name;
    enum outcome (*unpack)(const struct job *j);
};

/* Some clients send `deflate` without zlib's header (RFC 9110, 8.4.1.2). */
static int deflate_window(const struct job *j)
{
    const unsigned char *p = (const unsigned char *)j->p;
    const bool bare = j->n >= 2 && ((p[0] & 15) != Z_DEFLATED || ((unsigned)p[0] << 8 | p[1]) % 31);
    return bare ? -ZLIB_WINDOW : ZLIB_WINDOW;
}

/* Several gzip members in a row are one text (RFC 1952, 2.2). 1: the end of the body; 0: go on. */
static int next_member(z_stream *z)
{
    if (z->avail_in == 0)
        return 1;
    return inflateReset(z) == Z_OK ? 0 : -1;
}

/* Inflates one step. 1: the end of the body; 0: go on; -1: broken. */
static int inflate_step(z_stream *z, const struct job *j)
{
    z->next_out = (unsigned char *)j->block;
    z->avail_out = STEP;
    const int rc = inflate(z, Z_NO_FLUSH);
    buf_add(j->out, j->block, STEP - z->avail_out);
    if (rc != Z_OK && rc != Z_STREAM_END)
        return -1;
    return rc == Z_STREAM_END ? next_member(z) : 0;
}

static enum outcome inflate_all(const struct job *j, int window)
{
    z_stream z = {.next_in = (const unsigned char *)j->p, .avail_in = (unsigned)j->n};
    int rc = 0;
    if (j->n > UINT32_MAX || inflateInit2(&z, window) != Z_OK)
        return NO_MEMORY;
    while (rc == 0 && j->out->len <= j->max && !j->out->oom)
        rc = inflate_step(&z, j);
    inflateEnd(&z);
    return rc == 0 ? MORE : rc == 1 ? WHOLE : BROKEN;
}

static enum outcome unpack_gzip(const struct job *j) { return inflate_all(j, GZIP_WINDOW); }
static enum outcome unpack_deflate(const struct job *j)
{
    return inflate_all(j, deflate_window(j));
}

/* Frames in a row are one text (RFC 8878, 3.1), as members of gzip. */
static enum outcome unpack_zstd(const struct job *j)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();
    ZSTD_inBuffer in = {j->p, j->n, 0};
    size_t left = 1; /* 0: at the end of a frame; else an error, or what the frame still needs */
    bool full = true;
    if (!d || ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG))) {
        ZSTD_freeDCtx(d);
        return NO_MEMORY;
    }
    while ((in.pos < in.size || (left && full)) && !ZSTD_isError(left) && j->out->len <= j->max &&
           !j->out->oom) {
        ZSTD_outBuffer out = {j->block, STEP, 0};
        left = ZSTD_decompressStream(d, &out, &in);
        full = out.pos == out.size;
        buf_add(j->out, j->block, out.pos);
    }
    ZSTD_freeDCtx(d);
    if (ZSTD_isError(left))
        return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? NO_MEMORY : BROKEN;
    if (j->out->len > j->max)
        return MORE;
    return left == 0 && in.pos == in.size ? WHOLE : BROKEN;
}

const struct encoding *encoding_of(const char *header, bool *known)
{
    static const struct encoding rows[] = {{"gzip", unpack_gzip},
                                           {"x-gzip", unpack_gzip},
                                           {"deflate", unpack_deflate},
                                           {"zstd", unpack_zstd}};
    *known = true;
    if (!header || !*header || !strcasecmp(header, "identity"))
        return NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcasecmp(header, rows[i].name))
            return &rows[i];
    *known = false;
    return NULL;
}

int encoding_unpack(const struct encoding *c, const char *p, size_t n, size_t max, struct buf *out,
                    struct err *e)
{
    const struct job j = {p, n, max, out, malloc(STEP)};
    enum outcome end = j.block ? c->unpack(&j) : NO_MEMORY;
    free(j.block);
    if (out->oom)
        end = NO_MEMORY;
    else if (end == WHOLE && out->len > max)
        end = MORE;
    if (end == WHOLE)
        return 0;
    buf_free(out);
    if (end == NO_MEMORY)
        return err_nomem(e);
    return end == MORE ? err_set(e, ERR_TOO_LARGE,
                                 "Failed to buffer the request body: length limit exceeded")
                       : err_set(e, ERR_SYNTAX,
                                 "Failed to decompress the request body: not valid %s", c->name);
}
