/* timers.h - the timers of a loop (loop.h), on CLOCK_MONOTONIC.
 *
 * gRPC's own timers wait for a time of the wall clock. When that is set back by an hour, they are
 * an hour late, and so is each later one. */
#ifndef COMMON_RPC_TIMERS_H
#define COMMON_RPC_TIMERS_H
#include "common/rpc/loop.h"
#include <pthread.h>

struct rpc_timers {
    pthread_mutex_t lock; /* guards all but `fire` */
    pthread_cond_t turn;
    pthread_t thread; /* made by the first timer */
    bool runs, stop;
    struct rpc_op *first; /* by `due_ns` */
    void (*fire)(void *arg, struct rpc_op *op);
    void *arg;
};
/* fire() is called on the timers' thread, once for each op. */
void rpc_timers_init(struct rpc_timers *t, void (*fire)(void *arg, struct rpc_op *op), void *arg);
/* Any thread. The op belongs to the timers until it is fired. -1: the thread cannot be made. */
int rpc_timers_add(struct rpc_timers *t, int64_t ms, struct rpc_op *op);
/* Ends the thread; no timer may be pending. */
void rpc_timers_fini(struct rpc_timers *t);
#endif
