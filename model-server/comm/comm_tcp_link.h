/* comm_tcp_link.h - one connection between two ranks: its bytes, with TLS or without, and the
 * handshake that authenticates both sides. Private to comm/.
 *
 *   listener -> greeting {kind, nonce}          in the clear
 *   TLS handshake, both certificates            CLUSTER_TLS
 *   candidate    -> hello {who, nonce, mac}         CLUSTER_SECRET: HMAC over the listener's nonce
 *   listener -> verdict {words, mac}            CLUSTER_SECRET: HMAC over the candidate's nonce
 *
 * A connection without a valid hello after CANDIDATE_MS is closed, and there are at most
 * MAX_CANDIDATES of them. A new one replaces the oldest, but not before that had TURN_MS. Until
 * then others wait in the listener's queue. So many connections are served in order, and a rank
 * among them, too. */
#ifndef MODEL_SERVER_COMM_COMM_TCP_LINK_H
#define MODEL_SERVER_COMM_COMM_TCP_LINK_H
#include "common/net/cluster.h"
#include "model-server/comm/comm_tcp.h"
#include <poll.h>
#include <sys/types.h>

enum { CANDIDATE_MS = 5000, TURN_MS = 500, QUEUE_MS = 15000, MAX_CANDIDATES = 64 };

struct hello {
    uint64_t magic, group; /* group 0: to rank 0 */
    uint32_t world, nodes, rank, port;
    char version[48];
    uint8_t nonce[CLUSTER_NONCE];
    uint8_t mac[CLUSTER_MAC];
};

/* Bytes of a non-blocking connection: like send() and recv(), with errno. */
ssize_t link_send(struct tcp_peer *p, const void *buf, size_t n);
ssize_t link_recv(struct tcp_peer *p, void *buf, size_t n);
/* Transfers all n bytes until end_ms: 0, else -1 with errno; a closed connection is
 * ECONNRESET. */
int link_transfer(struct tcp_peer *p, void *buf, size_t n, bool out, int64_t end_ms);
/* Ends the session in order, if possible, and closes. */
void link_close(struct tcp_peer *p);

/* The candidate's side, on a new connection p->fd. Waits for the listener's greeting until
 * queue_end_ms, at most QUEUE_MS. 0: both sides are authenticated. LINK_AGAIN: the connection
 * broke or was silent, another one may succeed. LINK_REFUSED: none will. */
enum { LINK_AGAIN = 1, LINK_REFUSED = -1 };
int link_introduce(struct tcp_peer *p, const struct cluster *c, struct hello *h,
                   int64_t queue_end_ms, struct err *e);

/* The listener's side: unauthenticated connections. */
struct candidate {
    struct tcp_peer p;
    enum { CANDIDATE_NONCE, CANDIDATE_TLS, CANDIDATE_HELLO, CANDIDATE_PROVED } phase;
    /* when it may be dropped for another one, and when it is dropped in any case */
    int64_t turn_ms, end_ms;
    size_t at;
    uint8_t nonce[CLUSTER_NONCE];
    struct hello hello;
};
struct acceptor {
    const struct cluster *cluster;
    int listener;
    int n;
    unsigned n_dropped;
    struct candidate candidates[MAX_CANDIDATES]; /* oldest first */
};

/* the listener is set by the caller */
void acceptor_open(struct acceptor *l, const struct cluster *c);
/* poll() descriptors: the listener and the candidates; their number. */
int acceptor_poll(const struct acceptor *l, struct pollfd *fds);
int64_t acceptor_deadline(const struct acceptor *l); /* time of the next acceptor_turn(); 0: none */
/* Call it after poll(): accepts, continues and drops connections. True: a peer is authenticated,
 * and the caller owns its connection *out, which waits for acceptor_verdict(). Call until
 * false. */
bool acceptor_turn(struct acceptor *l, struct candidate *out);
/* Answers an authenticated candidate: words NULL accepts it; else they are the reason for a
 * refusal. -1: it has disconnected. */
int acceptor_verdict(const struct acceptor *l, struct candidate *g, const char *words);
void acceptor_close(struct acceptor *l); /* the candidates and the listener */
#endif
