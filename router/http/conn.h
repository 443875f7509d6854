/* conn.h - private to this folder: connections and exchanges. */
#ifndef ROUTER_HTTP_CONN_H
#define ROUTER_HTTP_CONN_H
#include "router/http/http.h"
#include "router/http/keys.h"
#include "router/http/sse.h"
#include <microhttpd.h>

enum { HTTP_MAX_CONNECTIONS = 16384, HTTP_POOL = 16384, REQUEST_ID_MAX = 64 };

struct conn { /* one TCP connection: from accept to close */
    struct conn *next, *prev;
    struct http *http;
    struct MHD_Connection *mhd;
    int fd;
    struct tls_cert *cert; /* NULL: plain */
    bool hung_up;          /* the client closed its side */
    int64_t deadline_ms;   /* INT64_MAX: none */
    struct exchange *x;    /* at most one at a time */
    bool refused_early;    /* answered before all of the body had come */

    /* linger.c: libmicrohttpd has closed it, `fd` is ours */
    bool lingers, ended; /* ended: the client sends no more */
    size_t swallowed;
};

struct exchange {
    struct http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    const struct route *route;
    char *path;
    char method[16]; /* cut where it is longer */
    char key[KEY_NAME_MAX];
    int64_t begun_ns;
    char id[REQUEST_ID_MAX + 1];
    const char *target, *target_end; /* the raw target, in libmicrohttpd's buffer; begin() only */
    bool bad_uri, ambiguous;
    bool begun;      /* headers were looked at */
    bool dispatched; /* request() was called; over() is owed */
    bool suspended;
    bool upgrade;    /* asks for a WebSocket */
    bool cut;        /* close instead of replying */
    const char *why; /* it was refused; static */
    int refusal;     /* status decided from the headers, given when the body was swallowed */
    char allow[64];  /* with 405, and of OPTIONS */
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

struct http {
    struct http_config c;
    struct MHD_Daemon *daemon;
    int listen_fd, epoll_fd, bell_fd;
    uint16_t port;
    _Atomic bool stop;
    struct conn *conns;
    struct conn *lingerers, *lingered; /* in one direction; lingered: to be freed after the turn */
    uint32_t n_conns, n_lingerers;
    _Atomic bool flushing;   /* a thread waits for http_flushed() */
    _Atomic uint32_t unsent; /* then: 1 + connections with bytes on their way */
    _Atomic int64_t busy_ns; /* http_busy() */
    int64_t warned_full_ms;  /* the log knows that there are no descriptors; 0: never */
    struct mailbox closed;   /* http_sockets */
    int64_t ticked_ms;
    uint64_t last_id; /* of requests that bring none: drawn once, then counted */
};

/* request.c */
enum MHD_Result http_access(void *cls, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_size, void **con_cls);
void *http_uri(void *cls, const char *uri, struct MHD_Connection *mhd);
void http_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                    enum MHD_RequestTerminationCode why);
/* socket.c */
bool socket_wanted(const struct exchange *x, const char *method);
int socket_judge(struct exchange *x); /* 0, or the status that refuses it */
enum MHD_Result socket_open(struct exchange *x);
void socket_close_all(struct http *h); /* those that were handed back */
/* linger.c */
/* In place of freeing a connection that is closed. False: there is nothing to wait for. */
bool linger_begin(struct conn *c);
void linger_event(struct conn *c);
void linger_tick(struct http *h, int64_t now);
void linger_count(struct http *h); /* for http_flushed() */
void linger_free(struct http *h);  /* those of which no event is pending */
void linger_end_all(struct http *h);
/* reply.c */
bool exchange_waits(const struct exchange *x); /* for its answer, or for more of it */
enum MHD_Result exchange_queue(struct exchange *x);
/* The client is not coming back: tell the owner, let libmicrohttpd close. */
void exchange_drop(struct exchange *x);
void exchange_act(struct exchange *x, unsigned sse_acts);
void exchange_refuse(struct exchange *x, int status, const char *text);
#endif
