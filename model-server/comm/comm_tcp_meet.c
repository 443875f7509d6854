/* comm_tcp_meet.c - ranks of several machines find each other.
 *
 * Rank 0 listens at the address that all were given. Each other rank opens a door of its own,
 * comes, says who it is (struct hello) and waits. When all are there, rank 0 answers everybody with
 * a nonce and the doors of all (struct welcome), or with the reason why there will be no group.
 * Then rank r knocks at the doors of the ranks below it and lets in those above; the nonce tells
 * them from guests of another group. Whoever says something else is sent away and does not count.
 */
#include "common/clock.h"
#include "common/log.h"
#include "model-server/comm/comm_tcp.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAGIC UINT64_C(0x31305043544d4f43) /* "COMTCP01"; another byte order is no rank */

enum { RETRY_MS = 100, CONNECT_MS = 3000, HELLO_MS = 3000, SLACK_MS = 5000 };
/* A name is looked up again after so long; a wait is logged every SAY_MS. */
enum { RESOLVE_MS = 1000, SAY_MS = 5000 };

struct hello {
    uint64_t magic, nonce; /* nonce 0: to rank 0 */
    uint32_t world, nodes, rank, port;
    char version[48];
};
struct door {
    char address[TCP_NAME];
    uint32_t port, reserved;
};
struct welcome {
    uint64_t magic, nonce;
    uint32_t refused, reserved;
    char words[480]; /* why */
    struct door doors[TCP_MAX_WORLD];
};

struct meeting {
    struct tcp *t;
    const char *host;
    int port, listener;
    int64_t end_ms, said_ms; /* said_ms: when the log last heard what is waited for */
    struct door doors[TCP_MAX_WORLD];
};

/* ---------------------------------------------------------------- sockets with a deadline */

/* All n bytes by end_ms: 0, else -1 with errno; 0 bytes of a closed connection are ECONNRESET. */
static int transfer(int fd, void *buf, size_t n, bool out, int64_t end_ms)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {fd, out ? POLLOUT : POLLIN, 0};
        int64_t left = end_ms - clock_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return errno = ready ? errno : ETIMEDOUT, -1;
        ssize_t k = out ? send(fd, (char *)buf + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(fd, (char *)buf + at, n - at, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (k <= 0)
            return errno = k ? errno : ECONNRESET, -1;
        at += (size_t)k;
    }
    return 0;
}

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
    if (!why && same_ends(fd)) /* a free port may be given to whoever knocks at it */
        why = ECONNREFUSED;
    if (!why)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

/* What a start-up waits for, every SAY_MS. */
static void say_wait(struct meeting *m, const char *what, const char *why)
{
    const int64_t now = clock_ms();
    if (now - m->said_ms < SAY_MS)
        return;
    m->said_ms = now;
    LOG(LOG_INFO, "waiting", LOGS("for", what), LOGS("why", why),
        LOGI("seconds_left", m->end_ms > now ? (m->end_ms - now) / 1000 : 0));
}

/* Names of a cluster come after its processes: any answer about the name may be another one soon.
 */
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
        say_wait(m, what, gai_strerror(rc));
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

/* Until somebody answers. The name is looked up again meanwhile: a pod that was started anew has
 * another address. */
static int connect_to(struct meeting *m, const char *host, int port, int rank, struct err *e)
{
    struct addrinfo *all = NULL;
    int64_t resolved = 0;
    char what[160];
    int fd = -1, why = 0;
    snprintf(what, sizeof(what), "rank %d at %.100s:%d", rank, host, port);
    for (bool late = false; fd < 0 && !late; late = clock_ms() >= m->end_ms) {
        if (all && clock_ms() - resolved >= RESOLVE_MS) {
            freeaddrinfo(all);
            all = NULL;
        }
        if (!all) {
            if (resolve(m, host, port, &all, e))
                return -1;
            resolved = clock_ms();
        }
        if ((fd = connect_any(all)) >= 0)
            break;
        why = errno;
        say_wait(m, what, strerror(why));
        usleep(RETRY_MS * 1000);
    }
    freeaddrinfo(all);
    if (fd >= 0)
        return fd;
    errno = why;
    return err_sys(e, "rank %d did not answer at %s:%d within %g s", rank, host, port,
                   m->t->timeout_ms / 1000.0);
}

static void name_of(const struct sockaddr *a, socklen_t n, char out[TCP_NAME])
{
    if (getnameinfo(a, n, out, TCP_NAME, NULL, 0, NI_NUMERICHOST))
        snprintf(out, TCP_NAME, "?");
}

/* The addresses of a connection's ends; NULL: not wanted. */
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
    if (!bind(fd, a, n) && !listen(fd, TCP_MAX_WORLD))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* ---------------------------------------------------------------- guests */

static void admit(struct meeting *m, int rank, int fd)
{
    m->t->peers[rank].fd = fd;
    names_of(fd, NULL, m->t->peers[rank].name);
    if (!m->t->address[0])
        names_of(fd, m->t->address, NULL);
    tcp_tune(fd);
}

static struct hello my_hello(const struct tcp *t, uint64_t nonce, uint32_t port)
{
    struct hello h = {.magic = HELLO_MAGIC,
                      .nonce = nonce,
                      .world = (uint32_t)t->comm.world,
                      .nodes = (uint32_t)t->comm.nodes,
                      .rank = (uint32_t)t->comm.rank,
                      .port = port};
    snprintf(h.version, sizeof(h.version), "%s", VERSION);
    return h;
}

/* Somebody at the door: 1 a rank of this program, 0 nobody or somebody else. */
static int receive_guest(struct meeting *m, int *fd, struct hello *h, char name[TCP_NAME])
{
    *fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd < 0)
        return 0;
    names_of(*fd, NULL, name);
    if (!transfer(*fd, h, sizeof(*h), false, clock_ms() + HELLO_MS) && h->magic == HELLO_MAGIC) {
        h->version[sizeof(h->version) - 1] = '\0';
        return 1;
    }
    LOG(LOG_WARN, "sent away: no rank of this program", LOGS("address", name));
    close(*fd);
    return 0;
}

/* Whether a rank belongs to this group. */
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

/* The first rank from `from` on that is not here, and how many there are. */
static int first_missing(const struct tcp *t, int from, int *missing)
{
    int first = -1;
    *missing = 0;
    for (int r = t->comm.world - 1; r >= from; r--)
        if (r != t->comm.rank && t->peers[r].fd < 0)
            first = r, ++*missing;
    return first;
}

/* Waits for somebody at the door while those who are here stay: 1 there is, 0 time is over, -1 one
 * has gone. Ranks from `from` on are to come. */
static int wait_at_door(struct meeting *m, int from, struct err *e)
{
    struct pollfd fds[TCP_MAX_WORLD + 1] = {{m->listener, POLLIN, 0}};
    const struct tcp *t = m->t;
    for (;;) {
        int missing, first = first_missing(t, from, &missing);
        int64_t left = m->end_ms - clock_ms();
        for (int r = 0; r < t->comm.world; r++)
            fds[r + 1] = (struct pollfd){t->peers[r].fd, POLLRDHUP, 0};
        int n =
            left > 0 ? poll(fds, (nfds_t)t->comm.world + 1, left < SAY_MS ? (int)left : SAY_MS) : 0;
        if (n < 0 && errno != EINTR)
            return err_sys(e, "poll");
        for (int r = 0; n > 0 && r < t->comm.world; r++)
            if (fds[r + 1].revents)
                return err_set(e, ERR_SYSTEM, "rank %d (%s) died while others were waited for", r,
                               t->peers[r].name);
        if (n > 0)
            return fds[0].revents ? 1 : 0;
        if (left <= 0)
            return 0;
        char what[96];
        snprintf(what, sizeof(what), "rank %d of machine %d%s", first,
                 first / (t->comm.world / t->comm.nodes), missing > 1 ? " and others" : "");
        say_wait(m, what, "it has not connected yet");
    }
}

/* Who is not here, as "rank 2 (machine 1)" of the first one. */
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
        struct hello h;
        char name[TCP_NAME] = "?";
        int fd, ready = wait_at_door(m, 1, e);
        if (ready <= 0)
            return ready ? -1 : nobody_came(t, 1, e);
        if (!receive_guest(m, &fd, &h, name))
            continue;
        if (judge(t, &h, name, e)) {
            struct welcome no = {.magic = HELLO_MAGIC, .refused = 1};
            snprintf(no.words, sizeof(no.words), "%s", e->msg);
            transfer(fd, &no, sizeof(no), true, clock_ms() + HELLO_MS);
            close(fd);
            return -1;
        }
        admit(m, (int)h.rank, fd);
        memcpy(m->doors[h.rank].address, t->peers[h.rank].name, TCP_NAME);
        m->doors[h.rank].port = h.port;
        here++;
    }
    return 0;
}

/* The doors of all, or why not, to those who are here. */
static int answer_all(struct meeting *m, const struct err *refusal, struct err *e)
{
    struct welcome w = {.magic = HELLO_MAGIC};
    const struct tcp *t = m->t;
    if (getrandom(&w.nonce, sizeof(w.nonce), 0) != (ssize_t)sizeof(w.nonce))
        return err_sys(e, "getrandom");
    w.nonce |= 1; /* 0 means none */
    if (refusal) {
        w.refused = 1;
        snprintf(w.words, sizeof(w.words), "%s", refusal->msg);
    }
    memcpy(w.doors, m->doors, sizeof(w.doors));
    for (int r = 0; r < t->comm.world; r++)
        if (t->peers[r].fd >= 0 &&
            transfer(t->peers[r].fd, &w, sizeof(w), true, clock_ms() + HELLO_MS) && !refusal)
            return err_sys(e, "rank %d (%s)", r, t->peers[r].name);
    return 0;
}

static int open_front_door(struct meeting *m, struct err *e)
{
    struct addrinfo *all;
    if (resolve(m, m->host, m->port, &all, e))
        return -1;
    for (struct addrinfo *a = all; a && m->listener < 0; a = a->ai_next) {
        m->listener = listen_at(a->ai_addr, a->ai_addrlen);
        if (m->listener < 0 && errno == EADDRNOTAVAIL) { /* behind a translation: any address */
            struct sockaddr_in6 any = {.sin6_family = AF_INET6,
                                       .sin6_port = htons((uint16_t)m->port)};
            struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)m->port)};
            m->listener = a->ai_family == AF_INET6 ? listen_at((void *)&any, sizeof(any))
                                                   : listen_at((void *)&any4, sizeof(any4));
        }
    }
    freeaddrinfo(all);
    return m->listener < 0 ? err_sys(e, "listening (--master-addr, --master-port)") : 0;
}

static int host_meeting(struct meeting *m, struct err *e)
{
    struct err ignored = ERR_INIT;
    if (open_front_door(m, e))
        return -1;
    if (gather_ranks(m, e)) {
        answer_all(m, e, &ignored);
        return -1;
    }
    return answer_all(m, NULL, e);
}

/* ---------------------------------------------------------------- the others */

/* A door on the address by which rank 0 is reached; its port in *port. */
static int open_own_door(struct meeting *m, int fd, uint32_t *port, struct err *e)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    if (getsockname(fd, (void *)&a, &n))
        return err_sys(e, "own address");
    uint16_t *at = a.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)&a)->sin6_port
                                           : &((struct sockaddr_in *)&a)->sin_port;
    *at = 0;
    if ((m->listener = listen_at((void *)&a, n)) < 0 || getsockname(m->listener, (void *)&a, &n))
        return err_sys(e, "listening for other ranks");
    *port = ntohs(*at);
    return 0;
}

/* Says hello to rank 0; what it answers, however long the others take. */
static int ask_rank_0(struct meeting *m, struct welcome *w, struct err *e)
{
    struct tcp *t = m->t;
    uint32_t port = 0;
    int fd = connect_to(m, m->host, m->port, 0, e);
    if (fd < 0)
        return -1;
    admit(m, 0, fd);
    if (open_own_door(m, fd, &port, e))
        return -1;
    struct hello h = my_hello(t, 0, port);
    if (transfer(fd, &h, sizeof(h), true, m->end_ms) ||
        transfer(fd, w, sizeof(*w), false, clock_ms() + t->timeout_ms + SLACK_MS))
        return err_sys(e, "rank 0 (%s) did not say who is there", t->peers[0].name);
    if (w->magic != HELLO_MAGIC)
        return err_set(e, ERR_SYSTEM, "%s:%d is no rank 0 of this program", m->host, m->port);
    w->words[sizeof(w->words) - 1] = '\0';
    return w->refused ? err_set(e, ERR_SYSTEM, "%s", w->words) : 0;
}

static int knock(struct meeting *m, struct welcome *w, struct err *e)
{
    struct tcp *t = m->t;
    for (int r = 1; r < t->comm.rank; r++) {
        struct hello h = my_hello(t, w->nonce, 0);
        w->doors[r].address[TCP_NAME - 1] = '\0';
        int fd = connect_to(m, w->doors[r].address, (int)w->doors[r].port, r, e);
        if (fd < 0)
            return -1;
        admit(m, r, fd);
        if (transfer(fd, &h, sizeof(h), true, m->end_ms))
            return err_sys(e, "rank %d (%s)", r, t->peers[r].name);
    }
    return 0;
}

static int let_in(struct meeting *m, uint64_t nonce, struct err *e)
{
    struct tcp *t = m->t;
    for (int r = t->comm.rank + 1; r < t->comm.world;) {
        struct hello h;
        char name[TCP_NAME] = "?";
        int fd, ready = wait_at_door(m, t->comm.rank + 1, e);
        if (ready <= 0)
            return ready ? -1 : nobody_came(t, t->comm.rank + 1, e);
        if (!receive_guest(m, &fd, &h, name))
            continue;
        if (h.nonce != nonce || judge(t, &h, name, e)) {
            LOG(LOG_WARN, "sent away: a rank of another group", LOGS("address", name));
            close(fd);
            continue;
        }
        admit(m, (int)h.rank, fd);
        r++;
    }
    return 0;
}

static int join_meeting(struct meeting *m, struct err *e)
{
    struct welcome w = {0};
    if (ask_rank_0(m, &w, e))
        return -1;
    m->end_ms = clock_ms() + m->t->timeout_ms; /* all are there: a new beginning */
    return knock(m, &w, e) || let_in(m, w.nonce, e) ? -1 : 0;
}

int tcp_meet(struct tcp *t, const char *host, int port, struct err *e)
{
    struct meeting m = {.t = t,
                        .host = host,
                        .port = port,
                        .listener = -1,
                        .said_ms = clock_ms(),
                        .end_ms = clock_ms() + t->timeout_ms};
    int rc = t->comm.rank ? join_meeting(&m, e) : host_meeting(&m, e);
    if (m.listener >= 0)
        close(m.listener);
    return rc;
}
