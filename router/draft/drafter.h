/* drafter.h - a draft model that works beside the served one.
 *
 * Its shards are a model-server like any other, which joins, is lost and comes back as it likes.
 * The drafter keeps a draft sequence of each running request there, lets it run ahead of what the
 * served model has decided, and has what it found ready when the scheduler makes its next call. A
 * call to the draft shards is out at most of the time; when it comes back, draft sequences that
 * were overtaken by other tokens leave the batch and join it again behind the KV that still holds.
 * A step that would find no drafts waits a moment where that pays (draft_wait.h).
 *
 * All on the scheduler's thread, but for drafter_new() and drafter_halt().
 * docs/decisions/speculation.md says why it is so. */
#ifndef ROUTER_DRAFT_DRAFTER_H
#define ROUTER_DRAFT_DRAFTER_H
#include "common/metrics.h"
#include "router/scheduler/draft_source.h"
#include "router/shards/start.h"

struct drafter_options {
    struct rpc_loop *loop; /* the scheduler's; runs */
    const char *target;    /* rank 0 of the draft shards; borrowed */
    const struct shard_model *served;
    struct metrics *metrics; /* NULL: none */
};

struct drafter;
struct drafter *drafter_new(const struct drafter_options *o, struct err *e);

/* What the scheduler calls; as long as `d`. NULL for NULL. */
const struct draft_source *drafter_source(const struct drafter *d);

void drafter_halt(struct drafter *d); /* another thread, while the loop runs, before the end */
/* Every request has been forgotten: gone(arg) once nothing is pending on the loop any more. */
void drafter_end(struct drafter *d, void (*gone)(void *arg), void *arg);
void drafter_free(struct drafter *d); /* after the loop has ended; NULL is fine */
#endif
