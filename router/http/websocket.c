/* WebSockets whose messages are requests: each text message is the body of a request of the route
 * that the handshake's route names, and each event of its answer is a message. The requests of a
 * socket are answered one after the other. Loop thread. */
#include "common/clock.h"
#include "router/http/conn.h"
#include "router/http/route.h"
#include "router/http/wire.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* WAITING: messages that wait while one is answered; then the socket is not read. */
enum { PING_MS = 20000, GOODBYE_MS = 5000, WAITING = 16 };

struct message {
    struct message *next;
    struct buf text;
};

struct websocket {
    struct websocket *next, *prev;
    struct websocket *next_dirty;
    struct http *http;
    struct http_socket *socket;
    struct exchange
        *handshake; /* libmicrohttpd keeps it, and its headers, until the socket closes */
    struct conn *conn;
    struct wire *wire;
    struct exchange *x; /* the request that is answered; NULL: none */
    struct message *waiting, **waiting_end;
    uint32_t n_waiting;
    struct exchange_shared *shared;
    size_t room; /* most unread bytes */
    uint32_t interest;
    bool dirty, dead;    /* dead: to be closed at the end of this turn */
    int64_t sent_ms;     /* when something was last sent */
    int64_t deadline_ms; /* of the closing handshake; INT64_MAX: none */
};

static void mark(struct websocket *w)
{
    if (w->dirty)
        return;
    w->dirty = true;
    w->next_dirty = w->http->dirty;
    w->http->dirty = w;
}

/* ---------------------------------------------------------------- what requests share */

struct exchange_shared *websocket_share(struct websocket *w)
{
    atomic_fetch_add(&w->shared->refs, 1);
    return w->shared;
}

const struct route *websocket_route(const struct websocket *w) { return w->handshake->route; }

void exchange_unshare(struct exchange_shared *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    if (s->free)
        s->free(s->value);
    free(s);
}

/* ---------------------------------------------------------------- answers */

static void say(struct websocket *w, const char *p, size_t n)
{
    wire_send(w->wire, p, n);
    w->sent_ms = clock_ms();
    mark(w);
}

/* An answer that is no stream is one message; an empty one is none. */
static void socket_reply(struct exchange *x, int status, const char *type, struct buf *body)
{
    (void)type;
    x->answered = true;
    x->status = status;
    if (body && body->oom)
        x->sink->drop(x);
    else if (body && body->len)
        say(x->ws, body->p, body->len);
    mark(x->ws);
    if (body)
        buf_free(body);
}

static void socket_stream(struct exchange *x, const char *type, size_t body)
{
    (void)type;
    x->ws->room = x->http->c.stream_limit + STREAM_REPEATS * body;
    x->status = 200;
    x->streaming = true;
}

/* The data of each event is a message; `p` has whole events, whose data is one line. */
static void socket_push(struct exchange *x, const char *p, size_t n)
{
    static const char data[] = "data: ";
    const char *end = p + n;
    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        const size_t line = (size_t)((line_end ? line_end : end) - p), skip = sizeof(data) - 1;
        if (line > skip && !memcmp(p, data, skip))
            say(x->ws, p + skip, line - skip);
        p += line + (line_end != NULL);
    }
}

static void socket_end(struct exchange *x)
{
    x->answered = true;
    mark(x->ws);
}

/* Notifies the owner at once. The exchange is freed at the end of the turn, since callers of this
 * turn may still use it. */
static void socket_drop(struct exchange *x)
{
    struct http *h = x->http;
    if (x->cut)
        return;
    x->cut = true;
    x->ws->dead = true;
    mark(x->ws);
    h->c.events.over(h->c.arg, x, false);
}

static const struct exchange_sink socket_sink = {socket_reply, socket_stream, socket_push,
                                                 socket_end, socket_drop};

/* ---------------------------------------------------------------- requests */

/* False: out of memory. */
static bool begin_request(struct websocket *w, struct buf *body)
{
    struct exchange *x = calloc(1, sizeof(*x)), *from = w->handshake;
    if (!x || !(x->path = strdup(from->path))) {
        free(x);
        return false;
    }
    x->sink = &socket_sink;
    x->ws = w;
    x->http = w->http;
    x->mhd = from->mhd; /* for the headers */
    x->route = from->route->messages;
    memcpy(x->method, from->method, sizeof(x->method));
    memcpy(x->key, from->key, sizeof(x->key));
    x->begun_ns = clock_ns();
    x->begun = x->dispatched = true;
    x->body = *body;
    x->received = body->len;
    *body = (struct buf)BUF_INIT;
    exchange_set_id(x, NULL);
    w->x = x;
    w->http->c.events.request(w->http->c.arg, x);
    return true;
}

static void next_request(struct websocket *w)
{
    struct message *m = w->waiting;
    if (!m || w->x || w->dead || w->wire->closing)
        return;
    if (!(w->waiting = m->next))
        w->waiting_end = &w->waiting;
    w->n_waiting--;
    w->dead |= !begin_request(w, &m->text);
    buf_free(&m->text);
    free(m);
    mark(w);
}

static void on_message(void *arg, const char *p, size_t n)
{
    struct websocket *w = arg;
    struct message *m = calloc(1, sizeof(*m));
    if (m)
        buf_add(&m->text, p, n);
    if (!m || m->text.oom) {
        free(m);
        w->dead = true;
        return;
    }
    *w->waiting_end = m;
    w->waiting_end = &m->next;
    w->n_waiting++;
}

/* The answer has been written, or the client has left. */
static void end_request(struct websocket *w, bool sent)
{
    struct exchange *x = w->x;
    if (!x)
        return;
    if (!x->cut && !sent)
        socket_drop(x);
    else if (!x->cut)
        w->http->c.events.over(w->http->c.arg, x, true);
    w->x = NULL;
    exchange_free(x);
}

/* ---------------------------------------------------------------- sockets */

static void wait_for(struct websocket *w, uint32_t interest)
{
    struct epoll_event ev = {.events = interest, .data.ptr = w->conn};
    if (interest == w->interest)
        return;
    (void)epoll_ctl(w->http->epoll_fd, w->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->socket->fd,
                    &ev);
    w->interest = interest;
}

int websocket_new(struct exchange *handshake, struct http_socket *s)
{
    struct http *h = handshake->http;
    struct websocket *w = calloc(1, sizeof(*w));
    struct wire_owner owner = {on_message, NULL, w};
    if (!w || !handshake->conn || !(w->shared = calloc(1, sizeof(*w->shared))) ||
        !(w->wire = ws_new(s->fd, s->early, s->n_early, h->c.max_body, &owner))) {
        if (w)
            free(w->shared);
        free(w);
        return -1;
    }
    atomic_init(&w->shared->refs, 1);
    (void)fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) | O_NONBLOCK);
    http_set_option(s->fd, IPPROTO_TCP, TCP_CORK, 0);
    http_set_option(s->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    w->http = h;
    w->socket = s;
    w->handshake = handshake;
    w->conn = handshake->conn;
    w->conn->ws = w;
    w->waiting_end = &w->waiting;
    w->room = h->c.stream_limit;
    w->sent_ms = clock_ms();
    w->deadline_ms = INT64_MAX;
    if ((w->next = h->websockets))
        w->next->prev = w;
    h->websockets = w;
    wait_for(w, EPOLLIN);
    if (s->n_early)
        websocket_event(w, EPOLLIN);
    return 0;
}

/* An event of this turn may still name its `conn`, which lives until libmicrohttpd closes it. */
static void die(struct websocket *w)
{
    struct http *h = w->http;
    w->dirty = true; /* it is not marked any more */
    end_request(w, false);
    for (struct message *m = w->waiting, *next; m; m = next) {
        next = m->next;
        buf_free(&m->text);
        free(m);
    }
    (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, w->socket->fd, NULL);
    w->conn->ws = NULL;
    if (w->prev)
        w->prev->next = w->next;
    else
        h->websockets = w->next;
    if (w->next)
        w->next->prev = w->prev;
    wire_free(w->wire);
    exchange_unshare(w->shared);
    http_socket_close(w->socket);
    free(w);
}

/* Messages beyond WAITING stay in the kernel. A client that leaves is noticed by EPOLLRDHUP. */
static bool reads(const struct websocket *w)
{
    return w->n_waiting < WAITING && wire_wants_read(w->wire);
}

void websocket_event(struct websocket *w, uint32_t events)
{
    mark(w);
    if (events & EPOLLIN && reads(w) && wire_read(w->wire) != 0)
        w->dead = true;
    if (events & (EPOLLERR | EPOLLHUP))
        w->dead = true;
    /* nothing is answered to a client that has closed its side */
    if (events & EPOLLRDHUP && !(events & EPOLLIN))
        w->dead = true;
}

/* A client may take long between requests, so a slow one is found by what it has not read. */
static void check_speed(struct websocket *w)
{
    if (wire_queued(w->wire) <= w->room || w->wire->closing)
        return;
    wire_close(w->wire, WIRE_POLICY, "the client reads too slowly");
    w->deadline_ms = clock_ms() + GOODBYE_MS;
    if (w->x)
        socket_drop(w->x);
    w->dead = false; /* the reason is still sent */
    (void)wire_write(w->wire);
}

/* `dirty` stays set meanwhile, so that `w` is in no list when it ends. */
static void flush(struct websocket *w)
{
    w->dead |= wire_write(w->wire) != 0;
    if (!w->dead)
        check_speed(w);
    w->dead |= w->wire->ended && !w->wire->closing && !wire_queued(w->wire);
    if (w->dead) {
        die(w);
        return;
    }
    if (w->x && (w->x->cut || (w->x->answered && !wire_queued(w->wire))))
        end_request(w, true);
    next_request(w);
    const bool queued = wire_queued(w->wire);
    wait_for(w, EPOLLRDHUP | (reads(w) ? EPOLLIN : 0) | (queued ? EPOLLOUT : 0));
    w->dirty = false;
    if (w->dead || (w->x && w->x->answered && !queued))
        mark(w);
}

void websockets_flush(struct http *h)
{
    while (h->dirty) {
        struct websocket *w = h->dirty;
        h->dirty = w->next_dirty;
        flush(w);
    }
}

void websockets_tick(struct http *h, int64_t now)
{
    for (struct websocket *w = h->websockets; w; w = w->next) {
        if (now >= w->deadline_ms) {
            w->dead = true;
            mark(w);
        } else if (now - w->sent_ms >= PING_MS && !wire_queued(w->wire)) {
            w->sent_ms = now; /* proxies close idle connections */
            wire_ping(w->wire);
            mark(w);
        }
    }
    websockets_flush(h);
}

void websockets_end(struct http *h)
{
    h->dirty = NULL;
    while (h->websockets) {
        struct websocket *w = h->websockets;
        wire_close(w->wire, WIRE_GOING_AWAY, "the server is shutting down");
        (void)wire_write(w->wire);
        die(w);
    }
}
