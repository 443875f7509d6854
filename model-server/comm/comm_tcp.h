/* comm_tcp.h - a communicator over TCP: its state, and the files it is made of. Private to comm/.
 * comm_tcp_rendezvous.c brings the ranks together, comm_tcp_link.c and comm_tcp_accept.c prove who
 * they are, comm_tcp.c moves and adds up. */
#ifndef MODEL_SERVER_COMM_COMM_TCP_H
#define MODEL_SERVER_COMM_COMM_TCP_H
#include "model-server/comm/comm.h"
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>

enum { TCP_MAX_WORLD = COMM_MOST_RANKS, TCP_NAME = 64 };

/* Before the data of every message: a rank that is at another collective is found out. */
struct tcp_head {
    uint32_t number; /* of the exchange, or of messages to this rank, from 1; TCP_BYE */
    uint32_t
        part; /* which communicator: 0, or of the name of a part; with TCP_MESSAGE: of send() */
    uint64_t bytes;
};
#define TCP_BYE     UINT32_MAX
#define TCP_MESSAGE (UINT32_C(1) << 31)

struct gnutls_session_int;
struct tcp_peer {
    int fd;                         /* -1: myself, or not connected yet */
    struct gnutls_session_int *tls; /* NULL: in the clear */
    bool resends;                   /* TLS: a record waits for room in the socket */
    bool left;                      /* TLS: its goodbye was read by a check */
    char name[TCP_NAME];            /* its address, for messages */
};

struct tcp {
    struct comm comm;
    /* Whose connections are used, and so whose fields from `peers` on but for `cluster`: itself, or
     * the one that it was split from; and its numbers of the ranks, which messages have. */
    struct tcp *links;
    int numbers[TCP_MAX_WORLD];
    uint32_t part;                                    /* 0: the one that was opened */
    uint32_t number;                                  /* exchanges so far */
    uint32_t sent[TCP_MAX_WORLD], got[TCP_MAX_WORLD]; /* messages so far */
    int timeout_ms;
    float *parts; /* what came from the others, [world][n] */
    size_t cap;   /* floats */

    struct tcp_peer peers[TCP_MAX_WORLD];
    char address[TCP_NAME]; /* of this machine, as the others reach it; no port */
    const struct cluster *cluster;
    /* TLS: held during an exchange, because a session has one user at a time */
    pthread_mutex_t sessions;
    struct err broken;
};

/* Connects every rank with every other: t->peers, t->address. Rank 0 waits for the others at
 * host:port; who does not come, or does not belong, is named to all. */
int tcp_meet(struct tcp *t, const char *host, int port, struct err *e);
/* What a connection between ranks is like, once it stands. */
void tcp_tune(int fd);
#endif
