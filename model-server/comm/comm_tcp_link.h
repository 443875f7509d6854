/* comm_tcp_link.h - one connection between two ranks: its bytes, with TLS or without, and the
 * greeting by which each side proves that it belongs to the group. Private to comm/.
 *
 *   listener -> greeting {kind, nonce}          in the clear
 *   TLS handshake, both certificates            CLUSTER_TLS
 *   candidate    -> hello {who, nonce, mac}         CLUSTER_SECRET: HMAC over the listener's nonce
 *   listener -> verdict {words, mac}            CLUSTER_SECRET: HMAC over the candidate's nonce
 *
 * A connection that has not sent a proper hello within CANDIDATE_MS is closed, and there are never
 * more than MAX_CANDIDATES of them: the oldest makes room, but not before it had TURN_MS. Until
 * then others wait in the listener's queue, so that a crowd gets its turn in order, and a rank in
 * it. */
#ifndef MODEL_SERVER_COMM_COMM_TCP_LINK_H
#define MODEL_SERVER_COMM_COMM_TCP_LINK_H
#include "common/cluster.h"
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

/* Bytes of a connection, which does not block: as send() and recv(), with errno. */
ssize_t link_send(struct tcp_peer *p, const void *buf, size_t n);
ssize_t link_recv(struct tcp_peer *p, void *buf, size_t n);
/* All n bytes by end_ms: 0, else -1 with errno; 0 bytes of a closed connection are ECONNRESET. */
int link_transfer(struct tcp_peer *p, void *buf, size_t n, bool out, int64_t end_ms);
/* Ends the session in order, if it still can, and closes. */
void link_close(struct tcp_peer *p);

/* The candidate's side, on a fresh connection p->fd; the listener's greeting is waited for until
 * queue_end_ms, at most QUEUE_MS. 0: both have proved themselves. LINK_AGAIN: the
 * connection broke or said nothing, another one may do better. LINK_REFUSED: it will not. */
enum { LINK_AGAIN = 1, LINK_REFUSED = -1 };
int link_introduce(struct tcp_peer *p, const struct cluster *c, struct hello *h,
                   int64_t queue_end_ms, struct err *e);

/* The listener's side: connections that have not proved themselves. */
struct candidate {
    struct tcp_peer p;
    enum { CANDIDATE_NONCE, CANDIDATE_TLS, CANDIDATE_HELLO, CANDIDATE_PROVED } phase;
    int64_t turn_ms, end_ms; /* when it may be dropped for another, and when it is in any case */
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

void acceptor_open(struct acceptor *l,
                   const struct cluster *c); /* the listener is set by the caller */
/* poll() descriptors: the listener and the candidates; their number. */
int acceptor_poll(const struct acceptor *l, struct pollfd *fds);
int64_t
acceptor_deadline(const struct acceptor *l); /* when acceptor_turn() is due again; 0: never */
/* After poll(): lets in, goes on, drops. True: a peer is known, *out is its connection (the
 * caller's), which waits for acceptor_verdict(). Call until false. */
bool acceptor_turn(struct acceptor *l, struct candidate *out);
/* Answers a known candidate: words NULL, it is welcome; else why not. -1: it has gone. */
int acceptor_verdict(const struct acceptor *l, struct candidate *g, const char *words);
void acceptor_close(struct acceptor *l); /* the candidates and the listener */
#endif
