/* comm_tcp_link.h - one connection between two ranks: its bytes, with TLS or without, and the
 * greeting by which each side proves that it belongs to the group. Private to comm/.
 *
 *   listener -> greeting {kind, nonce}          in the clear
 *   TLS handshake, both certificates            CLUSTER_TLS
 *   guest    -> hello {who, nonce, mac}         CLUSTER_SECRET: HMAC over the listener's nonce
 *   listener -> verdict {words, mac}            CLUSTER_SECRET: HMAC over the guest's nonce
 *
 * A connection that has not sent a proper hello within GUEST_MS is closed, and there are never more
 * than MAX_GUESTS of them: the oldest makes room, but not before it had TURN_MS. Until then others
 * wait in the listener's queue, so that a crowd gets its turn in order, and a rank in it. */
#ifndef MODEL_SERVER_COMM_COMM_TCP_LINK_H
#define MODEL_SERVER_COMM_COMM_TCP_LINK_H
#include "common/cluster.h"
#include "model-server/comm/comm_tcp.h"
#include <poll.h>
#include <sys/types.h>

enum { GUEST_MS = 5000, TURN_MS = 500, QUEUE_MS = 15000, MAX_GUESTS = 64 };

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

/* The guest's side, on a fresh connection p->fd; the listener's greeting is waited for until
 * queue_end_ms, at most QUEUE_MS. 0: both have proved themselves. LINK_AGAIN: the
 * connection broke or said nothing, another one may do better. LINK_REFUSED: it will not. */
enum { LINK_AGAIN = 1, LINK_REFUSED = -1 };
int link_introduce(struct tcp_peer *p, const struct cluster *c, struct hello *h,
                   int64_t queue_end_ms, struct err *e);

/* The listener's side: connections that have not proved themselves. */
struct guest {
    struct tcp_peer p;
    enum { GUEST_GREETS, GUEST_SHAKES_HANDS, GUEST_SAYS_HELLO, GUEST_IS_KNOWN } phase;
    int64_t turn_ms, end_ms; /* when it may be dropped for another, and when it is in any case */
    size_t at;
    uint8_t nonce[CLUSTER_NONCE];
    struct hello hello;
};
struct lobby {
    const struct cluster *cluster;
    int listener;
    int n;
    unsigned n_dropped;
    struct guest guests[MAX_GUESTS]; /* oldest first */
};

void lobby_open(struct lobby *l, const struct cluster *c); /* the listener is set by the caller */
/* poll() descriptors: the listener and the guests; their number. */
int lobby_poll(const struct lobby *l, struct pollfd *fds);
int64_t lobby_deadline(const struct lobby *l); /* when lobby_turn() is due again; 0: never */
/* After poll(): lets in, goes on, drops. True: somebody is known, *out is its connection (the
 * caller's), which waits for lobby_verdict(). Call until false. */
bool lobby_turn(struct lobby *l, struct guest *out);
/* Answers a known guest: words NULL, it is welcome; else why not. -1: it has gone. */
int lobby_verdict(const struct lobby *l, struct guest *g, const char *words);
void lobby_close(struct lobby *l); /* the guests and the listener */
#endif
