/* Connections that libmicrohttpd has finished but the network has not: answers that the client has
 * not acknowledged yet, and clients that still send.
 *
 * Closing a socket with unread bytes resets the connection, and the client may lose the answer in
 * flight. And if the network ends with the process, as in a container, data in the kernel's send
 * queue is lost; that queue cannot be queried without a descriptor. So a duplicate descriptor
 * outlives libmicrohttpd's. Loop thread only, except http_flushed(). */
#include "common/clock.h"
#include "router/http/conn.h"
#include "router/http/unsent.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINGERERS_MAX = 512, /* beyond this, connections are closed at once */
    /* as long as an answer may take (WRITE_TIMEOUT_MS); TCP_USER_TIMEOUT ends dead peers before */
    SEND_MS = 300000,
    SWALLOW_MS = 30000,    /* for a client that still sends */
    SWALLOW_MAX = 1 << 30, /* bytes */
    SHARE = 4 << 20,       /* bytes per turn */
};

static int unread(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 ? n : 0;
}

static void linger_end(struct conn *c)
{
    struct http *h = c->http;
    struct conn **at = &h->lingerers;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    h->n_lingerers--;
    (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    c->next = h->lingered; /* a pending event of this turn may still refer to it */
    h->lingered = c;
}

bool linger_begin(struct conn *c)
{
    struct http *h = c->http;
    bool sends = c->refused_early || unread(c->fd) > 0;
    if (h->n_lingerers >= LINGERERS_MAX || (!sends && unsent(c->fd) == 0))
        return false;
    int fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    /* libmicrohttpd's close() does not end the stream, because of the duplicate */
    shutdown(fd, SHUT_WR);
    c->fd = fd;
    c->mhd = NULL;
    c->lingers = true;
    c->deadline_ms = clock_ms() + (sends ? SWALLOW_MS : SEND_MS);
    c->next = h->lingerers;
    c->prev = NULL;
    h->lingerers = c;
    h->n_lingerers++;
    return true;
}

void linger_event(struct conn *c)
{
    char waste[65536];
    ssize_t n = 0;
    if (!c->mhd && c->fd < 0)
        return;
    for (size_t share = 0;
         share < SHARE && (n = recv(c->fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0;) {
        share += (size_t)n;
        c->swallowed += (size_t)n;
    }
    bool ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (c->swallowed > SWALLOW_MAX || (ended && unsent(c->fd) == 0)) {
        linger_end(c);
        c->fd = -1;
    } else if (ended) { /* it sends no more, but has unread data of ours */
        (void)epoll_ctl(c->http->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
        c->ended = true;
    }
}

static bool is_done(const struct conn *c, int64_t now)
{
    return now >= c->deadline_ms || ((c->ended || !c->refused_early) && unsent(c->fd) == 0);
}

void linger_tick(struct http *h, int64_t now)
{
    for (struct conn *c = h->lingerers, *next; c; c = next) {
        next = c->next;
        if (is_done(c, now)) {
            linger_end(c);
            c->fd = -1;
        }
    }
}

void linger_free(struct http *h)
{
    for (struct conn *c = h->lingered, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    h->lingered = NULL;
}

void linger_end_all(struct http *h)
{
    linger_tick(h, INT64_MAX);
    linger_free(h);
}

void linger_count(struct http *h)
{
    uint32_t n = 0;
    if (!atomic_load(&h->flushing))
        return;
    linger_tick(h, clock_ms());
    for (const struct conn *c = h->conns; c; c = c->next)
        n += unsent(c->fd) > 0;
    for (const struct conn *c = h->lingerers; c; c = c->next)
        n += unsent(c->fd) > 0;
    atomic_store(&h->unsent, n + 1);
}

bool exchange_local(const struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    uint32_t four = 0;
    if (!a || exchange_header(x, "x-forwarded-for") || exchange_header(x, "forwarded"))
        return false;
    if (a->sa_family == AF_INET)
        four = ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr;
    else if (a->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        memcpy(&four, &six->s6_addr[12], sizeof(four));
    return four ? ntohl(four) >> 24 == 127 : a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(six);
}

bool http_flushed(struct http *h)
{
    if (!atomic_exchange(&h->flushing, true))
        http_wake(h);
    return atomic_load(&h->unsent) == 1;
}
