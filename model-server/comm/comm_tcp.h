/* comm_tcp.h - a communicator over TCP. Private to comm/. comm_tcp_rendezvous.c connects the
 * ranks, comm_tcp_link.c and comm_tcp_accept.c authenticate them, comm_tcp.c moves and adds
 * data. */
#ifndef MODEL_SERVER_COMM_COMM_TCP_H
#define MODEL_SERVER_COMM_COMM_TCP_H
#include "model-server/comm/comm.h"
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>

enum { TCP_MAX_WORLD = COMM_MOST_RANKS, TCP_NAME = 64 };

/* Precedes the data of every message: detects a rank that is in another collective. */
struct tcp_head {
    uint32_t number; /* of the exchange, or of messages to this rank, from 1; TCP_BYE */
    /* the communicator: 0, or from the name of a part; with TCP_MESSAGE: of send() */
    uint32_t part;
    uint64_t bytes;
};
#define TCP_BYE     UINT32_MAX
#define TCP_MESSAGE (UINT32_C(1) << 31)

struct gnutls_session_int;
struct tcp_peer {
    int fd;                         /* -1: this rank, or not connected yet */
    struct gnutls_session_int *tls; /* NULL: in the clear */
    bool resends;                   /* TLS: a record waits for space in the socket */
    bool left;                      /* its goodbye was read; under `sessions` */
    char name[TCP_NAME];            /* its address, for messages */
};

struct tcp {
    struct comm comm;
    /* The communicator whose connections are used, and so its fields from `peers` on except
     * `cluster`: itself, or the one that it was split from; and its numbers of the ranks, which
     * messages contain. */
    struct tcp *links;
    int numbers[TCP_MAX_WORLD];
    uint32_t part;                                    /* 0: the communicator that was opened */
    uint32_t number;                                  /* exchanges so far */
    uint32_t sent[TCP_MAX_WORLD], got[TCP_MAX_WORLD]; /* messages so far */
    int timeout_ms;
    float *parts; /* data received from the others, [world][n] */
    size_t cap;   /* floats */

    struct tcp_peer peers[TCP_MAX_WORLD];
    char address[TCP_NAME]; /* address of this machine as seen by the others; without port */
    const struct cluster *cluster;
    /* held during an exchange: a TLS session has one user at a time, and a goodbye one reader */
    pthread_mutex_t sessions;
    struct err broken;
};

/* Connects every rank with every other: sets t->peers and t->address. Rank 0 waits for the others
 * at host:port. If ranks are missing or do not belong, the error of all ranks names them. */
int tcp_meet(struct tcp *t, const char *host, int port, struct err *e);
/* Sets the socket options of an established connection between ranks. */
void tcp_tune(int fd);
#endif
