/* drafter.h - speculative decoding with a draft model in separate shards.
 *
 * The draft shards are an ordinary model-server, which may start, be lost and return at any time.
 * The drafter keeps a draft sequence for each running request there, which runs ahead of the served
 * model. Its tokens are ready when the scheduler makes its next call. At most one call to the draft
 * shards is in flight. When it returns, draft sequences that were rejected leave the batch and
 * rejoin it after the KV that is still valid. A step without drafts waits briefly if that pays
 * (draft_wait.h, step_wait.h).
 *
 * Runs on the scheduler thread, except drafter_new() and drafter_halt().
 * docs/decisions/speculation.md explains the design. */
#ifndef ROUTER_DRAFT_DRAFTER_H
#define ROUTER_DRAFT_DRAFTER_H
#include "common/metrics.h"
#include "router/scheduler/draft_source.h"
#include "router/shards/start.h"

struct drafter_options {
    struct rpc_loop *loop; /* the scheduler's; it must run */
    const char *target;    /* rank 0 of the draft shards; not owned */
    const struct shard_model *served;
    struct metrics *metrics; /* NULL: no metrics */
};

struct drafter;
struct drafter *drafter_new(const struct drafter_options *o, struct err *e);

/* The interface for the scheduler. Valid as long as `d`. NULL for NULL. */
const struct draft_source *drafter_source(const struct drafter *d);

/* from another thread, while the loop runs, before drafter_end() */
void drafter_halt(struct drafter *d);
/* Call when every request was forgotten. Calls gone(arg) once nothing is pending on the loop. */
void drafter_end(struct drafter *d, void (*gone)(void *arg), void *arg);
void drafter_free(struct drafter *d); /* after the loop has ended; NULL is allowed */
#endif
