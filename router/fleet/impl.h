/* impl.h - private to this folder: a fleet of several replicas.
 *
 * One lock guards everything here. It is held for accounting and for posting commands to
 * schedulers, never while an event is delivered or a call is waited for.
 *
 *   fleet.c    public functions
 *   queue.c    waiting requests, their dispatch, requests that are handed over
 *   texts.c    the same for texts of a model that embeds
 *   replica.c  the life cycle of one replica, on its own thread
 *   adapt.c    adapters that are loaded and unloaded at run time: a thread of its own
 *   watch.c    unresponsive replicas, loss of the last one: the fleet's thread
 *   lookup.c   discovery: a thread of its own, for which nothing waits
 *   report.c   status for operators and gauges */
#ifndef ROUTER_FLEET_IMPL_H
#define ROUTER_FLEET_IMPL_H
#include "router/fleet/fleet.h"
#include "router/fleet/prefixes.h"
#include "router/scheduler/adapters.h"
#include "router/scheduler/fair.h"
#include <pthread.h>

enum { REPLICAS_MAX = 64 };
enum replica_role { REPLICA_BOTH }; /* prefill and decode */

struct replica {
    struct fleet *fleet;
    char *target; /* also its name */
    enum replica_role role;
    uint32_t number;     /* the smallest that was free; < REPLICAS_MAX: rank of its events */
    bool wanted;         /* false: draining; it is removed when it has no requests left */
    bool up;             /* its shards are connected; undefined without `infer` */
    bool over;           /* the scheduler has lost its shards for good */
    bool refused;        /* its shards answered but cannot serve this model */
    bool gone;           /* its thread has ended */
    bool silent;         /* infer_abandon() was called because its shards do not respond */
    bool stale;          /* its adapters may not be the fleet's: it gets no requests */
    struct infer *infer; /* NULL: none yet. Used under the lock, or while counted in `users` */
    uint32_t users;
    uint32_t n_left; /* changes of adapters that were given up, and that `infer` may still make */
    struct err why;  /* the last failed start; kind ERR_NONE: none */
    struct prefixes prefixes;
    uint32_t n_waiting, n_running; /* its requests: before and after their first event */
    /* tokens: prompts not computed yet; prompts and answers that run */
    uint64_t waiting, running;
    uint64_t computed;         /* prompt tokens sent to it and not shared; see pick.h */
    uint64_t n_sent, n_shared; /* requests; their prompt tokens expected in its cache */
    struct sched_owner owner;
    pthread_t thread;
    pthread_cond_t turn;
};

/* A request, from fleet_submit() until its last event. */
struct fleet_entry {
    struct fair_item fair; /* queued in it unless `at` or `returned` is set */
    struct gen_request *r;
    void (*event)(struct gen_request *r, const struct gen_event *ev); /* the creator's */
    struct replica *at;                                               /* NULL: queued */
    bool begun;    /* `at` has sent an event since the dispatch */
    bool returned; /* was handed over: dispatched before all others */
    bool cancelled;
    uint32_t adapter;  /* its number in f->uses; 0: none, or no other can be loaded */
    uint32_t todo;     /* tokens it counts in at->waiting */
    uint32_t n_tokens; /* prompt and answer so far */
    struct gen_resume resume;
    uint32_t *ids;            /* owned; of `resume` */
    struct fleet_entry *next; /* list of returned requests, or of ended ones to settle */
    struct err err;           /* the last event of an ended one */
    uint32_t n_hashes;
    uint64_t hashes[]; /* prefixes_hash() */
};

struct fleet {
    struct infer *only; /* a single replica without discovery: nothing below is used */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* wakes fleet_start() and the watch thread */
    struct fleet_config c;
    struct replica *v[REPLICAS_MAX];
    uint32_t n, turn;
    bool open; /* `limits` are final */
    struct infer_limits limits;
    struct adapter_shelf adapters;
    /* Adapters at run time (adapt.c): the same list, with the requests of each; changes in order of
     * arrival; held while the adapters of a replica are changed, and taken before `lock`. */
    struct adapter_accounts uses;
    struct adapter_change *changes;
    pthread_mutex_t adapting;
    struct fair fair;             /* the queue */
    struct fleet_entry *returned; /* by age */
    uint32_t n_returned;
    struct fleet_texts *texts; /* waiting ones, by age: texts.c */
    uint32_t n_texts;
    uint64_t order;
    bool stopping;
    const char *draining; /* the reason; NULL: not draining */
    int64_t empty_since;  /* ms: since when no replica is ready; 0: one is */
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;
    bool lost;
    struct metric_shares gauges;
    pthread_t watch, adapt;
    bool watching, adapts; /* the threads run */
    struct lookup *lookup; /* NULL: nothing is discovered */
};

/* ---- called with the lock ---- */

static inline bool replica_ready(const struct replica *p)
{
    return p->infer && p->up && p->wanted && !p->stale;
}
/* Does it serve the adapter (NULL or "": the base model)? One whose adapter's files were replaced
 * does not, after a restart. True for all replicas if no ready one serves it: each then says so. */
bool replica_serves(const struct replica *p, const char *adapter);
const char *replica_state(const struct replica *p); /* "starting", "ready", "lost", "draining" */
/* Adds a replica and starts its thread. -1: too many, or out of memory. */
int replica_add(struct fleet *f, const char *target, struct err *e);
void fleet_reset_computed(struct fleet *f);  /* resets `computed` of all replicas */
uint32_t fleet_ready(const struct fleet *f); /* number of ready replicas */

/* Ends every queued request with an ERR_GENERATION. Pass the result to fleet_settle(). */
struct fleet_entry *fleet_fail_queue(struct fleet *f, const char *why);
/* Queued texts: sends them to replicas with free capacity; ends them. Pass the result to
 * fleet_settle_texts(). */
struct fleet_texts *fleet_dispatch_texts(struct fleet *f);
struct fleet_texts *fleet_fail_texts(struct fleet *f, const char *why);
/* A replica is ready: sends it what waits, texts too. Releases the lock meanwhile. */
void fleet_send_waiting(struct fleet *f);
void fleet_publish_queue(struct fleet *f); /* the gauge of all that waits above the replicas */

/* Takes `adapting` in its order: releases the lock, which is held before and after. */
static inline void fleet_lock_adapters(struct fleet *f)
{
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_lock(&f->adapting);
    pthread_mutex_lock(&f->lock);
}
static inline void fleet_unlock_adapters(struct fleet *f) { pthread_mutex_unlock(&f->adapting); }
/* Loads and unloads until the replica has the fleet's adapters; `i`: its scheduler. With
 * f->adapting, and with the lock, which is released meanwhile. -1: it cannot have them, or is
 * lost. */
int fleet_adapt_replica(struct replica *p, struct infer *i, struct err *e);
/* A request names its adapter from now on, until fleet_leave_adapter(). False: the adapter is gone.
 */
bool fleet_use_adapter(struct fleet *f, struct fleet_entry *e);
void fleet_leave_adapter(struct fleet *f, struct fleet_entry *e);

/* ---- called without the lock ---- */

void fleet_settle(struct fleet_entry *ended); /* delivers last events; NULL is allowed */
void fleet_settle_texts(struct fleet_texts *ended);
/* The functions of struct sched_owner, for a replica. */
void replica_lost(void *arg);
void replica_back(void *arg);
void replica_hand_over(void *arg, struct gen_request *r, const struct gen_resume *g);
void replica_hand_over_texts(void *arg, struct embed_job *j);
void replica_join(struct replica *p); /* waits for the end of its thread and frees it */
void *fleet_watch(void *arg);         /* thread function */
void *fleet_adapt(void *arg);         /* the same; makes the changes */
/* Starts the look-ups of c.discovery. */
int lookup_start(struct fleet *f, struct err *e);
/* Afterwards they use nothing of `f`; one that runs ends by itself. */
void lookup_stop(struct fleet *f);
/* With the lock, which is released meanwhile: waits for `ms`, or until the fleet stops. */
void fleet_rest(struct fleet *f, int64_t ms);
#endif
