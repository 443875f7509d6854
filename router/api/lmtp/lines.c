/* Framing by lines, for pipes, scripts and Unix sockets. A client that only closes its sending side
 * still gets its answers. */
#include "router/api/lmtp/lines.h"
#include "common/buf.h"
#include "common/utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CHUNK = 16 << 10 };

struct lines {
    struct wire wire;
    size_t max;
    struct buf in, out;
    size_t searched; /* bytes of `in` without a line end */
    size_t sent;     /* of `out` */
    bool skipping;   /* the rest of a line that was too long */
};

static void one_line(struct lines *w, const char *p, size_t n)
{
    const struct wire_owner *o = &w->wire.owner;
    n -= n && p[n - 1] == '\r';
    if (w->skipping)
        w->skipping = false;
    else if (n > w->max)
        o->malformed(o->arg, "the line is too long");
    else if (!utf8_valid(p, n))
        o->malformed(o->arg, "the line is not UTF-8");
    else if (n)
        o->message(o->arg, p, n);
}

/* Delivers every complete line; the remainder moves to the front. */
static void take_lines(struct lines *w)
{
    char *p = w->in.p, *end = w->in.p + w->in.len, *newline;
    char *from = p + w->searched;
    while (from < end && (newline = memchr(from, '\n', (size_t)(end - from))) && !w->wire.closing) {
        one_line(w, p, (size_t)(newline - p));
        p = from = newline + 1;
    }
    size_t left = (size_t)(end - p);
    if (left > w->max) {
        if (!w->skipping)
            w->wire.owner.malformed(w->wire.owner.arg, "the line is too long");
        w->skipping = true;
        left = 0;
    }
    if (end - left != w->in.p) /* no copy per piece of a long line */
        memmove(w->in.p, end - left, left);
    w->in.len = w->searched = left;
}

static int lines_read(struct wire *wire)
{
    struct lines *w = (struct lines *)wire;
    for (size_t got = 0; got < WIRE_SHARE;) {
        if (buf_reserve(&w->in, CHUNK) != 0)
            return -1;
        ssize_t n = recv(wire->fd, w->in.p + w->in.len, CHUNK, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        if (n == 0) {
            if (w->in.len && !w->skipping) /* the last line may lack its line end */
                one_line(w, w->in.p, w->in.len);
            w->in.len = w->searched = 0;
            wire->ended = true;
            return 0;
        }
        got += (size_t)n;
        w->in.len += (size_t)n;
        take_lines(w);
    }
    return 0;
}

/* What was sent, once it is more than half: a queue that never empties does not grow by it. */
static void drop_sent(struct lines *w)
{
    if (w->sent <= w->out.len / 2)
        return;
    w->out.len -= w->sent;
    memmove(w->out.p, w->out.p + w->sent, w->out.len);
    w->sent = 0;
}

static int lines_write(struct wire *wire)
{
    struct lines *w = (struct lines *)wire;
    while (w->sent < w->out.len) {
        ssize_t n = send(wire->fd, w->out.p + w->sent, w->out.len - w->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            drop_sent(w);
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        }
        w->sent += (size_t)n;
    }
    buf_reset(&w->out);
    w->sent = 0;
    return wire->closing ? -1 : 0;
}

static void lines_send(struct wire *wire, const char *p, size_t n)
{
    struct lines *w = (struct lines *)wire;
    buf_add(&w->out, p, n);
    buf_ch(&w->out, '\n');
    if (w->out.oom)
        wire_close(wire, WIRE_POLICY, "out of memory");
}

static void lines_close(struct wire *wire, enum wire_close code, const char *why)
{
    (void)wire, (void)code, (void)why; /* lines have no close frame */
}

static void lines_ping(struct wire *wire) { (void)wire; }

static size_t lines_queued(const struct wire *wire)
{
    const struct lines *w = (const struct lines *)wire;
    return w->out.len - w->sent;
}

static bool lines_wants_read(const struct wire *wire) { return !wire->ended && !wire->closing; }

static void lines_free(struct wire *wire)
{
    struct lines *w = (struct lines *)wire;
    buf_free(&w->in);
    buf_free(&w->out);
    free(w);
}

static const struct wire_ops ops = {lines_read, lines_write,  lines_send,       lines_close,
                                    lines_ping, lines_queued, lines_wants_read, lines_free};

struct wire *lines_new(int fd, size_t max, const struct wire_owner *owner)
{
    struct lines *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->wire = (struct wire){.ops = &ops, .fd = fd, .owner = *owner};
    w->max = max;
    return &w->wire;
}
