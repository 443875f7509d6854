/* http.h - HTTP/1.1 on one port: one thread, one epoll, libmicrohttpd for the grammar.
 *
 * The loop owns every connection and everything that hangs on one. It waits in its own epoll, on
 * libmicrohttpd's descriptor, on one eventfd (http_wake(), any thread) and on the hang-up of every
 * socket: libmicrohttpd itself never notices that the client of a suspended connection has left,
 * and its own epoll thread stalls when 128 events are pending.
 *
 * What is refused here, before any route: bodies over the limit (413), missing or wrong keys (401),
 * unknown paths (404) and methods (405), POST without JSON (415), ambiguous heads
 * (router/http/head.h) and NUL in the path (400), and clients that take too long to say what they
 * want (closed). */
#ifndef ROUTER_HTTP_HTTP_H
#define ROUTER_HTTP_HTTP_H
#include "common/buf.h"
#include "common/err.h"
#include "common/mailbox.h"
#include <stdbool.h>
#include <stdint.h>

struct keys; /* router/http/keys.h */
struct tls;  /* router/http/tls.h */

struct http;
struct http_socket;
struct exchange; /* one request and its reply; belongs to the loop thread */
struct route;

struct http_events { /* all are called on the loop thread */
    /* The request is complete: reply now or later. */
    void (*request)(void *arg, struct exchange *x);
    /* The exchange has ended (`sent`) or the client has left: forget x. Called once for each x that
     * request() saw. */
    void (*over)(void *arg, struct exchange *x, bool sent);
    /* A request that request() never saw has ended: it was refused, became a WebSocket, or never
     * came to its end (exchange_status() is 0). For the accounting; NULL: there is none. */
    void (*aside)(void *arg, const struct exchange *x);
    void (*wake)(void *arg); /* after http_wake() */
    /* A WebSocket was opened on `/` or `/lmtp`: it is the receiver's until http_socket_close().
     * NULL: none are. */
    void (*socket)(void *arg, struct http_socket *s);
};

/* A connection that speaks HTTP no more. */
struct http_socket {
    struct mail mail; /* the holder's; http_socket_close() takes it back */
    int fd;
    const void *early; /* bytes that came behind the request */
    size_t n_early;
    uint64_t tenant; /* whose account it is on (gen_request) */
    uint64_t key_id; /* as exchange_key_id() */
    struct http *http;
    void *handle;
};
void http_socket_close(struct http_socket *s); /* any thread; frees it, and closes the descriptor */

struct http_config {
    const char *hostname;    /* address or name; "::" also takes IPv4 */
    uint16_t port;           /* 0: any free one */
    size_t max_body;         /* bytes */
    struct tls *tls;         /* NULL: plain HTTP; lives as long as the loop */
    const struct keys *keys; /* NULL, or none in it: open to all */
    char *const *origins;    /* for CORS; none: all */
    uint32_t n_origins;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms; /* 0: 30 s, 60 s, 75 s */
    size_t stream_limit;                                          /* unread bytes; 0: 1 MB */
    struct http_events events;
    void *arg;
};

/* Binds and listens: an occupied port is reported here. */
struct http *http_new(const struct http_config *c, struct err *e);
uint16_t http_port(const struct http *h);
void http_run(struct http *h);  /* the loop; returns after http_stop() */
void http_wake(struct http *h); /* any thread, also signal handlers */
/* Have the clients acknowledged all that was answered, or gone? Any thread; ask again and again,
 * from when the last answer was given. Before the process ends: with a container its network goes
 * too, and what the kernel still holds. */
bool http_flushed(struct http *h);
/* For a watchdog: since when the loop's turn has been running; 0: it waits. */
const _Atomic int64_t *http_busy(const struct http *h);
struct http_counts { /* loop thread */
    uint32_t connections, lingering;
};
struct http_counts http_counts(const struct http *h);
/* Any thread: leave the loop. Connections still open are cut off. */
void http_stop(struct http *h);
void http_free(struct http *h); /* after http_run() has returned */

/* Whom a request is counted for: the one that a gateway names (the Gateway API's header), else the
 * key it came with; 0: no key. *named: by a gateway. */
uint64_t exchange_tenant(const struct exchange *x, bool *named);
/* Did it come from a loopback address, and not through a proxy that says so? */
bool exchange_local(const struct exchange *x);
/* One number for each holder of a key; 0: it came without. Unlike the tenant, which clients may
 * name, it was checked. */
uint64_t exchange_key_id(const struct exchange *x);
const char *exchange_path(const struct exchange *x);    /* NULL: not known yet */
const char *exchange_method(const struct exchange *x);  /* "": not known yet */
int exchange_status(const struct exchange *x);          /* 0: nothing was answered */
const char *exchange_refusal(const struct exchange *x); /* why it was refused; NULL: it was not */
int64_t exchange_begun_ns(const struct exchange *x);    /* when its first line was read */
/* SHA-256 of the key it came with, in hex; "": it came without. Unlike a name, which follows from
 * the order of a list, it stays the same key's. */
enum { EXCHANGE_DIGEST = 65 };
void exchange_key_digest(const struct exchange *x, char out[EXCHANGE_DIGEST]);
const char *exchange_argument(const struct exchange *x,
                              const char *name); /* of the query; or NULL */
/* What logs may call the key it came with; "": none. */
const char *exchange_key(const struct exchange *x);
const struct route *exchange_route(const struct exchange *x);
const char *exchange_header(const struct exchange *x, const char *name); /* NULL: absent */
const char *exchange_id(const struct exchange *x); /* x-request-id, the client's or ours */
struct buf exchange_take_body(struct exchange *x); /* caller frees */
void exchange_set_user(struct exchange *x, void *user);
void *exchange_user(const struct exchange *x);

/* A response header; before exchange_reply() or exchange_stream(). */
void exchange_add(struct exchange *x, const char *name, const char *value);
/* The whole reply. Takes the bytes of `body` (which is empty afterwards; NULL: none). */
void exchange_reply(struct exchange *x, int status, const char *type, struct buf *body);
/* Start an event stream (status 200), then push whole events, then end it. A client that falls too
 * far behind is cut off: over() follows. */
void exchange_stream(struct exchange *x);
void exchange_push(struct exchange *x, const char *p, size_t n);
void exchange_end(struct exchange *x);
#endif
