/* http.h - HTTP/1.1 server on one port: one thread, one epoll, with libmicrohttpd as the parser.
 *
 * The loop owns every connection and all its state. It waits in its own epoll on libmicrohttpd's
 * descriptor, on one eventfd (http_wake(), any thread) and on the hang-up of every socket. Reason:
 * libmicrohttpd does not detect that the client of a suspended connection has disconnected, and its
 * own epoll thread stalls when 128 events are pending.
 *
 * Refused here, before any route: bodies over the limit (413), missing or wrong keys (401), unknown
 * paths (404) and methods (405), POST without JSON (415), ambiguous heads (router/http/head.h) and
 * NUL in the path (400), and clients that send their request too slowly (closed).
 *
 * A WebSocket is handed over (http_events.socket), or its messages are requests whose answers are
 * messages (struct route, `messages`): exchanges like others, one after the other. */
#ifndef ROUTER_HTTP_HTTP_H
#define ROUTER_HTTP_HTTP_H
#include "common/buf.h"
#include "common/err.h"
#include "common/thread/mailbox.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct keys; /* router/http/keys.h */
struct tls;  /* router/http/tls.h */

struct http;
struct http_socket;
struct exchange; /* one request and its reply; loop thread only */
struct route;

struct http_events { /* all are called on the loop thread */
    /* The request is complete: reply now or later. */
    void (*request)(void *arg, struct exchange *x);
    /* The exchange has ended (`sent`), or the client has disconnected: `x` must not be used again.
     * Called once for each `x` passed to request(). */
    void (*over)(void *arg, struct exchange *x, bool sent);
    /* A request not passed to request() has ended: it was refused, became a WebSocket, or was never
     * complete (exchange_status() is 0). For the access log; NULL: not called. */
    void (*aside)(void *arg, const struct exchange *x);
    void (*wake)(void *arg); /* after http_wake() */
    /* A WebSocket was opened on `/` or `/lmtp`. The receiver owns it until http_socket_close().
     * NULL: WebSockets are refused. */
    void (*socket)(void *arg, struct http_socket *s);
};

/* A connection that was upgraded from HTTP. */
struct http_socket {
    struct mail mail; /* free for use by its owner until http_socket_close() */
    int fd;
    const void *early; /* bytes received after the request */
    size_t n_early;
    uint64_t tenant; /* the account for fair queueing (gen_request) */
    uint64_t key_id; /* as exchange_key_id() */
    struct http *http;
    void *handle;
};
void http_socket_close(struct http_socket *s); /* any thread; closes the descriptor and frees `s` */

/* Characters of a prefix of paths, RFC 3986's unreserved ones. */
#define HTTP_PREFIX_CHARS "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
/* Length of a prefix of paths without slashes at its end. */
static inline size_t http_prefix_len(const char *prefix)
{
    size_t n = strlen(prefix);
    while (n && prefix[n - 1] == '/')
        n--;
    return n;
}

struct http_config {
    /* Prefix of all paths, such as "/llm": it is removed where a path has it. NULL: none. */
    const char *root_path;
    /* An address, a name, or localhost: 127.0.0.1 and ::1; "::" also accepts IPv4. */
    const char *hostname;
    uint16_t port;           /* 0: any free one */
    size_t max_body;         /* bytes */
    struct tls *tls;         /* NULL: plain HTTP; must outlive the loop */
    const struct keys *keys; /* NULL or empty: no authentication */
    bool keys_for_all;       /* routes that describe the server need a key, too */
    char *const *origins;    /* allowed CORS origins; none: all */
    uint32_t n_origins;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms; /* 0: 30 s, 60 s, 75 s */
    /* limit of unread bytes per stream; 0: 1 MB */
    size_t stream_limit;
    struct http_events events;
    void *arg;
};

/* Binds and listens. NULL: the port is in use, or another error. */
struct http *http_new(const struct http_config *c, struct err *e);
uint16_t http_port(const struct http *h);
void http_run(struct http *h);  /* runs the loop; returns after http_stop() */
void http_wake(struct http *h); /* any thread, also in signal handlers */
/* True if every client has acknowledged all answers, or has disconnected. Any thread. Poll it after
 * the last answer and before the process exits: a container's network ends with it, and so does
 * data that the kernel has not delivered. */
bool http_flushed(struct http *h);
/* For a watchdog: since when the loop has been processing events, in ns; 0: it waits. */
const _Atomic int64_t *http_busy(const struct http *h);
struct http_counts { /* loop thread */
    uint32_t connections, lingering;
};
struct http_counts http_counts(const struct http *h);
/* Any thread: leaves the loop. Open connections are closed. */
void http_stop(struct http *h);
void http_free(struct http *h); /* after http_run() has returned */

/* The account of a request: the one named by a gateway (the Gateway API's header), otherwise a hash
 * of its key; 0: no key. *named: named by a gateway. */
uint64_t exchange_tenant(const struct exchange *x, bool *named);
/* True if it came from a loopback address and not through a proxy that adds forwarding headers. */
bool exchange_local(const struct exchange *x);
/* A number per key holder; 0: no key. Unlike the tenant, which clients can name, the key was
 * verified. */
uint64_t exchange_key_id(const struct exchange *x);
/* The prefix under which the client sees the server: the proxy's X-Forwarded-Prefix, else
 * --root-path;
 * "": none. */
const char *exchange_prefix(const struct exchange *x);
const char *exchange_path(const struct exchange *x);    /* NULL: not known yet */
const char *exchange_method(const struct exchange *x);  /* "": not known yet */
int exchange_status(const struct exchange *x);          /* 0: nothing was sent */
const char *exchange_refusal(const struct exchange *x); /* why it was refused; NULL: it was not */
int64_t exchange_begun_ns(const struct exchange *x);    /* when its first line was read */
/* SHA-256 of the key, in hex; "": no key. Unlike a name, which may follow from the order of a list,
 * it is stable. */
enum { EXCHANGE_DIGEST = 65 };
void exchange_key_digest(const struct exchange *x, char out[EXCHANGE_DIGEST]);
/* of the query string; NULL: absent */
const char *exchange_argument(const struct exchange *x, const char *name);
/* The name of its key for logs; "": none. */
const char *exchange_key(const struct exchange *x);
const struct route *exchange_route(const struct exchange *x);
const char *exchange_header(const struct exchange *x, const char *name); /* NULL: absent */
const char *exchange_id(const struct exchange *x); /* x-request-id of the client, or generated */
struct buf exchange_take_body(struct exchange *x); /* caller frees */
struct encoding;                                   /* router/http/encoding.h */
/* How that body is compressed; NULL: it is not. */
const struct encoding *exchange_encoding(const struct exchange *x);
/* What the requests of one WebSocket share. Their owner sets `value` and `free`; one request at a
 * time is answered, so that no lock is needed. */
struct exchange_shared {
    _Atomic uint32_t refs; /* private */
    void *value;
    void (*free)(void *value); /* any thread, with the last reference; NULL: nothing to free */
};
/* A new reference; NULL: the request came as plain HTTP. */
struct exchange_shared *exchange_share(const struct exchange *x);
void exchange_unshare(struct exchange_shared *s); /* any thread; NULL is allowed */
/* The route that gives the shape of its errors: that of the socket, or its own. */
const struct route *exchange_shape(const struct exchange *x);
void exchange_set_user(struct exchange *x, void *user);
void *exchange_user(const struct exchange *x);

/* Adds a response header; before exchange_reply() or exchange_stream(). */
void exchange_add(struct exchange *x, const char *name, const char *value);
/* Sends the whole reply. Takes ownership of the bytes of `body`, which is empty afterwards; NULL:
 * no body. */
void exchange_reply(struct exchange *x, int status, const char *type, struct buf *body);
/* Starts a stream (status 200), then pushes whole events, then ends it. `type` NULL:
 * text/event-stream, with keep-alive comments; other types have none. A client that reads too
 * slowly is disconnected: over() follows. `body`: bytes of the request, which some protocols repeat
 * in several events at once; so many may be unread besides `stream_limit`, STREAM_REPEATS times. */
enum { STREAM_REPEATS = 4 };
void exchange_stream(struct exchange *x, const char *type, size_t body);
void exchange_push(struct exchange *x, const char *p, size_t n);
void exchange_end(struct exchange *x);
#endif
