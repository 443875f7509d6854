/* comm_tcp_accept.c - the listener's side of a meeting: any number of connections, of which only
 * a few are served at a time, each for a limited time. */
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/comm/comm_tcp_handshake.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS = 256, LOGGED = 16 }; /* connections taken at a time; dropped ones that are logged */

void acceptor_open(struct acceptor *l, const struct cluster *c)
{
    *l = (struct acceptor){.cluster = c, .listener = -1};
}

static void take_out(struct acceptor *l, int i)
{
    l->n--;
    memmove(&l->candidates[i], &l->candidates[i + 1],
            (size_t)(l->n - i) * sizeof(l->candidates[0]));
}

static void drop(struct acceptor *l, int i, const char *why)
{
    struct candidate *g = &l->candidates[i];
    if (l->n_dropped++ < LOGGED)
        LOG(LOG_WARN, "Connection dropped: it did not prove to be a rank",
            LOGS("address", g->p.name), LOGS("why", why));
    link_close(&g->p);
    take_out(l, i);
}

/* ---------------------------------------------------------------- one candidate */

enum { GOES_ON, IS_GONE, IS_DONE };

static int step_bytes(struct candidate *g, void *buf, size_t n, bool out, const char **why)
{
    while (g->at < n) {
        ssize_t k = out ? link_send(&g->p, (char *)buf + g->at, n - g->at)
                        : link_recv(&g->p, (char *)buf + g->at, n - g->at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return GOES_ON;
        if (k <= 0)
            return *why = "it hung up", IS_GONE;
        g->at += (size_t)k;
    }
    g->at = 0;
    return IS_DONE;
}

static int send_nonce(const struct acceptor *l, struct candidate *g, const char **why)
{
    struct greeting out = {.magic = GREETING_MAGIC, .kind = (uint32_t)l->cluster->kind};
    memcpy(out.nonce, g->nonce, sizeof(out.nonce));
    int rc = step_bytes(g, &out, sizeof(out), true, why);
    if (rc == IS_DONE && l->cluster->kind == CLUSTER_TLS && link_session(&g->p, l->cluster, true))
        return *why = "no memory", IS_GONE;
    return rc;
}

static int read_hello(const struct acceptor *l, struct candidate *g, const char **why)
{
    struct hello *h = &g->hello;
    uint8_t mac[CLUSTER_MAC];
    int rc = step_bytes(g, h, sizeof(*h), false, why);
    if (rc == GOES_ON && g->at >= sizeof(h->magic) && h->magic != GREETING_MAGIC)
        return *why = "it says something else", IS_GONE;
    if (rc != IS_DONE)
        return rc;
    h->version[sizeof(h->version) - 1] = '\0';
    if (h->magic != GREETING_MAGIC)
        return *why = "it says something else", IS_GONE;
    if (l->cluster->kind != CLUSTER_SECRET)
        return IS_DONE;
    if (!handshake_mac(l->cluster, "hello", g->nonce, h->nonce, h, offsetof(struct hello, mac),
                       mac) &&
        cluster_same(mac, h->mac, sizeof(mac)))
        return IS_DONE;
    acceptor_verdict(l, g, "the shared secret (--cluster-secret-file) is another one there");
    return *why = "wrong secret", IS_GONE;
}

/* As far as possible without waiting. */
static int advance(const struct acceptor *l, struct candidate *g, char text[256], const char **why)
{
    bool writes;
    int rc = GOES_ON;
    if (g->phase == CANDIDATE_NONCE && (rc = send_nonce(l, g, why)) == IS_DONE)
        g->phase = g->p.tls ? CANDIDATE_TLS : CANDIDATE_HELLO;
    if (g->phase == CANDIDATE_TLS) {
        int hands = link_handshake(&g->p, &writes, text, 256);
        if (hands < 0)
            return *why = text, IS_GONE;
        if (hands == 0)
            return GOES_ON;
        g->phase = CANDIDATE_HELLO;
    }
    if (g->phase == CANDIDATE_HELLO && (rc = read_hello(l, g, why)) == IS_DONE)
        g->phase = CANDIDATE_PROVED;
    return rc;
}

/* ---------------------------------------------------------------- all of them */

/* No connection may be dropped yet for one in the queue. */
static bool full(const struct acceptor *l)
{
    return l->n == MAX_CANDIDATES && clock_ms() < l->candidates[0].turn_ms;
}

static void let_in(struct acceptor *l)
{
    for (int i = 0; i < ACCEPTS && !full(l); i++) {
        struct sockaddr_storage a = {0};
        socklen_t n = sizeof(a);
        int fd = accept4(l->listener, (void *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (l->n == MAX_CANDIDATES)
            drop(l, 0, "others came, and it had said nothing");
        struct candidate *g = &l->candidates[l->n++];
        const int64_t now = clock_ms();
        *g = (struct candidate){
            .p = {.fd = fd}, .turn_ms = now + TURN_MS, .end_ms = now + CANDIDATE_MS};
        if (getnameinfo((void *)&a, n, g->p.name, TCP_NAME, NULL, 0, NI_NUMERICHOST))
            snprintf(g->p.name, TCP_NAME, "?");
        if (getrandom(g->nonce, sizeof(g->nonce), 0) != (ssize_t)sizeof(g->nonce))
            drop(l, l->n - 1, "no random numbers");
    }
}

int acceptor_poll(const struct acceptor *l, struct pollfd *fds)
{
    fds[0] = (struct pollfd){full(l) ? -1 : l->listener, POLLIN, 0};
    for (int i = 0; i < l->n; i++) {
        /* Data before the hello fits into an empty socket buffer. */
        fds[i + 1] = (struct pollfd){l->candidates[i].p.fd, POLLIN, 0};
    }
    return l->n + 1;
}

int64_t acceptor_deadline(const struct acceptor *l)
{
    return !l->n ? 0 : full(l) ? l->candidates[0].turn_ms : l->candidates[0].end_ms;
}

bool acceptor_turn(struct acceptor *l, struct candidate *out)
{
    let_in(l);
    for (int i = 0; i < l->n;) {
        struct candidate *g = &l->candidates[i];
        const char *why = "it was too slow";
        char text[256];
        int rc = advance(l, g, text, &why);
        if (rc == IS_DONE) {
            *out = *g;
            take_out(l, i);
            return true;
        }
        if (rc == IS_GONE || clock_ms() >= g->end_ms)
            drop(l, i, why);
        else
            i++;
    }
    return false;
}

int acceptor_verdict(const struct acceptor *l, struct candidate *g, const char *words)
{
    struct verdict v = {.magic = GREETING_MAGIC, .refused = words != NULL};
    if (words)
        snprintf(v.words, sizeof(v.words), "%s", words);
    if (l->cluster->kind == CLUSTER_SECRET && !words &&
        handshake_mac(l->cluster, "verdict", g->nonce, g->hello.nonce, &v,
                      offsetof(struct verdict, mac), v.mac))
        return -1;
    return link_transfer(&g->p, &v, sizeof(v), true, clock_ms() + CANDIDATE_MS);
}

void acceptor_close(struct acceptor *l)
{
    while (l->n) {
        link_close(&l->candidates[0].p);
        take_out(l, 0);
    }
    if (l->n_dropped > LOGGED)
        LOG(LOG_WARN, "Connections dropped that did not prove to be a rank",
            LOGI("number", l->n_dropped));
    if (l->listener >= 0)
        close(l->listener);
    l->listener = -1;
}
