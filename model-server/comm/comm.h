/* comm.h - collectives between the ranks of one model.
 *
 * Every rank calls the same collectives in the same order. A call returns when its result is
 * complete on this rank. Sums are taken in rank order, so that all ranks hold bit-equal results. A
 * rank that died or does not come within the deadline makes every other rank's call fail with
 * ERR_SYSTEM naming it: never a hang. Buffers are in the memory of the backend that the
 * communicator belongs to (host memory for shared memory, device memory for NCCL). One thread at a
 * time per communicator. */
#ifndef MODEL_SERVER_COMM_COMM_H
#define MODEL_SERVER_COMM_COMM_H
#include "common/err.h"
#include <stddef.h>

struct comm;
struct comm_ops {
    int (*all_reduce)(struct comm *c, float *x, size_t n, struct err *e); /* sum, in place */
    int (*all_gather)(struct comm *c, const float *in, float *out, size_t n,
                      struct err *e); /* out: [world][n] */
    int (*barrier)(struct comm *c, struct err *e);
    void (*close)(struct comm *c);
};
struct comm {
    const struct comm_ops *ops;
    int rank, world;
};

/* A world of one: every collective is the identity. */
struct comm *comm_solo(void);

/* Ranks of one host over a POSIX shared-memory segment named after `group` (the same string on
 * every rank, unique to the shard group). Waits for all ranks until `timeout_ms`. The segment's
 * name is removed as soon as all ranks have it, so that nothing is left behind whatever dies later.
 */
struct comm *comm_shm_open(const char *group, int rank, int world, int timeout_ms, struct err *e);

static inline int comm_all_reduce(struct comm *c, float *x, size_t n, struct err *e)
{
    return c->world == 1 ? 0 : c->ops->all_reduce(c, x, n, e);
}
static inline void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}
#endif
