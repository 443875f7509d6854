/* sse.h - one streamed answer on its way to one client.
 *
 * A pure state machine: no socket, no clock, no lock, no callback. Every entry point returns the
 * SSE_* acts the caller must carry out, so that the HTTP side (suspend, resume, shut down) and the
 * engine side (cancel) stay two small adapters and the machine is tested without either.
 *
 *   FLOWING --end--> DRAINING --empty--> DONE
 *      |                |
 *      `-- gone, or more unread than `limit` --> DEAD
 *
 * Memory is bounded: events are taken while at most `limit` bytes are unread, so a stream holds at
 * most `limit` bytes and one event. A client that reads slower than that is cut off; a generation
 * is never held back for it, because others share its batch. */
#ifndef ROUTER_HTTP_SSE_H
#define ROUTER_HTTP_SSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sse_state { SSE_FLOWING, SSE_DRAINING, SSE_DONE, SSE_DEAD };
enum sse_act {
    SSE_WAKE = 1 << 0,   /* there is something to read: resume the connection */
    SSE_CANCEL = 1 << 1, /* the rest will not be read: cancel the generation */
    SSE_CLOSE = 1 << 2,  /* cut the connection */
};

struct sse {
    enum sse_state state;
    char *p;
    size_t off, len, cap; /* unread bytes are p[off..len) */
    size_t limit;
    int64_t last_ms; /* when bytes were last put in */
};

#define SSE_KEEP_ALIVE_MS 15000

void sse_init(struct sse *s, size_t limit, int64_t now_ms);
void sse_free(struct sse *s);
/* Append whole events, framed by the caller ("data: {...}\n\n"). */
unsigned sse_push(struct sse *s, const char *p, size_t n, int64_t now_ms);
unsigned sse_end(struct sse *s);
unsigned sse_gone(struct sse *s); /* the client hung up */
/* Once a second: after SSE_KEEP_ALIVE_MS of silence a comment line keeps proxies from closing. */
unsigned sse_tick(struct sse *s, int64_t now_ms);
/* Take up to `max` bytes; 0 with state DONE or DEAD: the end. */
size_t sse_read(struct sse *s, char *out, size_t max);
#endif
