/* The loop, connections and their deadlines. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/watchdog.h"
#include "router/http/conn.h"
#include "router/http/tls.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_MS = 1000,
    SEND_BUFFER = 64 << 10,
    USER_TIMEOUT_MS = 30000,
    HANG_UP_MS = 500,
    FLUSH_MS = 20,  /* between two polls of unsent bytes */
    FULL_MS = 10000 /* between two log lines about descriptors */
};

/* A disconnected client is detected by unacknowledged data or by keep-alive probes. The send buffer
 * is limited, so that a slow client cannot fill megabytes of kernel memory unnoticed. */
static void tune_socket(int fd)
{
    http_set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER);
    http_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    http_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    http_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
    http_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    http_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    http_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

static void conn_open(struct http *h, struct MHD_Connection *mhd, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct conn *c = calloc(1, sizeof(*c));
    *socket_context = c;
    if (!c)
        return;
    c->http = h;
    c->mhd = mhd;
    c->fd = info->connect_fd;
    c->deadline_ms = clock_ms() + h->c.header_timeout_ms;
    if ((c->next = h->conns))
        h->conns->prev = c;
    h->conns = c;
    h->n_conns++;
    tune_socket(c->fd);
    if (h->c.tls) {
        info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        c->cert = tls_take(h->c.tls, info->tls_session);
    }
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        log_msg(LOG_WARN, "epoll_ctl: errno %d: client disconnects will not be detected", errno);
}

static void conn_close(struct http *h, struct conn *c)
{
    if (!c)
        return;
    (void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->x)
        c->x->conn = NULL;
    tls_drop(c->cert);
    c->cert = NULL;
    if (c->prev)
        c->prev->next = c->next;
    else
        h->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    h->n_conns--;
    c->x = NULL;
    if (!linger_begin(c))
        free(c);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(cls, mhd, socket_context);
    else
        conn_close(cls, *socket_context);
}

static void on_hang_up(struct conn *c)
{
    c->hung_up = true;
    /* Once the whole answer is computed, sending it is the cheapest way to detect a disconnect. */
    if (c->x && exchange_waits(c->x))
        exchange_drop(c->x);
    /* libmicrohttpd misses an end of stream that came with the last bytes: do not wait for the rest
     * of a request. */
    else if (!c->x || !c->x->dispatched)
        c->deadline_ms = clock_ms() + HANG_UP_MS;
}

static void on_socket(struct conn *c, uint32_t events)
{
    if (c->ws)
        websocket_event(c->ws, events);
    else if (c->lingers)
        linger_event(c);
    else
        on_hang_up(c);
}

/* libmicrohttpd has no call to close a connection. The shut down socket is an event for it. If that
 * edge has already passed (after a reset by the peer), its own timeout closes the connection a
 * second later. */
static void cut(struct conn *c)
{
    shutdown(c->fd, SHUT_RDWR);
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    c->deadline_ms = INT64_MAX;
}

static void tick(struct http *h, int64_t now)
{
    for (struct conn *c = h->conns; c; c = c->next) {
        if (c->deadline_ms <= now)
            cut(c);
        if (c->x && c->x->streaming)
            exchange_act(c->x, sse_tick(&c->x->sse, now));
    }
    websockets_tick(h, now);
    linger_tick(h, now);
    http_second_again(h);
    h->ticked_ms = now;
}

static int wait_ms(const struct http *h)
{
    MHD_UNSIGNED_LONG_LONG mhd_ms;
    /* an idle router has no timeout */
    int ms = h->conns || h->lingerers || h->second_waits ? TICK_MS : -1;
    if (atomic_load(&h->flushing))
        ms = FLUSH_MS;
    if (MHD_get_timeout(h->daemon, &mhd_ms) == MHD_YES && (ms < 0 || mhd_ms < (unsigned)ms))
        ms = (int)mhd_ms;
    return ms;
}

void http_run(struct http *h)
{
    struct epoll_event ev[256];
    while (!h->stop) {
        int n = epoll_wait(h->epoll_fd, ev, sizeof(ev) / sizeof(ev[0]), wait_ms(h));
        bool rung = false;
        watch_busy(&h->busy_ns);
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (ev[i].data.ptr == h)
                continue; /* libmicrohttpd's descriptor: see MHD_run() below */
            if (ev[i].data.ptr == &h->bell_fd)
                rung = read(h->bell_fd, &count, sizeof(count)) == sizeof(count);
            else if (ev[i].data.ptr == &h->second_fd)
                http_accept_second(h);
            else
                on_socket(ev[i].data.ptr, ev[i].events);
        }
        linger_free(h);
        if (rung) { /* resumes many connections; MHD_run() visits them once */
            socket_close_all(h);
            h->c.events.wake(h->c.arg);
        }
        websockets_flush(h);
        bool busy = h->conns;
        MHD_run(h->daemon);
        /* Without free descriptors libmicrohttpd stops listening, and listens again in the run
         * after one that closed a connection. While others are open, the next tick is that run. */
        if (busy && !h->conns)
            MHD_run(h->daemon);
        int64_t now = clock_ms();
        if (now - h->ticked_ms >= TICK_MS)
            tick(h, now);
        linger_count(h);
        watch_idle(&h->busy_ns);
    }
    websockets_end(h);
    for (struct conn *c = h->conns; c; c = c->next)
        if (c->x)
            exchange_drop(c->x);
    MHD_run(h->daemon);
}

void http_wake(struct http *h)
{
    (void)eventfd_write(h->bell_fd, 1); /* full: the loop is already awake */
}

void http_stop(struct http *h)
{
    h->stop = true;
    http_wake(h);
}

/* Logs only the message about descriptors: every aborting client would cause a line. New clients
 * then wait in the listen queue until a connection ends. */
static void on_message(void *cls, const char *fmt, va_list ap)
{
    struct http *h = cls;
    int64_t now = clock_ms();
    (void)ap;
    if (!strstr(fmt, "resource limit") || (h->warned_full_ms && now - h->warned_full_ms < FULL_MS))
        return;
    h->warned_full_ms = now;
    LOG(LOG_WARN, "Out of file descriptors: new connections wait until others end (ulimit -n)",
        LOGI("connections", h->n_conns));
}

static int start_daemon(struct http *h, bool v6, struct err *e)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE |
                     MHD_USE_ERROR_LOG | (v6 ? MHD_USE_IPv6 : 0) | (h->c.tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {h->c.tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0,
         h->c.tls ? (void *)(uintptr_t)tls_cert_pem(h->c.tls) : NULL},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, h->c.tls ? (void *)(uintptr_t)tls_key_pem(h->c.tls) : NULL},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    h->daemon = MHD_start_daemon(
        flags, h->port, NULL, NULL, http_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_message, h,
        MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)HTTP_MAX_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, http_completed,
        h, MHD_OPTION_URI_LOG_CALLBACK, http_uri, h, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    return h->daemon ? 0 : err_set(e, ERR_SYSTEM, "cannot start the HTTP daemon");
}

static int watch(struct http *h, int fd, void *ptr, struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ptr};
    return epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : err_sys(e, "epoll_ctl");
}

struct http *http_new(const struct http_config *c, struct err *e)
{
    struct http *h = calloc(1, sizeof(*h));
    bool v6 = false;
    if (!h) {
        err_nomem(e);
        return NULL;
    }
    h->c = *c;
    h->c.header_timeout_ms = c->header_timeout_ms ? c->header_timeout_ms : 30000;
    h->c.body_timeout_ms = c->body_timeout_ms ? c->body_timeout_ms : 60000;
    h->c.idle_timeout_ms = c->idle_timeout_ms ? c->idle_timeout_ms : 75000;
    h->c.stream_limit = c->stream_limit ? c->stream_limit : 1000000;
    h->listen_fd = h->second_fd = -1;
    if (getrandom(&h->last_id, sizeof(h->last_id), 0) < 0)
        h->last_id = (uint64_t)clock_ns();
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    h->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->epoll_fd < 0 || h->bell_fd < 0) {
        err_sys(e, "epoll_create1, eventfd");
        goto fail;
    }
    if (http_listen(h, &v6, e) != 0 || start_daemon(h, v6, e) != 0)
        goto fail;
    int mhd_fd = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    if (watch(h, mhd_fd, h, e) != 0 || watch(h, h->bell_fd, &h->bell_fd, e) != 0 ||
        (h->second_fd >= 0 && watch(h, h->second_fd, &h->second_fd, e) != 0))
        goto fail;
    return h;
fail:
    http_free(h);
    return NULL;
}

uint16_t http_port(const struct http *h) { return h->port; }
const _Atomic int64_t *http_busy(const struct http *h) { return &h->busy_ns; }

struct http_counts http_counts(const struct http *h)
{
    return (struct http_counts){h->n_conns, h->n_lingerers};
}

void http_free(struct http *h)
{
    if (!h)
        return;
    if (h->daemon) {
        socket_close_all(h); /* libmicrohttpd aborts if one is still open */
        MHD_run(h->daemon);
        MHD_stop_daemon(h->daemon); /* closes the listening socket */
        linger_end_all(h);
    } else if (h->listen_fd >= 0)
        close(h->listen_fd);
    if (h->second_fd >= 0)
        close(h->second_fd);
    if (h->epoll_fd >= 0)
        close(h->epoll_fd);
    if (h->bell_fd >= 0)
        close(h->bell_fd);
    free(h);
}
