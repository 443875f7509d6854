/* fleet.h - the groups of shards that serve one model, and which of them a request goes to:
 * docs/decisions/fleet.md.
 *
 * A replica is one group of shards with a scheduler of its own. A fleet of one target is that
 * scheduler alone: its queue is the queue. The functions are those of infer.h, for all replicas
 * together; they may be called from any thread unless they say otherwise. */
#ifndef ROUTER_FLEET_FLEET_H
#define ROUTER_FLEET_FLEET_H
#include "router/fleet/pick.h"
#include "router/generate/infer.h"

struct fleet;
struct fleet_config {
    struct infer_config infer;  /* for every replica; its shard_target is not read */
    const char *const *targets; /* [n_targets] as infer_config.shard_target */
    uint32_t n_targets;
    const char *discovery; /* where more of them are found (discover.h), and last; NULL: nowhere */
    enum fleet_policy policy;
};

/* Blocks until requests can be served: until one replica is ready, c->infer.connect_timeout_ms at
 * most. Of one target without discovery, c->infer.return_ms is as it says. Where there are several,
 * a lost one is looked for as long as it is wanted, and return_ms is how long requests wait while
 * none is ready. `c` and the targets are copied; what c->infer points to, and `discovery`, are
 * not. */
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

struct infer_stats fleet_stats(struct fleet *f); /* sums over the replicas, and the queue above */
struct replica_view {
    const char *name;  /* its target */
    const char *state; /* "starting", "ready", "lost" (looked for), "draining" */
    const char *role;  /* "both": computes prompts and generates */
    bool ready;
    uint64_t sent, shared; /* requests so far; their prompt tokens that it may have had already */
    struct infer_stats stats;
};
/* Every replica, where there may be several; `fn` must not call the fleet. */
void fleet_each(struct fleet *f, void (*fn)(void *arg, const struct replica_view *v), void *arg);
/* fn for each adapter of each replica, and for each request in the fleet's queue that names one. As
 * fleet_each(). */
void fleet_each_adapter(struct fleet *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg);
/* As infer_audit(). Of several replicas: their states and audits, how many are `queued` above them,
 * and whether all are `balanced`. */
int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e);

struct adapter_shelf *fleet_adapters(struct fleet *f);        /* lasts as long as `f` */
void fleet_change(struct fleet *f, struct adapter_change *c); /* as infer_change() */
#endif
