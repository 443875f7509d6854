/* comm_tcp_handshake.h - shared by both sides of a greeting. Private to comm_tcp_link.c (the
 * candidate) and comm_tcp_accept.c (the listener). */
#ifndef MODEL_SERVER_COMM_COMM_TCP_HANDSHAKE_H
#define MODEL_SERVER_COMM_COMM_TCP_HANDSHAKE_H
#include "model-server/comm/comm_tcp_link.h"

#define GREETING_MAGIC                                                                             \
    UINT64_C(0x32305043544d4f43) /* "COMTCP02"; another byte order is no rank                      \
                                  */

struct greeting {
    uint64_t magic;
    uint32_t kind, reserved; /* enum cluster_kind */
    uint8_t nonce[CLUSTER_NONCE];
};
struct verdict {
    uint64_t magic;
    uint32_t refused, reserved;
    char words[480]; /* why */
    uint8_t mac[CLUSTER_MAC];
};

/* The MAC of a message of n bytes, bound to this peer and this connection. */
static inline int handshake_mac(const struct cluster *c, const char *what, const uint8_t *listener,
                                const uint8_t *candidate, const void *msg, size_t n,
                                uint8_t out[CLUSTER_MAC])
{
    const struct cluster_part parts[] = {
        {listener, CLUSTER_NONCE}, {candidate, CLUSTER_NONCE}, {msg, n}};
    return cluster_mac(c, what, parts, 3, out);
}

/* Creates a TLS session on p->fd; 0, or -1: out of memory. */
int link_session(struct tcp_peer *p, const struct cluster *c, bool listens);
/* 1: complete; 0: call again when the socket is ready (*writes: for sending); -1: `why`, and
 * errno is ECONNRESET if the connection broke. */
int link_handshake(struct tcp_peer *p, bool *writes, char *why, size_t cap);
#endif
