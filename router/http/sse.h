/* sse.h - the buffer of one event stream to one client.
 *
 * A pure state machine: no socket, no clock, no lock, no callback. Every function returns the SSE_*
 * actions that the caller must perform. So the HTTP side (suspend, resume, close) and the scheduler
 * side (cancel) are small adapters, and the machine is tested without them.
 *
 *   FLOWING --end--> DRAINING --empty--> DONE
 *      |                |
 *      `-- gone, or more unread than `limit` --> DEAD
 *
 * Memory is bounded: events are accepted while at most `limit` bytes are unread, so a stream holds
 * at most `limit` bytes and one event. A slower client is disconnected. Its generation is never
 * delayed, because others share its batch. */
#ifndef ROUTER_HTTP_SSE_H
#define ROUTER_HTTP_SSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sse_state { SSE_FLOWING, SSE_DRAINING, SSE_DONE, SSE_DEAD };
enum sse_act {
    SSE_WAKE = 1 << 0,   /* there are bytes to read: resume the connection */
    SSE_CANCEL = 1 << 1, /* the rest will not be read: cancel the generation */
    SSE_CLOSE = 1 << 2,  /* close the connection */
};

struct sse {
    enum sse_state state;
    char *p;
    size_t off, len, cap; /* unread bytes are p[off..len) */
    size_t limit;
    bool quiet;      /* no keep-alive comments: the stream is not of events */
    int64_t last_ms; /* when bytes were last added */
};

#define SSE_KEEP_ALIVE_MS 15000

/* `limit`: most unread bytes; see sse_push(). */
void sse_init(struct sse *s, size_t limit, int64_t now_ms);
void sse_free(struct sse *s);
/* Appends whole events, framed by the caller ("data: {...}\n\n"). */
unsigned sse_push(struct sse *s, const char *p, size_t n, int64_t now_ms);
unsigned sse_end(struct sse *s);
unsigned sse_gone(struct sse *s); /* the client disconnected */
/* Call once per second. After SSE_KEEP_ALIVE_MS without data a comment line keeps proxies from
 * closing. */
unsigned sse_tick(struct sse *s, int64_t now_ms);
/* Reads up to `max` bytes. 0 with state DONE or DEAD: end of the stream. */
size_t sse_read(struct sse *s, char *out, size_t max);
#endif
