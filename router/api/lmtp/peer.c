/* Life cycle of a connection. */
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include "router/http/unsent.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_MS = 2000, GOODBYE_MS = 5000, PING_MS = 20000 };

static void on_message(void *arg, const char *p, size_t n) { lmtp_serve(arg, p, n); }

static void on_malformed(void *arg, const char *what) { peer_message(arg, NULL, "error", what); }

static void wait_for(struct peer *p, uint32_t interest)
{
    struct epoll_event ev = {.events = interest, .data.ptr = p};
    if (interest == p->interest)
        return;
    epoll_ctl(p->lmtp->epoll_fd, p->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, p->fd, &ev);
    p->interest = interest;
}

/* TCP_NODELAY: steps yield little data, and Nagle's algorithm would delay tokens by up to 40 ms for
 * the client's acknowledgement. Not needed for Unix sockets. */
static void set_nodelay(int fd)
{
    int on = 1, off = 0;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

struct peer *peer_new(struct lmtp *l, int fd, struct http_socket *s)
{
    struct peer *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    struct wire_owner owner = {on_message, on_malformed, p};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    set_nodelay(fd);
    p->wire = s ? ws_new(fd, s->early, s->n_early, l->max_message, &owner)
                : lines_new(fd, l->max_message, &owner);
    if (!p->wire) {
        free(p);
        return NULL;
    }
    p->lmtp = l;
    p->fd = fd;
    p->socket = s;
    p->tenant = s ? s->tenant : 0;
    p->key_id = s ? s->key_id : 0;
    p->deadline_ms = INT64_MAX;
    p->sent_ms = clock_ms();
    if ((p->next = l->peers))
        p->next->prev = p;
    l->peers = p;
    atomic_fetch_add(&l->n_peers, 1);
    wait_for(p, EPOLLIN);
    if (s && s->n_early)
        peer_event(p, EPOLLIN);
    return p;
}

size_t peer_unsent(const struct peer *p)
{
    size_t queued = p->state == PEER_OPEN ? wire_queued(p->wire) : 0;
    return queued + (size_t)unsent(p->fd);
}

void peer_free(struct peer *p)
{
    wire_free(p->wire);
    buf_free(&p->frame);
    buffers_free(&p->buffers);
    free(p);
}

/* Closes the descriptor at once; frees the memory when no event of this turn can refer to it. */
static void die(struct peer *p)
{
    struct lmtp *l = p->lmtp;
    if (p->state == PEER_DEAD)
        return;
    p->state = PEER_DEAD;
    prepare_abandon(p, NULL);
    stream_end_all(p, NULL);
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->socket)
        http_socket_close(p->socket);
    else
        close(p->fd);
    if (p->prev)
        p->prev->next = p->next;
    else
        l->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    atomic_fetch_sub(&l->n_peers, 1);
    p->next = l->dead;
    l->dead = p;
}

/* All data is sent. Closing with unread bytes would reset the connection, and the client might lose
 * the last items: wait for the end of its stream. */
static void linger(struct peer *p)
{
    prepare_abandon(p, NULL);
    stream_end_all(p, NULL);
    if (p->state != PEER_OPEN)
        return;
    if (p->wire->ended && !p->socket) {
        die(p);
        return;
    }
    p->state = PEER_LINGERS;
    p->deadline_ms = clock_ms() + LINGER_MS;
    shutdown(p->fd, SHUT_WR);
    wait_for(p, EPOLLIN);
}

/* While a text is tokenized, later messages wait in order, mostly in the socket. So do those of a
 * client that does not read its answers, or names models that are not loaded. */
static bool reads(const struct peer *p)
{
    return !p->preparing && p->n_loading < LMTP_LOADING && wire_queued(p->wire) <= LMTP_QUEUE &&
           wire_wants_read(p->wire);
}

static void write_some(struct peer *p)
{
    int rc = wire_write(p->wire);
    bool waits = p->streams || p->preparing || p->loading;
    /* The client has closed its sending side and has all its answers. */
    if (rc == 0 && p->wire->ended && !p->wire->closing && !waits && !wire_queued(p->wire)) {
        wire_close(p->wire, WIRE_NORMAL, "");
        rc = wire_write(p->wire);
    }
    if (rc != 0) {
        linger(p);
        return;
    }
    if (!wire_queued(p->wire))
        p->allowance = 0;
    /* epoll always reports hang-ups and errors; a non-empty set keeps the descriptor registered */
    wait_for(p, EPOLLERR | (reads(p) ? EPOLLIN : 0) | (wire_queued(p->wire) ? EPOLLOUT : 0));
}

/* ---------------------------------------------------------------- sending */

static void mark(struct peer *p)
{
    if (p->dirty)
        return;
    p->dirty = true;
    p->next_dirty = p->lmtp->dirty;
    p->lmtp->dirty = p;
}

struct buf *peer_items(struct peer *p)
{
    buf_str(&p->frame, p->frame.len ? "," : "TOKEN [");
    return &p->frame;
}

static void end_frame(struct peer *p)
{
    if (!p->frame.len)
        return;
    buf_ch(&p->frame, ']');
    if (p->frame.oom)
        wire_close(p->wire, WIRE_POLICY, "out of memory");
    else
        wire_send(p->wire, p->frame.p, p->frame.len);
    if (p->frame.cap > LMTP_FRAME / 4)
        buf_free(&p->frame);
    else
        buf_reset(&p->frame);
    p->sent_ms = clock_ms();
}

void peer_changed(struct peer *p)
{
    mark(p);
    if (p->frame.len >= LMTP_FRAME)
        end_frame(p);
}

void peer_raw_message(struct peer *p, const struct buf *item)
{
    struct buf frame = BUF_INIT;
    end_frame(p);
    buf_str(&frame, "MSG [");
    buf_add(&frame, item->p, item->len);
    buf_ch(&frame, ']');
    if (!frame.oom && !item->oom)
        wire_send(p->wire, frame.p, frame.len);
    buf_free(&frame);
    mark(p);
}

void peer_message(struct peer *p, const char *id, const char *key, const char *text)
{
    struct buf item = BUF_INIT;
    item_message(&item, id, key, text);
    peer_raw_message(p, &item);
    buf_free(&item);
}

void peer_goodbye(struct peer *p, enum wire_close code, const char *why)
{
    prepare_abandon(p, why);
    stream_end_all(p, why);
    end_frame(p);
    wire_close(p->wire, code, why);
    if (p->deadline_ms == INT64_MAX)
        p->deadline_ms = clock_ms() + GOODBYE_MS;
    mark(p);
}

/* Streams share a batch and are never delayed for a slow reader. So the unread data per client is
 * limited. */
void peer_flush(struct peer *p)
{
    p->dirty = false;
    if (p->state != PEER_OPEN)
        return;
    end_frame(p);
    write_some(p);
    if (p->state == PEER_OPEN && !p->wire->closing &&
        wire_queued(p->wire) > LMTP_QUEUE + p->allowance) {
        peer_goodbye(p, WIRE_POLICY, "the client reads too slowly");
        p->dirty = false;
        write_some(p);
    }
}

/* ---------------------------------------------------------------- events */

static void drain(struct peer *p)
{
    char waste[16384];
    ssize_t n;
    do
        n = recv(p->fd, waste, sizeof(waste), 0);
    while (n > 0);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        die(p);
}

void peer_event(struct peer *p, uint32_t events)
{
    if (p->state == PEER_DEAD)
        return;
    if (p->state == PEER_LINGERS) {
        drain(p);
        return;
    }
    if (events & EPOLLIN && reads(p) && wire_read(p->wire) != 0) {
        die(p);
        return;
    }
    if (events & (EPOLLERR | EPOLLHUP) && !(events & EPOLLIN)) {
        die(p);
        return;
    }
    mark(p); /* the messages read may have answers, or end the connection */
}

void peer_cut(struct peer *p) { die(p); }

/* A client that must go but still reads its data gets more time. */
static bool goes_on(struct peer *p, int64_t now)
{
    size_t left = peer_unsent(p);
    bool takes = left && (!p->unsent || left < p->unsent);
    p->unsent = left;
    if (takes)
        p->deadline_ms = now + LINGER_MS;
    return takes;
}

void peer_tick(struct peer *p, int64_t now)
{
    if (now >= p->deadline_ms && !goes_on(p, now)) {
        die(p);
        return;
    }
    if (p->state == PEER_OPEN && !p->wire->closing && now - p->sent_ms >= PING_MS &&
        !wire_queued(p->wire)) {
        p->sent_ms = now;
        wire_ping(p->wire); /* proxies close idle connections */
        mark(p);
    }
}
