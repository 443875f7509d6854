/* conn.h - private to this folder: connections and exchanges. */
#ifndef ROUTER_HTTP_CONN_H
#define ROUTER_HTTP_CONN_H
#include "router/http/http.h"
#include "router/http/keys.h"
#include "router/http/sse.h"
#include <microhttpd.h>

enum { HTTP_MAX_CONNECTIONS = 16384, HTTP_POOL = 16384, REQUEST_ID_MAX = 64 };

/* One TCP connection, from accept to close. It belongs to the loop thread. */
struct conn {
    struct conn *next, *prev;
    struct http *http;
    struct MHD_Connection *mhd;
    int fd;
    struct tls_cert *cert; /* NULL: plain HTTP */
    bool hung_up;          /* the client closed its side */
    int64_t deadline_ms;   /* INT64_MAX: none */
    struct exchange *x;    /* at most one at a time */
    bool refused_early;    /* answered before the whole body had arrived */
    struct websocket *ws;  /* websocket.c reads and writes its socket; NULL: it does not */

    /* linger.c: libmicrohttpd has closed it, and `fd` is ours */
    bool lingers, ended; /* ended: the client sends no more */
    /* bytes read and dropped since */
    size_t swallowed;
};

/* Where an answer is written: exchange_reply() and the others call these. */
struct exchange_sink {
    void (*reply)(struct exchange *x, int status, const char *type, struct buf *body);
    void (*stream)(struct exchange *x, const char *type, size_t body);
    void (*push)(struct exchange *x, const char *p, size_t n);
    void (*end)(struct exchange *x);
    void (*drop)(struct exchange *x); /* the client has disconnected */
};

/* One request and its answer. The loop thread owns it; a route uses it through exchange.h until it
 * has answered. */
struct exchange {
    const struct exchange_sink *sink;
    struct websocket *ws; /* it came as a message; NULL: as HTTP */
    struct http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    const struct route *route;
    char *path;
    char method[16]; /* truncated if longer */
    char key[KEY_NAME_MAX];
    int64_t begun_ns;
    char id[REQUEST_ID_MAX + 1];
    /* the raw target, in libmicrohttpd's buffer; during begin() only */
    const char *target, *target_end;
    bool bad_uri, ambiguous;
    bool begun;      /* the headers were checked */
    bool dispatched; /* request() was called; over() must follow */
    bool suspended;
    bool upgrade;    /* requests a WebSocket */
    bool cut;        /* close the connection instead of replying */
    const char *why; /* why it was refused; static, or `said` */
    char said[160];  /* of an unknown path: which one may be meant */
    /* status decided from the headers, sent when the body was read and dropped */
    int refusal;
    char allow[64]; /* for 405 and OPTIONS */
    uint64_t received;
    struct buf body;
    int status;
    struct MHD_Response *response;
    struct header {
        struct header *next;
        const char *name;
        char value[];
    } * headers;
    bool answered; /* exchange_reply() or exchange_end() was called */
    bool streaming;
    struct sse sse;
    void *user;
};

/* The loop: libmicrohttpd's sockets, both listening sockets, WebSockets and closed connections in
 * one epoll set. */
struct http {
    struct http_config c;
    struct MHD_Daemon *daemon;
    int listen_fd, epoll_fd, bell_fd;
    int second_fd; /* localhost: the socket of ::1, whose connections the loop accepts; -1: none */
    bool second_waits; /* until the next tick: no descriptor was free */
    uint16_t port;
    _Atomic bool stop;
    struct conn *conns;
    struct conn *lingerers, *lingered; /* singly linked; lingered: freed after the turn */
    uint32_t n_conns, n_lingerers;
    _Atomic bool flushing;   /* a thread waits for http_flushed() */
    _Atomic uint32_t unsent; /* then: 1 + connections with unsent bytes */
    _Atomic int64_t busy_ns; /* http_busy() */
    int64_t warned_full_ms;  /* when the lack of descriptors was last logged; 0: never */
    struct mailbox closed;   /* http_sockets */
    struct websocket *websockets, *dirty; /* dirty: have something to do in this turn */
    int64_t ticked_ms;
    uint64_t last_id; /* for requests without an id: drawn once, then counted */
};

/* listen.c: binds to the hostname of the configuration; sets *v6 for listen_fd. */
int http_listen(struct http *h, bool *v6, struct err *e);
/* Failures are ignored: each option is an optional improvement. */
void http_set_option(int fd, int level, int name, int value);
/* Hands the new connections of second_fd to libmicrohttpd. If no descriptor is free, they wait in
 * the queue until http_second_again(), as libmicrohttpd has it for the other socket. */
void http_accept_second(struct http *h);
void http_second_again(struct http *h);
/* request.c */
/* Takes the client's id, or makes one. NULL: none was given. */
void exchange_set_id(struct exchange *x, const char *given);
/* Frees what every exchange owns, and itself. */
void exchange_free(struct exchange *x);
/* The key of a request without the header Authorization: in `x-api-key` (Anthropic's clients) or
 * `x-goog-api-key` (Google's); for Google's routes also the query's `key`. NULL: none. */
const char *exchange_other_key(const struct exchange *x);
/* Callbacks of libmicrohttpd: parts of a request, its raw target, its end. */
enum MHD_Result http_access(void *cls, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_size, void **con_cls);
void *http_uri(void *cls, const char *uri, struct MHD_Connection *mhd);
void http_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                    enum MHD_RequestTerminationCode why);
/* socket.c */
/* Does it ask for a WebSocket that is served? Sets `route` where that has messages. */
bool socket_wanted(struct exchange *x, const char *method);
int socket_judge(struct exchange *x);            /* 0, or the status to refuse it with */
enum MHD_Result socket_open(struct exchange *x); /* answers 101 and takes the socket over */
void socket_close_all(struct http *h);           /* those that were returned */
/* websocket.c: sockets whose messages are requests (struct route, `messages`) */
/* Takes ownership of an upgraded socket of this handshake. -1: out of memory. */
int websocket_new(struct exchange *handshake, struct http_socket *s);
void websocket_event(struct websocket *w, uint32_t events);
void websockets_flush(struct http *h); /* writes what this turn queued, and goes on */
void websockets_tick(struct http *h, int64_t now);
void websockets_end(struct http *h); /* the loop has ended: closes all */
/* What its requests share; a new reference. */
struct exchange_shared *websocket_share(struct websocket *w);
const struct route *websocket_route(const struct websocket *w); /* of the handshake */
/* linger.c */
/* Takes over a closed connection instead of freeing it. False: there is nothing to wait for. */
bool linger_begin(struct conn *c);
void linger_event(struct conn *c);
void linger_tick(struct http *h, int64_t now);
void linger_count(struct http *h); /* for http_flushed() */
void linger_free(struct http *h);  /* those without pending events */
void linger_end_all(struct http *h);
/* reply.c */
extern const struct exchange_sink http_sink;
bool exchange_waits(const struct exchange *x); /* for its answer, or for more of it */
/* Gives the answer to libmicrohttpd. Only within its callbacks. */
enum MHD_Result exchange_queue(struct exchange *x);
/* The client has disconnected: notifies the owner and lets libmicrohttpd close. */
void exchange_drop(struct exchange *x);
/* Does what a function of sse.h returned (SSE_WAKE ...): resumes or drops the exchange. */
void exchange_act(struct exchange *x, unsigned sse_acts);
/* Answers for the route, which does not see the request: an error in its shape, with `text` or the
 * usual text of the status; 200 answers OPTIONS. */
void exchange_refuse(struct exchange *x, int status, const char *text);
#endif
