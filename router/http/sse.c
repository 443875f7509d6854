#include "router/http/sse.h"
#include <stdlib.h>
#include <string.h>

static size_t unread(const struct sse *s) { return s->len - s->off; }

void sse_init(struct sse *s, size_t limit, int64_t now_ms)
{
    *s = (struct sse){.limit = limit, .last_ms = now_ms};
}

void sse_free(struct sse *s)
{
    free(s->p);
    s->p = NULL;
    s->off = s->len = s->cap = 0;
}

static unsigned die(struct sse *s)
{
    unsigned cancel = s->state == SSE_FLOWING ? SSE_CANCEL : 0;
    s->state = SSE_DEAD;
    sse_free(s);
    return cancel | SSE_CLOSE;
}

static bool reserve(struct sse *s, size_t n)
{
    if (s->off && s->off == s->len)
        s->off = s->len = 0;
    if (n <= s->cap - s->len)
        return true;
    if (s->off > s->cap / 2) { /* moves fewer bytes than were read since: linear over the stream */
        memmove(s->p, s->p + s->off, unread(s));
        s->len -= s->off;
        s->off = 0;
    }
    size_t cap = s->cap ? s->cap : 512;
    while (cap - s->len < n)
        cap *= 2;
    char *p = cap == s->cap ? s->p : realloc(s->p, cap);
    if (!p)
        return false;
    s->p = p;
    s->cap = cap;
    return true;
}

unsigned sse_push(struct sse *s, const char *p, size_t n, int64_t now_ms)
{
    if (s->state != SSE_FLOWING || n == 0)
        return 0; /* a late token of a cancelled generation */
    if (unread(s) > s->limit || !reserve(s, n))
        return die(s);
    memcpy(s->p + s->len, p, n);
    s->len += n;
    s->last_ms = now_ms;
    return SSE_WAKE;
}

unsigned sse_end(struct sse *s)
{
    if (s->state != SSE_FLOWING)
        return 0;
    s->state = unread(s) ? SSE_DRAINING : SSE_DONE;
    return SSE_WAKE;
}

unsigned sse_gone(struct sse *s)
{
    return s->state == SSE_DONE || s->state == SSE_DEAD ? 0 : die(s);
}

unsigned sse_tick(struct sse *s, int64_t now_ms)
{
    if (s->quiet || s->state != SSE_FLOWING || unread(s) || now_ms - s->last_ms < SSE_KEEP_ALIVE_MS)
        return 0;
    return sse_push(s, ":\n\n", 3, now_ms);
}

size_t sse_read(struct sse *s, char *out, size_t max)
{
    size_t n = unread(s) < max ? unread(s) : max;
    if (n)
        memcpy(out, s->p + s->off, n);
    s->off += n;
    if (s->state == SSE_DRAINING && unread(s) == 0)
        s->state = SSE_DONE;
    return n;
}
