#include "model-server/comm/comm_tcp_link.h"
#include "common/clock.h"
#include "model-server/comm/comm_tcp_handshake.h"
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---------------------------------------------------------------- bytes */

static ssize_t tls_result(ssize_t n)
{
    if (n >= 0)
        return n;
    errno = n == GNUTLS_E_AGAIN         ? EAGAIN
            : n == GNUTLS_E_INTERRUPTED ? EINTR
            : n == GNUTLS_E_PREMATURE_TERMINATION || n == GNUTLS_E_PULL_ERROR ||
                    n == GNUTLS_E_PUSH_ERROR || n == GNUTLS_E_INVALID_SESSION
                ? ECONNRESET
                : EPROTO;
    return -1;
}

/* The library keeps a record that did not fit, and sends it again without its data. */
static ssize_t tls_send(struct tcp_peer *p, const void *buf, size_t n)
{
    ssize_t k = gnutls_record_send(p->tls, p->resends ? NULL : buf, p->resends ? 0 : n);
    p->resends = k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED;
    return tls_result(k);
}

ssize_t link_send(struct tcp_peer *p, const void *buf, size_t n)
{
    return p->tls ? tls_send(p, buf, n) : send(p->fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t link_recv(struct tcp_peer *p, void *buf, size_t n)
{
    return p->tls ? tls_result(gnutls_record_recv(p->tls, buf, n))
                  : recv(p->fd, buf, n, MSG_DONTWAIT);
}

/* 1: ready, 0: timeout, -1 with errno. */
static int wait_fd(int fd, bool out, int64_t end_ms)
{
    for (;;) {
        struct pollfd p = {fd, out ? POLLOUT : POLLIN, 0};
        int64_t left = end_ms - clock_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready >= 0 || errno != EINTR)
            return ready;
    }
}

int link_transfer(struct tcp_peer *p, void *buf, size_t n, bool out, int64_t end_ms)
{
    for (size_t at = 0; at < n;) {
        ssize_t k =
            out ? link_send(p, (char *)buf + at, n - at) : link_recv(p, (char *)buf + at, n - at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN) {
            int ready = wait_fd(p->fd, out, end_ms);
            if (ready <= 0)
                return errno = ready ? errno : ETIMEDOUT, -1;
            continue;
        }
        if (k <= 0)
            return errno = k ? errno : ECONNRESET, -1;
        at += (size_t)k;
    }
    return 0;
}

void link_close(struct tcp_peer *p)
{
    if (p->tls) {
        if (!p->resends)
            gnutls_bye(p->tls, GNUTLS_SHUT_WR);
        gnutls_deinit(p->tls);
    }
    if (p->fd >= 0)
        close(p->fd);
    p->tls = NULL;
    p->fd = -1;
}

/* ---------------------------------------------------------------- TLS */

int link_session(struct tcp_peer *p, const struct cluster *c, bool listens)
{
    /* 128 bits first: the cipher limits large sums. */
    static const char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:"
                                   "+AES-256-GCM:+CHACHA20-POLY1305";
    unsigned flags = listens ? GNUTLS_SERVER | GNUTLS_NO_TICKETS : GNUTLS_CLIENT;
    if (gnutls_init(&p->tls, flags | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return -1;
    if (gnutls_priority_set_direct(p->tls, versions, NULL) < 0 ||
        gnutls_credentials_set(p->tls, GNUTLS_CRD_CERTIFICATE, c->cred) < 0)
        return -1;
    if (listens)
        gnutls_certificate_server_set_request(p->tls, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_cert(p->tls, c->name, 0);
    gnutls_transport_set_int(p->tls, p->fd);
    return 0;
}

int link_handshake(struct tcp_peer *p, bool *writes, char *why, size_t cap)
{
    int rc = gnutls_handshake(p->tls);
    if (rc == 0)
        return 1;
    *writes = gnutls_record_get_direction(p->tls);
    if (!gnutls_error_is_fatal(rc))
        return 0;
    gnutls_datum_t text = {0};
    if (rc == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(p->tls),
                                                     GNUTLS_CRT_X509, &text, 0);
    snprintf(why, cap, "%s", text.data ? (char *)text.data : gnutls_strerror(rc));
    gnutls_free(text.data);
    tls_result(rc);
    if (errno != ECONNRESET) /* the other side gets the reason */
        gnutls_alert_send_appropriate(p->tls, rc);
    return -1;
}

/* ---------------------------------------------------------------- the candidate's side */

static int greeted(struct tcp_peer *p, const struct cluster *c, const struct greeting *g,
                   struct err *e)
{
    static const char *const kinds[] = {"nothing", "a shared secret (--cluster-secret-file)",
                                        "certificates (--cluster-cert)"};
    if (g->magic != GREETING_MAGIC)
        return err_set(e, ERR_SYSTEM, "%s is no rank of this program, or of another version",
                       p->name);
    if (g->kind != (uint32_t)c->kind)
        return err_set(e, ERR_VALIDATION,
                       "%s proves itself by %s, this rank by %s: are the flags the same on all "
                       "machines?",
                       p->name, g->kind < 3 ? kinds[g->kind] : "something else", kinds[c->kind]);
    return 0;
}

static int shake_hands(struct tcp_peer *p, const struct cluster *c, int64_t end_ms, struct err *e)
{
    char why[256];
    bool writes = false;
    int rc;
    if (link_session(p, c, false))
        return err_nomem(e);
    while (!(rc = link_handshake(p, &writes, why, sizeof(why))))
        if (wait_fd(p->fd, writes, end_ms) <= 0)
            return LINK_AGAIN;
    if (rc > 0)
        return 0;
    return errno == ECONNRESET ? LINK_AGAIN : err_set(e, ERR_SYSTEM, "%s: TLS: %s", p->name, why);
}

/* The listener's answer to the hello. In TLS 1.3 a candidate also detects here that its own
 * certificate was not accepted. */
static int read_verdict(struct tcp_peer *p, const struct cluster *c, const struct greeting *g,
                        const struct hello *h, int64_t end_ms, struct err *e)
{
    struct verdict v;
    uint8_t mac[CLUSTER_MAC];
    if (link_transfer(p, &v, sizeof(v), false, end_ms)) {
        if (errno != EPROTO)
            return LINK_AGAIN;
        return err_set(e, ERR_SYSTEM, "%s does not accept this rank's certificate (%s)", p->name,
                       gnutls_alert_get_name(gnutls_alert_get(p->tls)));
    }
    v.words[sizeof(v.words) - 1] = '\0';
    if (v.refused)
        return err_set(e, ERR_SYSTEM, "%s", v.words);
    if (c->kind == CLUSTER_SECRET &&
        (handshake_mac(c, "verdict", g->nonce, h->nonce, &v, offsetof(struct verdict, mac), mac) ||
         !cluster_same(mac, v.mac, sizeof(mac))))
        return err_set(e, ERR_SYSTEM, "%s does not know the secret (--cluster-secret-file)",
                       p->name);
    return 0;
}

int link_introduce(struct tcp_peer *p, const struct cluster *c, struct hello *h,
                   int64_t queue_end_ms, struct err *e)
{
    struct greeting g;
    int rc;
    const int64_t most_ms = clock_ms() + QUEUE_MS; /* there may be a crowd */
    if (link_transfer(p, &g, sizeof(g), false, queue_end_ms < most_ms ? queue_end_ms : most_ms))
        return LINK_AGAIN;
    const int64_t end_ms = clock_ms() + CANDIDATE_MS;
    if (greeted(p, c, &g, e))
        return LINK_REFUSED;
    if (c->kind == CLUSTER_TLS && (rc = shake_hands(p, c, end_ms, e)))
        return rc;
    if (getrandom(h->nonce, sizeof(h->nonce), 0) != (ssize_t)sizeof(h->nonce))
        return err_sys(e, "getrandom");
    memset(h->mac, 0, sizeof(h->mac));
    if (c->kind == CLUSTER_SECRET &&
        handshake_mac(c, "hello", g.nonce, h->nonce, h, offsetof(struct hello, mac), h->mac))
        return err_nomem(e);
    if (link_transfer(p, h, sizeof(*h), true, end_ms))
        return LINK_AGAIN;
    return read_verdict(p, c, &g, h, end_ms, e);
}
