/* fleet.h - the replicas that serve one model, and the choice of a replica for each request. See
 * docs/decisions/fleet.md.
 *
 * A replica is one group of shards with its own scheduler. A fleet of one target is that scheduler
 * alone, without a queue above it. The functions are those of infer.h, for all replicas together.
 * They may be called from any thread unless noted. */
#ifndef ROUTER_FLEET_FLEET_H
#define ROUTER_FLEET_FLEET_H
#include "router/fleet/pick.h"
#include "router/generate/infer.h"

struct fleet;
struct fleet_config {
    struct infer_config infer;  /* settings of every replica; shard_target is not read */
    const char *const *targets; /* [n_targets] as infer_config.shard_target */
    uint32_t n_targets;
    /* where more replicas are found (discover.h); NULL: nowhere; not owned */
    const char *discovery;
    enum fleet_policy policy;
    /* With one target: its shards were lost while they started. Will others take their place? Waits
     * a moment, on the caller's thread. NULL: yes, ten times at most. */
    bool (*returns)(void *arg);
    void *returns_arg;
};

/* Starts the replicas, and blocks until one is ready, at most c->infer.connect_timeout_ms. With one
 * target and no discovery, c->infer.return_ms has its usual meaning. If its shards are lost before
 * they were warmed up, others are connected, as c->returns says. With several replicas, a lost
 * one is reconnected as long as it is configured, and return_ms is how long requests wait while
 * none is ready. Copies `c` and the targets; what c->infer points to, and `discovery`, must outlive
 * the fleet. */
struct fleet *fleet_start(const struct fleet_config *c, struct err *e);
/* ends all requests with ERR_GENERATION and frees `f`; NULL is allowed */
void fleet_stop(struct fleet *f);

/* The result of warm-up. Valid as long as `f`. */
const struct infer_limits *fleet_limits(const struct fleet *f);
/* As infer_submit(): the sink gets events until a TOKEN with `end` or an ERROR. */
void fleet_submit(struct fleet *f, struct gen_request *r);
void fleet_cancel(struct fleet *f, struct gen_request *r); /* as infer_cancel() */
void fleet_embed(struct fleet *f, struct embed_job *j);    /* as infer_embed() */

bool fleet_healthy(struct fleet *f); /* true if any replica is; cheap and non-blocking */
/* Registers fn(arg, why), called once on any thread when no replica is left that requests could
 * wait for. */
void fleet_on_lost(struct fleet *f, void (*fn)(void *arg, const char *why), void *arg);
void fleet_drain(struct fleet *f, const char *why); /* as infer_drain() */
void fleet_fail(struct fleet *f, const char *why);  /* as infer_fail() */

/* sums over the replicas, and the queue above them */
struct infer_stats fleet_stats(struct fleet *f);
struct replica_view {
    const char *name;  /* its target */
    const char *state; /* "starting", "ready", "lost" (reconnecting), "draining" */
    const char *role;  /* "both": prefill and decode */
    bool ready;
    uint64_t sent, shared; /* requests so far; their prompt tokens that its cache may have held */
    struct infer_stats stats;
};
/* Calls fn for every replica if there may be several. `fn` must not call the fleet. */
void fleet_each(struct fleet *f, void (*fn)(void *arg, const struct replica_view *v), void *arg);
/* Calls fn for each adapter of each replica, and for each queued request that names one. `fn` must
 * not call the fleet. */
void fleet_each_adapter(struct fleet *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg);
/* As infer_audit(). For several replicas: their states and audits, how many requests are `queued`
 * above them, and whether all are `balanced`. */
int fleet_audit(struct fleet *f, int64_t ms, struct buf *out, struct err *e);

struct adapter_shelf *fleet_adapters(struct fleet *f);        /* valid as long as `f` */
void fleet_change(struct fleet *f, struct adapter_change *c); /* as infer_change() */
#endif
