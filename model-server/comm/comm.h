/* comm.h - collectives and messages between the ranks of one model.
 *
 * Every rank calls the same collectives in the same order. A call returns when its result is
 * complete on this rank. Sums are computed in rank order, so that all ranks hold bit-equal
 * results. If a rank died or misses the deadline, every other rank's call fails with ERR_SYSTEM
 * naming it: calls never hang. Buffers are in the memory of the communicator's backend (host
 * memory for shared memory, device memory for NCCL).
 *
 * comm_split() creates communicators of subsets of the ranks, like MPI_Comm_split. These and
 * their parent are used by one thread at a time, in the same order on all ranks. A rank that
 * waits in one of them checks all ranks of the parent, so that the error names the rank that
 * died. */
#ifndef MODEL_SERVER_COMM_COMM_H
#define MODEL_SERVER_COMM_COMM_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COMM_LEFT = 1, COMM_MOST_RANKS = 64 };
struct comm;
struct comm_group; /* comm_group.h */
struct comm_ops {
    int (*all_reduce)(struct comm *c, float *x, size_t n, struct err *e); /* sum, in place */
    /* out: [world][n] */
    int (*all_gather)(struct comm *c, const float *in, float *out, size_t n, struct err *e);
    int (*barrier)(struct comm *c, struct err *e);
    /* 0, or a rank is gone, which the error names: -1 if it failed, COMM_LEFT + r if rank r, the
     * first of them, closed in order (numbers of the communicator that was opened). Does not wait,
     * and may be called by any thread, even while another one is in a collective. */
    int (*check)(struct comm *c, struct err *e);
    void (*close)(struct comm *c);
    /* Sends n floats to another rank, which must receive as many in the same order; see
     * comm_send(). */
    int (*send)(struct comm *c, int to, const float *x, size_t n, struct err *e);
    int (*recv)(struct comm *c, int from, float *x, size_t n, struct err *e);
    /* See comm_split(). NULL: not supported; split the hosts' communicator. */
    struct comm *(*split)(struct comm *c, const struct comm_group *g, struct err *e);
};
struct comm {
    const struct comm_ops *ops;
    int rank, world;
    int nodes;     /* machines; ranks [i, i + 1) * world / nodes are on machine i */
    bool enqueues; /* collectives are enqueued like a device's operations: they return before their
                      result is complete, ordered with later operations */
    struct comm *whole; /* the communicator that this one is a part of; NULL: none */
    bool failed;        /* set before close() by a rank that ends because of an error: to the others
                           it has failed, not closed in order */
};

/* Number of ranks on a machine, of all groups together. */
static inline uint32_t comm_ranks_here(const struct comm *c)
{
    const struct comm *all = c->whole ? c->whole : c;
    return all->nodes ? (uint32_t)(all->world / all->nodes) : 1;
}

/* A world of one: every collective is the identity. */
struct comm *comm_solo(void);

/* Ranks of one host over a POSIX shared-memory segment named after `group` (the same string on
 * every rank, unique to the shard group). Waits for all ranks until `timeout_ms`. The segment's
 * name is removed as soon as all ranks have mapped it, so that nothing is left behind after a
 * crash. */
struct comm *comm_shm_open(const char *group, int rank, int world, int timeout_ms, struct err *e);

/* Ranks of several hosts over TCP, with a connection between any two. Rank 0 listens at host:port
 * until all have connected, at most `timeout_ms`; the others retry as long. The meeting fails for
 * all ranks if some are missing, have another version, or expect another size of the group. One
 * line names the cause. Connections are authenticated as `cluster` says
 * (common/net/cluster.h). Unauthenticated connections are limited in number and time, and do not
 * count. With certificates all later traffic is encrypted. */
struct cluster;
struct comm_tcp_options {
    const char *host; /* name or address of rank 0's machine */
    int port, rank, world;
    int nodes;                     /* machines; see struct comm */
    int timeout_ms;                /* for the meeting, and for each collective */
    const struct cluster *cluster; /* NULL: no authentication; must outlive the communicator */
};
struct comm *comm_tcp_open(const struct comm_tcp_options *o, struct err *e);
/* A rank's address as seen by this one, its own as seen by the others; for comm_tcp_open()'s. */
const char *comm_tcp_address(const struct comm *c, int rank);

static inline int comm_all_reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    return c->world == 1 ? 0 : c->ops->all_reduce(c, x, n, e);
}
/* out: [world][bytes], the contribution of every rank; `bytes` is a multiple of 4, the same on
 * all ranks. A gather copies its floats bit by bit, so they may be any data. */
static inline int comm_gather_bytes(struct comm *c, const void *in, void *out, size_t bytes,
                                    struct err *e)
{
    return c->ops->all_gather(c, (const float *)in, (float *)out, bytes / sizeof(float), e);
}
/* A message of n floats, copied bit by bit. The receiver calls with the same n; messages between
 * two ranks arrive in order. Sending may wait for the receiver. So two ranks that send to each
 * other at the same time deadlock: one of them must receive first. */
static inline int comm_send(struct comm *c, int to, const float *x, size_t n, struct err *e)
{
    return c->ops->send(c, to, x, n, e);
}
static inline int comm_recv(struct comm *c, int from, float *x, size_t n, struct err *e)
{
    return c->ops->recv(c, from, x, n, e);
}
/* Collective over all ranks of `c`: those with the same `color` form a communicator, in the same
 * order. Close it before `c`. Ranks of one machine use shared memory, whatever `c` is. Errors
 * name ranks by their number in the communicator that was opened. NULL with `e`. */
struct comm *comm_split(struct comm *c, int color, struct err *e);
static inline void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}
#endif
