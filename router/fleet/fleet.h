/* fleet.h - the groups of shards that serve one model, and which of them a request goes to:
 * docs/decisions/fleet.md.
 *
 * A replica is one group of shards with a scheduler of its own. A fleet of one target is that
 * scheduler alone: its queue is the queue. The functions are those of infer.h, for all replicas
 * together; they may be called from any thread unless they say otherwise. */
#ifndef ROUTER_FLEET_FLEET_H
#define ROUTER_FLEET_FLEET_H
#include "router/generate/infer.h"

struct fleet;
struct fleet_config {
    struct infer_config infer;  /* for every replica; its shard_target is not read */
    const char *const *targets; /* [n_targets] as infer_config.shard_target */
    uint32_t n_targets;
};

/* Blocks until requests can be served. `c` is not needed afterwards, but for what c->infer points
 * to. */
struct fleet *fleet_start(const struct fleet_config *c, struct err *e);
void fleet_stop(struct fleet *f); /* requests still alive get ERR_GENERATION; NULL is fine */

/* What warm-up settled; as long as `f`. */
const struct infer_limits *fleet_limits(const struct fleet *f);
/* As infer_submit(): its sink gets its events until a TOKEN with `end` or an ERROR. */
void fleet_submit(struct fleet *f, struct gen_request *r);
void fleet_cancel(struct fleet *f, struct gen_request *r); /* as infer_cancel() */
void fleet_embed(struct fleet *f, struct embed_job *j);    /* as infer_embed() */

bool fleet_healthy(struct fleet *f); /* a replica is: cheap and non-blocking */
/* fn(arg, why) on any thread, once, when no replica is left that requests could wait for. */
void fleet_on_lost(struct fleet *f, void (*fn)(void *arg, const char *why), void *arg);
void fleet_drain(struct fleet *f, const char *why); /* as infer_drain() */
void fleet_fail(struct fleet *f, const char *why);  /* as infer_fail() */

struct infer_stats fleet_stats(struct fleet *f); /* sums over the replicas */
/* As infer_audit(); see there. */
int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e);

struct adapter_shelf *fleet_adapters(const struct fleet *f);  /* lasts as long as `f` */
void fleet_change(struct fleet *f, struct adapter_change *c); /* as infer_change() */
#endif
