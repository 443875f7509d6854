/* The LMTP thread: its epoll, listening socket and wake-up eventfd. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/api/lmtp/lmtp_in.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { TICK_MS = 1000, BACKLOG = 1024, CLOSING_MS = 3000, FULL_MS = 10000, SEND_BUFFER = 64 << 10 };

void lmtp_wake(struct lmtp *l)
{
    (void)eventfd_write(l->bell_fd, 1); /* full: the thread is already awake */
}

void lmtp_adopt(void *edge, struct http_socket *s)
{
    struct lmtp *l = ((struct edge *)edge)->lmtp;
    if (mailbox_put(&l->adopted, &s->mail))
        lmtp_wake(l);
}

/* ---------------------------------------------------------------- one turn */

static void adopt_all(struct lmtp *l)
{
    for (struct mail *m = mailbox_take(&l->adopted), *next; m; m = next) {
        struct http_socket *s =
            (struct http_socket *)((char *)m - offsetof(struct http_socket, mail));
        next = m->next;
        if (l->closing || !peer_new(l, s->fd, s))
            http_socket_close(s);
    }
}

/* Without free descriptors a waiting client would wake the thread endlessly: stops accepting until
 * the next tick. */
static void stop_listening(struct lmtp *l)
{
    int64_t now = clock_ms();
    struct epoll_event none = {.events = 0, .data.ptr = &l->listen_fd};
    l->not_accepting = epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->listen_fd, &none) == 0;
    if (l->warned_full_ms && now - l->warned_full_ms < FULL_MS)
        return;
    l->warned_full_ms = now;
    LOG(LOG_WARN, "Out of file descriptors: new LMTP connections wait until others end (ulimit -n)",
        LOGI("connections", atomic_load(&l->n_peers)));
}

static void listen_again(struct lmtp *l)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->listen_fd};
    if (l->not_accepting && epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->listen_fd, &ev) == 0)
        l->not_accepting = false;
}

/* Lines carry no key, so a Unix socket accepts only our own user and root, whatever its file mode.
 * The kernel reports the peer's user (unix(7), SO_PEERCRED). */
static bool may_connect(struct lmtp *l, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t n = sizeof(peer);
    if (!l->unix_path)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return true;
    int64_t now = clock_ms();
    if (!l->warned_user_ms || now - l->warned_user_ms >= FULL_MS)
        LOG(LOG_WARN, "LMTP connection of another user refused", LOGI("uid", peer.uid),
            LOGI("pid", peer.pid));
    l->warned_user_ms = now;
    return false;
}

static void accept_all(struct lmtp *l)
{
    int fd;
    while ((fd = accept4(l->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int one = 1, room = SEND_BUFFER; /* optional improvements: failures are ignored */
        if (!may_connect(l, fd)) {
            close(fd);
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        if (l->closing || !peer_new(l, fd, NULL))
            close(fd);
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        stop_listening(l);
}

static void read_notes(struct lmtp *l)
{
    pthread_mutex_lock(&l->lock);
    struct mail *m = l->ready.first;
    l->ready = (struct notes){.end = &l->ready.first};
    pthread_mutex_unlock(&l->lock);
    for (struct mail *next; m; m = next) {
        next = m->next;
        stream_note((struct note *)((char *)m - offsetof(struct note, mail)));
    }
}

/* Sends the items of this turn, one frame per connection. */
static void flush_all(struct lmtp *l)
{
    while (l->dirty) {
        struct peer *p = l->dirty;
        l->dirty = p->next_dirty;
        peer_flush(p);
    }
    for (struct peer *p = l->dead, *next; p; p = next) {
        next = p->next;
        peer_free(p);
    }
    l->dead = NULL;
    if (l->n_ended)
        atomic_fetch_sub(&l->edge->live, l->n_ended); /* a shutdown may wait for this */
    l->n_ended = 0;
}

static void tick(struct lmtp *l)
{
    int64_t now = clock_ms();
    if (now - l->ticked_ms < TICK_MS)
        return;
    l->ticked_ms = now;
    for (struct peer *p = l->peers, *next; p; p = next) {
        next = p->next;
        peer_tick(p, now);
    }
    record_tick(l, now);
    listen_again(l);
}

/* ms; -1: until an event. */
static int patience(const struct lmtp *l)
{
    int64_t most = l->peers || l->records || l->not_accepting ? TICK_MS : -1, left;
    if (l->watch_ms == INT64_MAX)
        return (int)most;
    left = l->watch_ms - clock_ms();
    left = left < 0 ? 0 : left;
    return (int)(left < most ? left : most);
}

static void turn(struct lmtp *l, int timeout_ms)
{
    struct epoll_event ev[256];
    int n = epoll_wait(l->epoll_fd, ev, sizeof(ev) / sizeof(ev[0]), timeout_ms);
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (ev[i].data.ptr == &l->listen_fd)
            accept_all(l);
        else if (ev[i].data.ptr != &l->bell_fd)
            peer_event(ev[i].data.ptr, ev[i].events);
        else if (read(l->bell_fd, &count, sizeof(count)) == sizeof(count)) {
            adopt_all(l);
            prepare_done(l);
            read_notes(l);
        }
    }
    tick(l);
    streams_watch(l, clock_ms());
    flush_all(l);
}

/* Bytes that clients have not received, in our queues and the kernel's. */
static size_t unsent(const struct lmtp *l)
{
    size_t n = 0;
    for (const struct peer *p = l->peers; p; p = p->next)
        n += peer_unsent(p);
    return n;
}

static void goodbye(struct lmtp *l)
{
    int64_t until = clock_ms() + CLOSING_MS;
    l->closing = true;
    for (struct peer *p = l->peers; p; p = p->next)
        peer_goodbye(p, WIRE_GOING_AWAY, "the server is shutting down");
    record_end_all(l);
    flush_all(l);
    size_t left = SIZE_MAX;
    while (l->peers && clock_ms() < until) {
        size_t now = unsent(l);
        if (now < left) /* a peer has read some */
            until = clock_ms() + CLOSING_MS;
        left = now;
        turn(l, 20);
    }
    while (l->peers)
        peer_cut(l->peers);
    flush_all(l);
}

static void *run(void *arg)
{
    struct lmtp *l = arg;
    while (!atomic_load(&l->stop))
        turn(l, patience(l));
    goodbye(l);
    return NULL;
}

/* ---------------------------------------------------------------- listening */

static int watch(struct lmtp *l, int *fd, struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, *fd, &ev) == 0 ? 0 : err_sys(e, "epoll_ctl");
}

static int bind_to(struct lmtp *l, const struct sockaddr *a, socklen_t n, const char *where,
                   struct err *e)
{
    int one = 1;
    l->listen_fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->listen_fd < 0)
        return err_sys(e, "socket");
    (void)setsockopt(l->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    const mode_t before = umask(0177); /* a Unix socket's file is private from its creation on */
    const int bound = bind(l->listen_fd, a, n);
    umask(before);
    if (bound != 0 || listen(l->listen_fd, BACKLOG) != 0)
        return err_sys(e, "--lmtp-listen %s", where);
    return watch(l, &l->listen_fd, e);
}

/* Replaces a socket left by a dead process; one that accepts connections belongs to another
 * process. */
static int listen_unix(struct lmtp *l, const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (!*path || strlen(path) >= sizeof(a.sun_path))
        return err_set(e, ERR_VALIDATION, "--lmtp-listen unix:%s: not a path for a socket", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
        if (fd >= 0)
            close(fd);
        if (!alive)
            unlink(path);
    }
    if (bind_to(l, (const struct sockaddr *)&a, sizeof(a), path, e) != 0)
        return -1;
    l->unix_path = strdup(path);
    return 0;
}

static int listen_tcp(struct lmtp *l, const char *where, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all = NULL;
    const char *colon = strrchr(where, ':');
    char host[256];
    if (!colon || colon - where >= (ptrdiff_t)sizeof(host))
        return err_set(e, ERR_VALIDATION, "--lmtp-listen %s: expected unix:/path or host:port",
                       where);
    size_t n = (size_t)(colon - where), skip = n > 1 && where[0] == '[' && where[n - 1] == ']';
    memcpy(host, where + skip, n - 2 * skip);
    host[n - 2 * skip] = 0;
    if (getaddrinfo(*host ? host : NULL, colon + 1, &hints, &all) != 0)
        return err_set(e, ERR_VALIDATION, "--lmtp-listen %s: no such address", where);
    int rc = bind_to(l, all->ai_addr, all->ai_addrlen, where, e);
    freeaddrinfo(all);
    return rc;
}

static int open_listener(struct lmtp *l, struct err *e)
{
    const char *where = l->edge->config->lmtp_listen;
    if (!where || !*where)
        return 0;
    if (!strncmp(where, "unix:", 5))
        return listen_unix(l, where + 5, e);
    if (l->edge->has_keys)
        return err_set(e, ERR_VALIDATION,
                       "--lmtp-listen %s: lines carry no key; with --api-key only unix: is served",
                       where);
    return listen_tcp(l, where, e);
}

/* ---------------------------------------------------------------- life */

struct lmtp *lmtp_new(struct edge *g, struct err *e)
{
    struct lmtp *l = calloc(1, sizeof(*l));
    if (!l) {
        err_nomem(e);
        return NULL;
    }
    l->edge = g;
    l->max_message = g->config->lmtp_max_message;
    l->listen_fd = -1;
    l->watch_ms = INT64_MAX;
    l->staged.end = &l->staged.first;
    l->ready.end = &l->ready.first;
    pthread_mutex_init(&l->lock, NULL);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epoll_fd < 0 || l->bell_fd < 0)
        err_sys(e, "epoll, eventfd");
    else if (watch(l, &l->bell_fd, e) == 0 && open_listener(l, e) == 0)
        return l;
    lmtp_free(l);
    return NULL;
}

int lmtp_start(struct lmtp *l, struct err *e)
{
    l->running = pthread_create(&l->thread, NULL, run, l) == 0;
    return l->running ? 0 : err_set(e, ERR_SYSTEM, "cannot start the LMTP thread");
}

void lmtp_stop(struct lmtp *l)
{
    if (!l || !l->running)
        return;
    atomic_store(&l->stop, true);
    lmtp_wake(l);
    pthread_join(l->thread, NULL);
    l->running = false;
}

uint32_t lmtp_peers(const struct lmtp *l) { return atomic_load(&l->n_peers); }

void lmtp_free(struct lmtp *l)
{
    if (!l)
        return;
    l->closing = true;
    prepare_done(l);
    stream_publish(l);
    read_notes(l);
    buf_free(&l->scratch);
    flush_all(l);
    adopt_all(l);
    if (l->listen_fd >= 0)
        close(l->listen_fd);
    if (l->unix_path)
        unlink(l->unix_path);
    free(l->unix_path);
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    if (l->bell_fd >= 0)
        close(l->bell_fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
