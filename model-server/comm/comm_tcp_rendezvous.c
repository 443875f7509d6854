/* comm_tcp_rendezvous.c - ranks of several machines find each other.
 *
 * Rank 0 listens at an address that all ranks were given. Each other rank connects, authenticates
 * itself, sends its rank and the port where it listens (struct hello), and waits. When all have
 * arrived, rank 0 answers every rank with the group's number and the addresses of all (struct
 * welcome), or with the reason of a failure. Then rank r connects to the ranks below it and accepts
 * those above; the group's number distinguishes them from ranks of another group. Unauthenticated
 * connections are dropped and do not count (comm_tcp_accept.c). */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/comm/comm_tcp_link.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* "COMTCP02"; with another byte order it does not match. */
#define HELLO_MAGIC UINT64_C(0x32305043544d4f43)

enum { RETRY_MS = 100, CONNECT_MS = 3000, HELLO_MS = 3000, SLACK_MS = 5000, BACKLOG = 512 };
/* Interval of name lookups; interval of log lines about a wait. */
enum { RESOLVE_MS = 1000, LOG_WAIT_MS = 5000 };

struct rank_address {
    char address[TCP_NAME];
    uint32_t port, reserved;
};
struct welcome {
    uint64_t magic, group; /* group: its number, not 0 */
    uint32_t refused, reserved;
    char words[480]; /* why */
    struct rank_address listeners[TCP_MAX_WORLD];
};

struct meeting {
    struct tcp *t;
    const char *host;
    int port;
    struct acceptor *acceptor;
    int64_t end_ms, logged_ms; /* logged_ms: last log line about the wait */
    struct rank_address listeners[TCP_MAX_WORLD];
};

/* ---------------------------------------------------------------- sockets with a deadline */

static bool same_ends(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t n = sizeof(a), m = sizeof(b);
    return !getsockname(fd, (void *)&a, &n) && !getpeername(fd, (void *)&b, &m) && n == m &&
           !memcmp(&a, &b, n);
}

/* One try; -1 with errno. */
static int connect_once(const struct addrinfo *a, int ms)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t n = sizeof(why);
    struct pollfd p = {fd, POLLOUT, 0};
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS)
        why = errno;
    else if (poll(&p, 1, ms) <= 0)
        why = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
    if (!why && same_ends(fd)) /* a free port may be given to the process that connects to it */
        why = ECONNREFUSED;
    if (!why)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

/* Logs what a start-up waits for, every LOG_WAIT_MS. */
static void log_wait(struct meeting *m, const char *what, const char *why)
{
    const int64_t now = clock_ms();
    if (now - m->logged_ms < LOG_WAIT_MS)
        return;
    m->logged_ms = now;
    LOG(LOG_INFO, "waiting", LOGS("for", what), LOGS("why", why),
        LOGI("seconds_left", m->end_ms > now ? (m->end_ms - now) / 1000 : 0));
}

/* A cluster's DNS may know names only after its processes have started: any answer may change
 * soon. */
static bool may_resolve_later(int rc)
{
    return rc == EAI_NONAME || rc == EAI_AGAIN || rc == EAI_FAIL || rc == EAI_NODATA;
}

/* Until the name is known. */
static int resolve(struct meeting *m, const char *host, int port, struct addrinfo **out,
                   struct err *e)
{
    char service[8], what[160];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int rc;
    snprintf(service, sizeof(service), "%d", port);
    snprintf(what, sizeof(what), "an address of %.100s (--master-addr)", host);
    while ((rc = getaddrinfo(host, service, &hints, out)) && may_resolve_later(rc) &&
           clock_ms() + RESOLVE_MS < m->end_ms) {
        log_wait(m, what, gai_strerror(rc));
        usleep(RESOLVE_MS * 1000);
    }
    if (rc == 0)
        return 0;
    if (may_resolve_later(rc))
        return err_set(e, ERR_SYSTEM, "%s: %s within %g s (--master-addr, --rendezvous-timeout)",
                       host, gai_strerror(rc), m->t->timeout_ms / 1000.0);
    return err_set(e, ERR_SYSTEM, "%s: %s (--master-addr)", host, gai_strerror(rc));
}

/* One round over the addresses of a host; -1 with errno. */
static int connect_any(const struct addrinfo *all)
{
    int fd = -1;
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = connect_once(a, CONNECT_MS);
    return fd;
}

static void name_of(const struct sockaddr *a, socklen_t n, char out[TCP_NAME])
{
    if (getnameinfo(a, n, out, TCP_NAME, NULL, 0, NI_NUMERICHOST))
        snprintf(out, TCP_NAME, "?");
}

/* The addresses of a connection's ends; NULL: not requested. */
static void names_of(int fd, char mine[TCP_NAME], char theirs[TCP_NAME])
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    if (mine && !getsockname(fd, (void *)&a, &n))
        name_of((void *)&a, n, mine);
    n = sizeof(a);
    if (theirs && !getpeername(fd, (void *)&a, &n))
        name_of((void *)&a, n, theirs);
}

static int listen_at(const struct sockaddr *a, socklen_t n)
{
    int on = 1, fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!bind(fd, a, n) && !listen(fd, BACKLOG))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* ---------------------------------------------------------------- introductions */

static void admit(struct meeting *m, int rank, const struct tcp_peer *p)
{
    struct tcp_peer *to = &m->t->peers[rank];
    *to = *p;
    names_of(to->fd, NULL, to->name);
    if (!m->t->address[0])
        names_of(to->fd, m->t->address, NULL);
    tcp_tune(to->fd);
}

static struct hello my_hello(const struct tcp *t, uint64_t group, uint32_t port)
{
    struct hello h = {.magic = HELLO_MAGIC,
                      .group = group,
                      .world = (uint32_t)t->comm.world,
                      .nodes = (uint32_t)t->comm.nodes,
                      .rank = (uint32_t)t->comm.rank,
                      .port = port};
    snprintf(h.version, sizeof(h.version), "%s", VERSION);
    return h;
}

static int open_own_listener(struct meeting *m, int fd, uint32_t *port, struct err *e);

/* Descriptors of the ranks that are connected, for poll(). */
static void watch_peers(const struct tcp *t, struct pollfd fds[TCP_MAX_WORLD])
{
    for (int r = 0; r < t->comm.world; r++)
        fds[r] = (struct pollfd){t->peers[r].fd, POLLRDHUP, 0};
}

/* After poll(): -1 if one of them has disconnected. Then the meeting cannot succeed. */
static int peers_stay(const struct tcp *t, const struct pollfd fds[TCP_MAX_WORLD], struct err *e)
{
    for (int r = 0; r < t->comm.world; r++)
        if (fds[r].fd >= 0 && fds[r].revents)
            return err_set(e, ERR_SYSTEM, "rank %d (%s) died while others were waited for", r,
                           t->peers[r].name);
    return 0;
}

/* One attempt: 0, or as link_introduce(). `group` 0: to rank 0, which learns where this rank
 * listens. */
static int introduce_once(struct meeting *m, struct tcp_peer *p, uint64_t group, struct err *e)
{
    uint32_t port = 0;
    names_of(p->fd, NULL, p->name);
    if (!group && open_own_listener(m, p->fd, &port, e))
        return LINK_REFUSED;
    struct hello h = my_hello(m->t, group, port);
    return link_introduce(p, m->t->cluster, &h, m->end_ms, e);
}

/* Connects to `rank` until it answers and both are authenticated. */
static int introduce(struct meeting *m, const char *host, int port, int rank, uint64_t group,
                     struct err *e)
{
    struct addrinfo *all = NULL;
    int64_t resolved = 0;
    char what[160];
    bool answered = false;
    int rc = LINK_AGAIN, why = 0;
    snprintf(what, sizeof(what), "rank %d at %.100s:%d", rank, host, port);
    for (bool late = false; rc == LINK_AGAIN && !late; late = clock_ms() >= m->end_ms) {
        if (all && clock_ms() - resolved >= RESOLVE_MS) { /* a restarted pod has another address */
            freeaddrinfo(all);
            all = NULL;
        }
        if (!all) {
            if (resolve(m, host, port, &all, e))
                return -1;
            resolved = clock_ms();
        }
        struct tcp_peer p = {.fd = connect_any(all)};
        if (p.fd < 0) {
            struct pollfd fds[TCP_MAX_WORLD];
            why = errno;
            log_wait(m, what, strerrordesc_np(why));
            watch_peers(m->t, fds);
            poll(fds, (nfds_t)m->t->comm.world, RETRY_MS);
            rc = peers_stay(m->t, fds, e) ? LINK_REFUSED : LINK_AGAIN;
            continue;
        }
        answered = true;
        rc = introduce_once(m, &p, group, e);
        if (rc == 0) {
            admit(m, rank, &p);
            break;
        }
        link_close(&p);
        if (rc == LINK_AGAIN)
            usleep(RETRY_MS * 1000);
    }
    freeaddrinfo(all);
    if (rc <= 0)
        return rc;
    if (answered)
        return err_set(e, ERR_SYSTEM, "rank %d at %s:%d let no connection be completed within %g s",
                       rank, host, port, m->t->timeout_ms / 1000.0);
    errno = why;
    return err_sys(e, "rank %d did not answer at %s:%d within %g s", rank, host, port,
                   m->t->timeout_ms / 1000.0);
}

/* True if a rank belongs to this group. */
static int judge(const struct tcp *t, const struct hello *h, const char *name, struct err *e)
{
    if (strcmp(h->version, VERSION) != 0)
        return err_set(e, ERR_VALIDATION, "rank %u (%s) is of version %s, rank 0 of %s", h->rank,
                       name, h->version, VERSION);
    if (h->world != (uint32_t)t->comm.world || h->nodes != (uint32_t)t->comm.nodes)
        return err_set(e, ERR_VALIDATION,
                       "rank %u (%s) says %u ranks on %u machines, rank 0 says %d on %d", h->rank,
                       name, h->world, h->nodes, t->comm.world, t->comm.nodes);
    if (h->rank >= h->world || (int)h->rank == t->comm.rank || t->peers[h->rank].fd >= 0)
        return err_set(e, ERR_VALIDATION,
                       "%s says that it is rank %u, which %s (--node-rank, --master-port)", name,
                       h->rank, h->rank < h->world ? "is here already" : "there is none of");
    return 0;
}

/* The first missing rank from `from` on, and the number of missing ranks. */
static int first_missing(const struct tcp *t, int from, int *missing)
{
    int first = -1;
    *missing = 0;
    for (int r = t->comm.world - 1; r >= from; r--)
        if (r != t->comm.rank && t->peers[r].fd < 0)
            first = r, ++*missing;
    return first;
}

/* Waits for an authenticated rank, while those already here stay connected: 1: one arrived, 0:
 * timeout, -1: one disconnected. Ranks from `from` on are expected. */
static int wait_for_connection(struct meeting *m, int from, struct candidate *g, struct err *e)
{
    struct pollfd fds[TCP_MAX_WORLD + 1 + MAX_CANDIDATES];
    const struct tcp *t = m->t;
    const int world = t->comm.world;
    while (!acceptor_turn(m->acceptor, g)) {
        const int64_t now = clock_ms(), due = acceptor_deadline(m->acceptor);
        int64_t left = m->end_ms - now;
        if (left <= 0)
            return 0;
        left = left < LOG_WAIT_MS ? left : LOG_WAIT_MS;
        if (due && due - now < left)
            left = due > now ? due - now : 0;
        watch_peers(t, fds);
        int n =
            poll(fds, (nfds_t)world + (nfds_t)acceptor_poll(m->acceptor, fds + world), (int)left);
        if (n < 0 && errno != EINTR)
            return err_sys(e, "poll");
        if (n > 0 && peers_stay(t, fds, e))
            return -1;
        int missing, first = first_missing(t, from, &missing);
        char what[96];
        snprintf(what, sizeof(what), "rank %d of machine %d%s", first,
                 first / (world / t->comm.nodes), missing > 1 ? " and others" : "");
        log_wait(m, what, "it has not connected yet");
    }
    return 1;
}

/* The error that names missing ranks, as "rank 2 (machine 1)" for the first one. */
static int nobody_came(const struct tcp *t, int from, struct err *e)
{
    int missing, first = first_missing(t, from, &missing);
    return err_set(e, ERR_SYSTEM, "rank %d of machine %d%s did not come within %g s", first,
                   first / (t->comm.world / t->comm.nodes), missing > 1 ? " (and others)" : "",
                   t->timeout_ms / 1000.0);
}

/* ---------------------------------------------------------------- rank 0 */

static int gather_ranks(struct meeting *m, struct err *e)
{
    struct tcp *t = m->t;
    for (int here = 1; here < t->comm.world;) {
        struct candidate g;
        int ready = wait_for_connection(m, 1, &g, e);
        if (ready <= 0)
            return ready ? -1 : nobody_came(t, 1, e);
        if (judge(t, &g.hello, g.p.name, e)) {
            acceptor_verdict(m->acceptor, &g, e->msg);
            link_close(&g.p);
            return -1;
        }
        if (acceptor_verdict(m->acceptor, &g, NULL)) { /* it will come again */
            link_close(&g.p);
            continue;
        }
        const int rank = (int)g.hello.rank;
        admit(m, rank, &g.p);
        memcpy(m->listeners[rank].address, t->peers[rank].name, TCP_NAME);
        m->listeners[rank].port = g.hello.port;
        here++;
    }
    return 0;
}

/* Sends the addresses of all ranks, or a refusal, to the connected ranks. */
static int answer_all(struct meeting *m, const struct err *refusal, struct err *e)
{
    struct welcome w = {.magic = HELLO_MAGIC};
    struct tcp *t = m->t;
    if (getrandom(&w.group, sizeof(w.group), 0) != (ssize_t)sizeof(w.group))
        return err_sys(e, "getrandom");
    w.group |= 1; /* 0 means none */
    if (refusal) {
        w.refused = 1;
        snprintf(w.words, sizeof(w.words), "%s", refusal->msg);
    }
    memcpy(w.listeners, m->listeners, sizeof(w.listeners));
    for (int r = 0; r < t->comm.world; r++)
        if (t->peers[r].fd >= 0 &&
            link_transfer(&t->peers[r], &w, sizeof(w), true, clock_ms() + HELLO_MS) && !refusal)
            return err_sys(e, "rank %d (%s)", r, t->peers[r].name);
    return 0;
}

static int open_listener(struct meeting *m, struct err *e)
{
    struct addrinfo *all;
    if (resolve(m, m->host, m->port, &all, e))
        return -1;
    int *listener = &m->acceptor->listener;
    for (struct addrinfo *a = all; a && *listener < 0; a = a->ai_next) {
        *listener = listen_at(a->ai_addr, a->ai_addrlen);
        if (*listener < 0 && errno == EADDRNOTAVAIL) { /* behind address translation: any address */
            struct sockaddr_in6 any = {.sin6_family = AF_INET6,
                                       .sin6_port = htons((uint16_t)m->port)};
            struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)m->port)};
            *listener = a->ai_family == AF_INET6 ? listen_at((void *)&any, sizeof(any))
                                                 : listen_at((void *)&any4, sizeof(any4));
        }
    }
    freeaddrinfo(all);
    return *listener < 0 ? err_sys(e, "listening (--master-addr, --master-port)") : 0;
}

static int host_meeting(struct meeting *m, struct err *e)
{
    struct err ignored = ERR_INIT;
    if (open_listener(m, e))
        return -1;
    if (gather_ranks(m, e)) {
        answer_all(m, e, &ignored);
        return -1;
    }
    return answer_all(m, NULL, e);
}

/* ---------------------------------------------------------------- the others */

/* A listener on the address of the connection to rank 0; its port in *port. */
static int open_own_listener(struct meeting *m, int fd, uint32_t *port, struct err *e)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    /* from an earlier attempt, which reached rank 0 by another address */
    if (m->acceptor->listener >= 0)
        close(m->acceptor->listener);
    m->acceptor->listener = -1;
    if (getsockname(fd, (void *)&a, &n))
        return err_sys(e, "own address");
    uint16_t *at = a.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)&a)->sin6_port
                                           : &((struct sockaddr_in *)&a)->sin_port;
    *at = 0;
    if ((m->acceptor->listener = listen_at((void *)&a, n)) < 0 ||
        getsockname(m->acceptor->listener, (void *)&a, &n))
        return err_sys(e, "listening for other ranks");
    *port = ntohs(*at);
    return 0;
}

/* Introduces this rank to rank 0, and waits for its answer, however long other ranks take. */
static int ask_rank_0(struct meeting *m, struct welcome *w, struct err *e)
{
    struct tcp *t = m->t;
    if (introduce(m, m->host, m->port, 0, 0, e))
        return -1;
    if (link_transfer(&t->peers[0], w, sizeof(*w), false, clock_ms() + t->timeout_ms + SLACK_MS))
        return err_sys(e, "rank 0 (%s) did not say who is there", t->peers[0].name);
    w->words[sizeof(w->words) - 1] = '\0';
    return w->refused ? err_set(e, ERR_SYSTEM, "%s", w->words) : 0;
}

static int knock(struct meeting *m, struct welcome *w, struct err *e)
{
    for (int r = 1; r < m->t->comm.rank; r++) {
        w->listeners[r].address[TCP_NAME - 1] = '\0';
        if (introduce(m, w->listeners[r].address, (int)w->listeners[r].port, r, w->group, e))
            return -1;
    }
    return 0;
}

static int let_in(struct meeting *m, uint64_t group, struct err *e)
{
    struct tcp *t = m->t;
    for (int r = t->comm.rank + 1; r < t->comm.world;) {
        struct candidate g;
        struct err why = ERR_INIT;
        int ready = wait_for_connection(m, t->comm.rank + 1, &g, e);
        if (ready <= 0)
            return ready ? -1 : nobody_came(t, t->comm.rank + 1, e);
        bool other = g.hello.group != group || judge(t, &g.hello, g.p.name, &why);
        if (other)
            LOG(LOG_WARN, "Connection dropped: a rank of another group", LOGS("address", g.p.name));
        if (acceptor_verdict(m->acceptor, &g, other ? "this is another group" : NULL) || other) {
            link_close(&g.p);
            continue;
        }
        admit(m, (int)g.hello.rank, &g.p);
        r++;
    }
    return 0;
}

static int join_meeting(struct meeting *m, struct err *e)
{
    struct welcome w = {0};
    if (ask_rank_0(m, &w, e))
        return -1;
    m->end_ms = clock_ms() + m->t->timeout_ms; /* all have arrived: the timeout starts again */
    return knock(m, &w, e) || let_in(m, w.group, e) ? -1 : 0;
}

int tcp_meet(struct tcp *t, const char *host, int port, struct err *e)
{
    struct acceptor *acceptor = malloc(sizeof(*acceptor));
    struct meeting m = {.t = t,
                        .host = host,
                        .port = port,
                        .acceptor = acceptor,
                        .logged_ms = clock_ms(),
                        .end_ms = clock_ms() + t->timeout_ms};
    if (!acceptor)
        return err_nomem(e);
    acceptor_open(acceptor, t->cluster);
    int rc = t->comm.rank ? join_meeting(&m, e) : host_meeting(&m, e);
    acceptor_close(acceptor);
    free(acceptor);
    return rc;
}
