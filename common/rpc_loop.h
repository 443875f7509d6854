/* rpc_loop.h - a gRPC completion queue seen as an event loop.
 *
 * Everything asynchronous in the router is a `struct rpc_op`: a batch on a
 * call, a timer, a message from another thread. The tag gRPC returns is the
 * op; running the loop is calling op->done. One loop, one thread on it, so
 * nothing reached from `done` takes a lock. */
#ifndef COMMON_RPC_LOOP_H
#define COMMON_RPC_LOOP_H
#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_loop;
struct rpc_op {
    void (*done)(struct rpc_op *op, bool ok); /* ok=false: cancelled or peer gone */
    const char *name;                         /* for the trace and the stall watchdog */
};
#define CONTAINER_OF(p, type, field) ((type *)((char *)(p)-offsetof(type, field)))

struct rpc_loop *rpc_loop_new(void);
void rpc_loop_run(struct rpc_loop *l);  /* returns once stopped and drained */
void rpc_loop_stop(struct rpc_loop *l); /* on the loop thread, nothing pending */
void rpc_loop_free(struct rpc_loop *l); /* after rpc_loop_run() returned */
/* For a watchdog: since when the op that runs has been running; 0: none. */
const _Atomic int64_t *rpc_loop_busy(const struct rpc_loop *l);
/* From now on what gRPC has to say is a line of our log: by itself it writes to standard error, and
 * waits where that is not read. Once, before grpc_init(). */
void rpc_loop_log(void);

/* Clients of this loop talk to members of a cluster (common/cluster.h): over TCP they prove
 * themselves, and without credentials they connect to loopback addresses only. Before the first
 * client; NULL, as at first: the peers are others, and may be anywhere. Outlives the loop. */
struct cluster;
void rpc_loop_set_cluster(struct rpc_loop *l, const struct cluster *c);
const struct cluster *rpc_loop_cluster(const struct rpc_loop *l);

/* Each success makes exactly one later call of op->done. */
int rpc_start(struct rpc_loop *l, grpc_call *c, const grpc_op *ops, size_t n, struct rpc_op *op);
void rpc_after(struct rpc_loop *l, int64_t ms, struct rpc_op *op); /* thread-safe */
void rpc_post(struct rpc_loop *l, struct rpc_op *op);              /* thread-safe */

/* For the calls of the core that take a queue and a tag themselves (a server's): hand them
 * rpc_loop_queue() and `op` as the tag, after rpc_expect(). */
grpc_completion_queue *rpc_loop_queue(struct rpc_loop *l);
void rpc_expect(struct rpc_loop *l, struct rpc_op *op); /* thread-safe */
#endif
