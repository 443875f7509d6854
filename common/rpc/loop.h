/* loop.h - a gRPC completion queue as an event loop.
 *
 * Everything asynchronous in the router is a `struct rpc_op`: a batch on a call, a timer, a message
 * from another thread. gRPC's tag is the op, and the loop calls op->done. A loop runs on one
 * thread, so code called from `done` needs no lock. */
#ifndef COMMON_RPC_LOOP_H
#define COMMON_RPC_LOOP_H
#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_loop;
struct rpc_op {
    void (*done)(struct rpc_op *op, bool ok); /* ok=false: cancelled, or the peer is gone */
    const char *name;                         /* for traces and the stall watchdog */
    struct rpc_op *next;                      /* private, like the next: of a timer */
    int64_t due_ns;
};
#define CONTAINER_OF(p, type, field) ((type *)((char *)(p)-offsetof(type, field)))

/* NULL: out of memory. */
struct rpc_loop *rpc_loop_new(void);
void rpc_loop_run(struct rpc_loop *l);  /* returns once stopped and drained */
void rpc_loop_stop(struct rpc_loop *l); /* on the loop thread, with nothing pending */
void rpc_loop_free(struct rpc_loop *l); /* after rpc_loop_run() has returned */
/* For a watchdog: when the current op began, in clock_ns(); 0: none. */
const _Atomic int64_t *rpc_loop_busy(const struct rpc_loop *l);
/* Redirects gRPC's messages to our log. By itself gRPC writes to standard error, and blocks if that
 * is full. Call once, before grpc_init(). */
void rpc_loop_log(void);

/* The counterpart of grpc_init() where a server or the scheduler ends, from no thread of gRPC's:
 * grpc_shutdown_blocking(), awaited for at most RPC_RELEASE_S. gRPC counts a timer thread before it
 * creates it. If there was no memory for that thread, the shutdown waits for it for ever
 * (src/core/lib/iomgr/timer_manager.cc of 1.51), and the process would not end. */
enum { RPC_RELEASE_S = 5 };
void rpc_release(void);

/* Makes the clients of this loop authenticate as cluster members (common/net/cluster.h) over TCP;
 * without credentials they connect to loopback addresses only. Call before the first client. NULL,
 * the default: no restriction. `c` must outlive the loop. */
struct cluster;
void rpc_loop_set_cluster(struct rpc_loop *l, const struct cluster *c);
const struct cluster *rpc_loop_cluster(const struct rpc_loop *l);

/* The clients of this loop send `id` with each call (common/rpc/session.h). Call before the first
 * client. NULL, the default: none. `id` must outlive the loop. */
void rpc_loop_set_session(struct rpc_loop *l, const char *id);
const char *rpc_loop_session(const struct rpc_loop *l);

/* Each success leads to exactly one later call of op->done. */
int rpc_start(struct rpc_loop *l, grpc_call *c, const grpc_op *ops, size_t n, struct rpc_op *op);
void rpc_post(struct rpc_loop *l, struct rpc_op *op); /* thread-safe */
/* Thread-safe. A change of the wall clock does not affect it. */
void rpc_after(struct rpc_loop *l, int64_t ms, struct rpc_op *op);

/* For core calls that take a queue and a tag (a server's): pass rpc_loop_queue(), and `op` as the
 * tag, after rpc_expect(). */
grpc_completion_queue *rpc_loop_queue(struct rpc_loop *l);
void rpc_expect(struct rpc_loop *l, struct rpc_op *op); /* thread-safe */
#endif
