/* wire.h - messages on a non-blocking socket.
 *
 * Framings with one interface: WebSocket text frames here, lines in LMTP. The owner polls the
 * socket. A read processes a limited share, so that one busy client does not delay others. A wire
 * does not close its socket. One thread. */
#ifndef ROUTER_HTTP_WIRE_H
#define ROUTER_HTTP_WIRE_H
#include <stdbool.h>
#include <stddef.h>

enum { WIRE_SHARE = 256 << 10 };
enum wire_close { /* RFC 6455, 7.4.1 */
                  WIRE_NORMAL = 1000,
                  WIRE_GOING_AWAY = 1001,
                  WIRE_POLICY = 1008,
};

struct wire_owner {
    void (*message)(void *arg, const char *p, size_t n); /* a whole text, valid UTF-8 */
    /* a message could not be read and was skipped */
    void (*malformed)(void *arg, const char *what);
    void *arg;
};

struct wire;
struct wire_ops {
    int (*read)(struct wire *w);
    int (*write)(struct wire *w);
    void (*send)(struct wire *w, const char *p, size_t n);
    void (*close)(struct wire *w, enum wire_close code, const char *why);
    void (*ping)(struct wire *w);
    size_t (*queued)(const struct wire *w);
    bool (*wants_read)(const struct wire *w);
    void (*free)(struct wire *w);
};
struct wire { /* common first member of each kind */
    const struct wire_ops *ops;
    int fd;
    bool ended;   /* the client sends no more; it may still read if the framing allows */
    bool closing; /* only queued data is still sent */
    struct wire_owner owner;
};

/* `early`: bytes already read from the socket; copied. `max`: longest message in bytes. NULL: out
 * of memory. */
struct wire *ws_new(int fd, const void *early, size_t n_early, size_t max,
                    const struct wire_owner *owner);

/* Reads available data and calls message() for each message. -1: the connection is over. */
static inline int wire_read(struct wire *w) { return w->ops->read(w); }
/* Sends what the socket accepts. -1: the connection is over, or closed after wire_close(). */
static inline int wire_write(struct wire *w) { return w->ops->write(w); }
/* Queues a message; wire_write() sends it. */
static inline void wire_send(struct wire *w, const char *p, size_t n)
{
    if (!w->closing)
        w->ops->send(w, p, n);
}
/* Queues a close frame. `why`: a string constant. */
static inline void wire_close(struct wire *w, enum wire_close code, const char *why)
{
    if (!w->closing)
        w->ops->close(w, code, why);
    w->closing = true;
}
static inline void wire_ping(struct wire *w) { w->ops->ping(w); }
static inline size_t wire_queued(const struct wire *w) { return w->ops->queued(w); } /* bytes */
static inline bool wire_wants_read(const struct wire *w) { return w->ops->wants_read(w); }
static inline void wire_free(struct wire *w) { w->ops->free(w); }
#endif
