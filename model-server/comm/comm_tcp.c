/* comm_tcp.c - collectives between processes of several hosts.
 *
 * Every rank has a connection to every other. A small sum is one exchange: all ranks send
 * everything and add in rank order. A larger one is two: rank r receives part r from every rank,
 * adds it, and sends the sum to all. This moves the minimum of bytes, 2 (n - 1) / n of the
 * message each way. The bits are those of comm_shm.c.
 *
 * An exchange sends to all and receives from all at once, so no rank waits for a rank that waits
 * for it. TCP keepalive detects a machine that vanished within SILENCE_S.
 *
 * A subset of the ranks uses the connections of the whole. Its ranks make their calls in one
 * order, and the header of each message identifies its communicator. */
#include "common/clock.h"
#include "model-server/comm/comm_group.h"
#include "model-server/comm/comm_tcp_link.h"
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };  /* floats summed at a time */
enum { SMALL = 2 * 1024 }; /* up to this size one exchange: latency dominates */
enum { SILENCE_S = 20 };   /* until a silent machine is considered gone */
enum { LOOK_MS = 100 };    /* interval of checks of all ranks while waiting for some */

static struct tcp *tcp_of(struct comm *c)
{
    return (struct tcp *)c; /* `comm` is its first field */
}

void tcp_tune(int fd)
{
    const struct {
        int level, name, value;
    } all[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
               {SOL_SOCKET, SO_KEEPALIVE, 1},
               {IPPROTO_TCP, TCP_KEEPIDLE, SILENCE_S / 4},
               {IPPROTO_TCP, TCP_KEEPINTVL, SILENCE_S / 4},
               {IPPROTO_TCP, TCP_KEEPCNT, 3},
               {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_S * 1000}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        setsockopt(fd, all[i].level, all[i].name, &all[i].value, sizeof(all[i].value));
}

/* ---------------------------------------------------------------- an exchange */

/* Per peer: data to send and to receive. */
struct comm_lane {
    bool sends, receives;
    struct tcp_head send_head, recv_head, want;
    const char *out;
    char *in;
    size_t out_bytes, in_bytes; /* without heads */
    size_t sent, received;      /* with heads */
};

static size_t all_out(const struct comm_lane *l)
{
    return l->sends ? sizeof(l->send_head) + l->out_bytes : 0;
}

static size_t all_in(const struct comm_lane *l)
{
    return l->receives ? sizeof(l->recv_head) + l->in_bytes : 0;
}

static struct tcp_peer *peer_of(const struct tcp *t, int rank)
{
    return &t->links->peers[t->numbers[rank]];
}

enum { RECORD = 16384 }; /* most bytes of a TLS record */

static int lost(const struct tcp *t, int rank, int why, struct err *e)
{
    const struct tcp_peer *p = peer_of(t, rank);
    const int number = t->numbers[rank];
    if (p->left)
        return err_set(e, ERR_SYSTEM, "rank %d (%s) has left", number, p->name);
    if (why)
        return err_set(e, ERR_SYSTEM, "rank %d (%s) is lost: %s", number, p->name,
                       strerror(why)); // NOLINT(concurrency-mt-unsafe): glibc's is safe
    return err_set(e, ERR_SYSTEM, "rank %d (%s) died", number, p->name);
}

static int send_failed(const struct tcp *t, int rank, struct err *e)
{
    return errno == EAGAIN                         ? 0
           : errno == EPIPE || errno == ECONNRESET ? lost(t, rank, 0, e)
                                                   : lost(t, rank, errno, e);
}

/* The header and the following data are one record, so that a small sum is one record. */
static int send_records(struct tcp *t, int rank, struct comm_lane *l, struct err *e)
{
    const size_t head = sizeof(l->send_head), all = all_out(l);
    char first[RECORD];
    while (l->sent < all) {
        const char *p = l->out + (l->sent - head);
        size_t n = all - l->sent < RECORD ? all - l->sent : RECORD;
        if (l->sent == 0) {
            memcpy(first, &l->send_head, head);
            if (n > head)
                memcpy(first + head, l->out, n - head);
            p = first;
        }
        ssize_t k = link_send(peer_of(t, rank), p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return send_failed(t, rank, e);
        l->sent += (size_t)k;
    }
    return 0;
}

static int send_some(struct tcp *t, int rank, struct comm_lane *l, struct err *e)
{
    if (peer_of(t, rank)->tls)
        return send_records(t, rank, l, e);
    const size_t head = sizeof(l->send_head), all = all_out(l);
    while (l->sent < all) {
        struct iovec v[2] = {{(char *)&l->send_head + l->sent, 0}, {NULL, 0}};
        size_t body = l->sent > head ? l->sent - head : 0;
        v[0].iov_len = l->sent < head ? head - l->sent : 0;
        v[1] = (struct iovec){(char *)(uintptr_t)l->out + body, l->out_bytes - body};
        if (!v[0].iov_len)
            v[0].iov_base = NULL;
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = sendmsg(peer_of(t, rank)->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return send_failed(t, rank, e);
        l->sent += (size_t)n;
    }
    return 0;
}

static int check_head(const struct tcp *t, int rank, const struct comm_lane *l, struct err *e)
{
    const struct tcp_head *got = &l->recv_head, *want = &l->want;
    const char *name = peer_of(t, rank)->name;
    const int number = t->numbers[rank];
    if (got->number == TCP_BYE) {
        peer_of(t, rank)->left = true;
        return err_set(e, ERR_SYSTEM, "rank %d (%s) has left", number, name);
    }
    if (got->number != want->number || got->part != want->part || got->bytes != want->bytes)
        return err_set(e, ERR_SYSTEM,
                       "rank %d (%s) is at %s %u with %llu bytes, this one at %s %u with %zu: "
                       "are model and options the same on all machines?",
                       number, name, got->part & TCP_MESSAGE ? "message" : "collective",
                       got->number, (unsigned long long)got->bytes,
                       want->part & TCP_MESSAGE ? "message" : "collective", want->number,
                       l->in_bytes);
    return 0;
}

static int receive_some(struct tcp *t, int rank, struct comm_lane *l, struct err *e)
{
    const size_t head = sizeof(l->recv_head), all = all_in(l);
    while (l->received < all) {
        bool in_head = l->received < head;
        char *to = in_head ? (char *)&l->recv_head + l->received : l->in + (l->received - head);
        size_t want = in_head ? head - l->received : all - l->received;
        ssize_t n = link_recv(peer_of(t, rank), to, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return lost(t, rank, n < 0 && errno != ECONNRESET ? errno : 0, e);
        l->received += (size_t)n;
        if (in_head && l->received == head && check_head(t, rank, l, e))
            return -1;
    }
    return 0;
}

static bool lane_done(const struct comm_lane *l)
{
    return l->sent == all_out(l) && l->received == all_in(l);
}

/* Ranks with unfinished lanes, for poll(). */
static int unfinished(const struct tcp *t, const struct comm_lane *lanes, struct pollfd *fds,
                      int *ranks)
{
    int n = 0;
    for (int r = 0; r < t->comm.world; r++) {
        const struct comm_lane *l = &lanes[r];
        if (lane_done(l))
            continue;
        const int in = l->received < all_in(l) ? POLLIN : 0;
        const int out = l->sent < all_out(l) ? POLLOUT : 0;
        fds[n] = (struct pollfd){peer_of(t, r)->fd, (short)(in | out), 0};
        ranks[n++] = r;
    }
    return n;
}

/* One step of a lane that poll() reported. */
static int go_on(struct tcp *t, int rank, struct comm_lane *l, short events, struct err *e)
{
    if (events & POLLOUT && send_some(t, rank, l, e))
        return -1;
    if (l->received < all_in(l) && events & ~POLLOUT)
        return receive_some(t, rank, l, e);
    return events & (POLLERR | POLLHUP) ? lost(t, rank, 0, e) : 0;
}

/* Checks ranks that are not waited for here: one may have died, which is why another one is late.
 * One with unread final bytes may have left in order. */
static int check_others(const struct tcp *t, int64_t *next_ms, struct err *e)
{
    const struct tcp *all = t->links;
    const int64_t now = clock_ms();
    if (now < *next_ms)
        return 0;
    *next_ms = now + LOOK_MS;
    for (int r = 0; r < all->comm.world; r++) {
        struct pollfd p = {all->peers[r].fd, POLLRDHUP, 0};
        char byte;
        if (r != all->comm.rank && poll(&p, 1, 0) > 0 &&
            recv(p.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            return lost(all, r, 0, e);
    }
    return 0;
}

static int run_lanes(struct tcp *t, struct comm_lane *lanes, struct err *e)
{
    struct pollfd fds[TCP_MAX_WORLD];
    int ranks[TCP_MAX_WORLD], n;
    const int64_t end_ms = clock_ms() + t->timeout_ms;
    int64_t look_ms = clock_ms() + LOOK_MS;
    for (int r = 0; r < t->comm.world; r++)
        if (!lane_done(&lanes[r]) &&
            (send_some(t, r, &lanes[r], e) ||
             (peer_of(t, r)->tls && receive_some(t, r, &lanes[r], e)))) /* what lies in the session
                                                                         */
            return -1;
    while ((n = unfinished(t, lanes, fds, ranks)) > 0) {
        int64_t left = end_ms - clock_ms();
        if (left <= 0)
            return err_set(e, ERR_SYSTEM, "rank %d (%s) did not arrive within %g s",
                           t->numbers[ranks[0]], peer_of(t, ranks[0])->name,
                           t->timeout_ms / 1000.0);
        if (poll(fds, (nfds_t)n, (int)(left < LOOK_MS ? left : LOOK_MS)) < 0 && errno != EINTR)
            return err_sys(e, "poll");
        for (int i = 0; i < n; i++)
            if (fds[i].revents && go_on(t, ranks[i], &lanes[ranks[i]], fds[i].revents, e))
                return -1;
        if (check_others(t, &look_ms, e))
            return -1;
    }
    return 0;
}

/* The first failure is permanent, for all users of these connections. */
static int run_held(struct tcp *t, struct comm_lane *lanes, struct err *e)
{
    struct tcp *links = t->links;
    if (links->broken.kind == ERR_NONE) {
        pthread_mutex_lock(&links->sessions);
        int rc = run_lanes(t, lanes, &links->broken);
        pthread_mutex_unlock(&links->sessions);
        if (!rc)
            return 0;
    }
    *e = links->broken;
    return -1;
}

static uint32_t next_number(uint32_t n) { return n + 1 == TCP_BYE ? 1 : n + 1; }

/* Receives out[r] from rank r and sends it in[r]. */
static int exchange(struct tcp *t, struct comm_lane *lanes, struct err *e)
{
    if (t->links->broken.kind == ERR_NONE)
        t->number = next_number(t->number);
    for (int r = 0; r < t->comm.world; r++) {
        struct comm_lane *l = &lanes[r];
        l->sends = l->receives = r != t->comm.rank;
        l->send_head = (struct tcp_head){t->number, t->part, l->out_bytes};
        l->want = (struct tcp_head){t->number, t->part, l->in_bytes};
    }
    return run_held(t, lanes, e);
}

/* ---------------------------------------------------------------- messages */

static int tcp_send(struct comm *c, int to, const float *x, size_t n, struct err *e)
{
    struct tcp *t = tcp_of(c);
    assert(to >= 0 && to < c->world && to != c->rank);
    struct comm_lane lanes[TCP_MAX_WORLD] = {0}, *l = &lanes[to];
    l->sends = true;
    l->out = (const char *)x;
    l->out_bytes = n * sizeof(*x);
    l->send_head = (struct tcp_head){t->sent[to] = next_number(t->sent[to]), t->part | TCP_MESSAGE,
                                     l->out_bytes};
    return run_held(t, lanes, e) ? err_wrap(e, "send") : 0;
}

static int tcp_recv(struct comm *c, int from, float *x, size_t n, struct err *e)
{
    struct tcp *t = tcp_of(c);
    assert(from >= 0 && from < c->world && from != c->rank);
    struct comm_lane lanes[TCP_MAX_WORLD] = {0}, *l = &lanes[from];
    l->receives = true;
    l->in = (char *)x;
    l->in_bytes = n * sizeof(*x);
    l->want = (struct tcp_head){t->got[from] = next_number(t->got[from]), t->part | TCP_MESSAGE,
                                l->in_bytes};
    return run_held(t, lanes, e) ? err_wrap(e, "receive") : 0;
}

/* ---------------------------------------------------------------- collectives */

/* Sends all of `in` to every rank; out: [world][n]. */
static int everything(struct tcp *t, const float *in, float *out, size_t n, size_t stride,
                      struct err *e)
{
    struct comm_lane lanes[TCP_MAX_WORLD] = {0};
    for (int r = 0; r < t->comm.world; r++) {
        lanes[r].out = (const char *)in;
        lanes[r].in = (char *)(out + (size_t)r * stride);
        lanes[r].out_bytes = lanes[r].in_bytes = n * sizeof(float);
    }
    if (lanes[t->comm.rank].in != lanes[t->comm.rank].out)
        memcpy(lanes[t->comm.rank].in, in, n * sizeof(float));
    return exchange(t, lanes, e);
}

static int room(struct tcp *t, size_t n, struct err *e)
{
    if (n <= t->cap)
        return 0;
    float *fresh = realloc(t->parts, n * sizeof(*fresh));
    if (!fresh)
        return err_nomem(e);
    t->parts = fresh, t->cap = n;
    return 0;
}

/* y = the sum over ranks, in order, of their n floats in t->parts; this rank's are in `own`,
 * which may be y. */
static void add_up(const struct tcp *t, float *y, const float *own, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = t->comm.rank ? t->parts[i] : own[i];
        for (int r = 1; r < t->comm.world; r++)
            sum += r == t->comm.rank ? own[i] : t->parts[(size_t)r * n + i];
        y[i] = sum;
    }
}

/* First element of a rank's share of n. */
static size_t share(const struct tcp *t, size_t n, int rank)
{
    return n * (size_t)rank / (size_t)t->comm.world;
}

static int reduce_shares(struct tcp *t, float *x, size_t n, struct err *e)
{
    struct comm_lane lanes[TCP_MAX_WORLD] = {0};
    const size_t first = share(t, n, t->comm.rank), mine = share(t, n, t->comm.rank + 1) - first;
    for (int r = 0; r < t->comm.world; r++) {
        size_t at = share(t, n, r);
        lanes[r].out = (const char *)(x + at);
        lanes[r].out_bytes = (share(t, n, r + 1) - at) * sizeof(float);
        lanes[r].in = (char *)(t->parts + (size_t)r * mine);
        lanes[r].in_bytes = mine * sizeof(float);
    }
    if (exchange(t, lanes, e))
        return -1;
    add_up(t, x + first, x + first, mine);
    for (int r = 0; r < t->comm.world; r++) { /* the way back */
        struct comm_lane l = {.out = (const char *)(x + first), .out_bytes = mine * sizeof(float)};
        l.in = (char *)(x + share(t, n, r));
        l.in_bytes = lanes[r].out_bytes;
        lanes[r] = l;
    }
    return exchange(t, lanes, e);
}

static int tcp_all_reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    struct tcp *t = tcp_of(c);
    for (size_t at = 0, len; at < n; at += len) {
        len = n - at < CHUNK ? n - at : CHUNK;
        bool small = len <= SMALL;
        /* shares differ by one element */
        int rc = room(t, small ? len * (size_t)c->world : len + (size_t)c->world, e);
        if (!rc && small && !(rc = everything(t, x + at, t->parts, len, len, e)))
            add_up(t, x + at, x + at, len);
        else if (!rc && !small)
            rc = reduce_shares(t, x + at, len, e);
        if (rc)
            return err_wrap(e, "all_reduce");
    }
    return 0;
}

static int tcp_all_gather(struct comm *c, const float *in, float *out, size_t n, struct err *e)
{
    return everything(tcp_of(c), in, out, n, n, e) ? err_wrap(e, "all_gather") : 0;
}

static int tcp_barrier(struct comm *c, struct err *e)
{
    float here = 0, all[TCP_MAX_WORLD];
    return everything(tcp_of(c), &here, all, 1, 1, e) ? err_wrap(e, "barrier") : 0;
}

/* A rank's connection has ended: did the rank say goodbye? With the lock. What it sent before may
 * be unread, but no exchange will read it. */
static bool said_goodbye(struct tcp_peer *p)
{
    struct tcp_head last = {0};
    if (p->left)
        return true;
    const ssize_t n = p->tls ? link_recv(p, &last, sizeof(last))
                             : recv(p->fd, &last, sizeof(last), MSG_PEEK | MSG_DONTWAIT);
    return p->left = n == sizeof(last) && last.number == TCP_BYE;
}

/* An exchange in progress reads goodbyes itself, and finds the ranks that are gone. */
static int tcp_check(struct comm *c, struct err *e)
{
    struct tcp *t = tcp_of(c)->links;
    int gone = -1, rc = 0;
    if (pthread_mutex_trylock(&t->sessions))
        return 0;
    for (int r = 0; r < t->comm.world && !rc; r++) {
        struct pollfd p = {t->peers[r].fd, POLLRDHUP, 0};
        if (r == t->comm.rank || poll(&p, 1, 0) <= 0)
            continue;
        if (!said_goodbye(&t->peers[r]))
            rc = lost(t, r, 0, e);
        else if (gone < 0)
            gone = r;
    }
    pthread_mutex_unlock(&t->sessions);
    if (rc || gone < 0)
        return rc;
    err_set(e, ERR_SYSTEM, "rank %d (%s) has left", gone, t->peers[gone].name);
    return COMM_LEFT + gone;
}

static void tcp_close(struct comm *c)
{
    struct tcp *t = tcp_of(c);
    const struct tcp_head bye = {TCP_BYE, 0, 0};
    for (int r = 0; r < c->world; r++) {
        if (t->peers[r].fd < 0)
            continue;
        if (t->broken.kind == ERR_NONE && !c->failed) /* else it is not the end of a message */
            (void)!link_send(&t->peers[r], &bye, sizeof(bye));
        link_close(&t->peers[r]);
    }
    pthread_mutex_destroy(&t->sessions);
    free(t->parts);
    free(t);
}

/* Of a part: the connections are another's. */
static void part_close(struct comm *c)
{
    free(tcp_of(c)->parts);
    free(tcp_of(c));
}

static struct comm *tcp_split(struct comm *c, const struct comm_group *g, struct err *e);

static const struct comm_ops tcp_ops = {tcp_all_reduce, tcp_all_gather, tcp_barrier, tcp_check,
                                        tcp_close,      tcp_send,       tcp_recv,    tcp_split};

static struct comm *tcp_split(struct comm *c, const struct comm_group *g, struct err *e)
{
    static const struct comm_ops ops = {tcp_all_reduce, tcp_all_gather, tcp_barrier, tcp_check,
                                        part_close,     tcp_send,       tcp_recv,    tcp_split};
    struct tcp *of = tcp_of(c), *t;
    int numbers[TCP_MAX_WORLD];
    for (int i = 0; i < g->n; i++)
        numbers[i] = of->numbers[g->ranks[i]];
    if (g->nodes == 1)
        return comm_shm_group(g, numbers, of->timeout_ms, e);
    if (!(t = calloc(1, sizeof(*t))))
        return err_nomem(e), NULL;
    t->comm = (struct comm){&ops, g->me, g->n, g->nodes, false, g->whole};
    t->links = of->links;
    t->timeout_ms = of->timeout_ms;
    t->part = (uint32_t)g->name & ~TCP_MESSAGE;
    memcpy(t->numbers, numbers, sizeof(numbers));
    return &t->comm;
}

struct comm *comm_tcp_open(const struct comm_tcp_options *o, struct err *e)
{
    if (o->world < 1 || o->world > TCP_MAX_WORLD || o->rank < 0 || o->rank >= o->world ||
        o->nodes < 1 || o->world % o->nodes || o->port < 1 || o->port > 65535) {
        err_set(e, ERR_VALIDATION,
                "rank %d of %d on %d machines, port %d: there may be 1 to %d ranks, as many on "
                "each machine",
                o->rank, o->world, o->nodes, o->port, TCP_MAX_WORLD);
        return NULL;
    }
    struct tcp *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e), NULL;
    t->comm = (struct comm){&tcp_ops, o->rank, o->world, o->nodes, false, NULL};
    t->timeout_ms = o->timeout_ms;
    t->links = t;
    static const struct cluster open_to_all;
    t->cluster = o->cluster ? o->cluster : &open_to_all;
    pthread_mutex_init(&t->sessions, NULL);
    for (int r = 0; r < TCP_MAX_WORLD; r++) {
        t->peers[r].fd = -1;
        t->numbers[r] = r;
    }
    if (!tcp_meet(t, o->host, o->port, e) && !tcp_barrier(&t->comm, e)) /* all go on together */
        return &t->comm;
    err_wrap(e, "rank %d of %d, meeting at %s:%d", o->rank, o->world, o->host, o->port);
    tcp_close(&t->comm);
    return NULL;
}

const char *comm_tcp_address(const struct comm *c, int rank)
{
    const struct tcp *t = (const struct tcp *)c;
    return rank == c->rank ? t->address : t->peers[rank].name;
}
