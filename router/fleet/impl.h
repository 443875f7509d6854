/* impl.h - private to this folder: a fleet of several replicas.
 *
 * One lock guards everything here. It is held for bookkeeping and for commands to schedulers,
 * which are messages; never while an event is delivered or a call is waited for.
 *
 *   fleet.c    the entry points
 *   queue.c    waiting requests, their dispatch, requests that come back
 *   replica.c  the life of one replica, on a thread of its own
 *   watch.c    silent replicas, discovery, the last one lost: a thread of the fleet
 *   report.c   what operators and gauges see */
#ifndef ROUTER_FLEET_IMPL_H
#define ROUTER_FLEET_IMPL_H
#include "router/fleet/fleet.h"
#include "router/fleet/prefixes.h"
#include "router/scheduler/fair.h"
#include <pthread.h>

enum { REPLICAS_MAX = 64 };
enum replica_role { REPLICA_BOTH }; /* computes prompts and generates */

struct replica {
    struct fleet *fleet;
    char *target; /* and its name */
    enum replica_role role;
    uint32_t number;     /* in the order in which they were named or found */
    bool wanted;         /* false: it gets nothing new, and goes when it has nothing left */
    bool up;             /* its shards are connected; meaningless without `infer` */
    bool over;           /* the scheduler has lost its shards for good */
    bool refused;        /* they answered, and cannot serve */
    bool gone;           /* its thread has ended */
    bool silent;         /* was told to abandon its shards */
    struct infer *infer; /* NULL: none yet. With the lock, or while `users` holds it */
    uint32_t users;
    struct err why; /* the last failed start; kind ERR_NONE: none */
    struct prefixes prefixes;
    uint32_t n_waiting, n_running; /* requests that are there: before and after their first event */
    uint64_t waiting, running;     /* tokens: of prompts still to be computed; of those that run */
    uint64_t computed;             /* prompt tokens sent to it and not shared; see pick.h */
    uint64_t n_sent, n_shared;     /* requests; their prompt tokens that it was chosen for */
    struct sched_owner owner;
    pthread_t thread;
    pthread_cond_t turn;
};

/* A request, from fleet_submit() until its last event. */
struct fleet_entry {
    struct fair_item fair; /* waits in it unless `at` or `returned` */
    struct gen_request *r;
    void (*event)(struct gen_request *r, const struct gen_event *ev); /* the creator's */
    struct replica *at;                                               /* NULL: in the queue */
    bool begun;    /* `at` has sent an event since */
    bool returned; /* was handed over: before all others */
    bool cancelled;
    uint32_t todo;     /* what it counts in at->waiting */
    uint32_t n_tokens; /* prompt and answer so far */
    struct gen_resume resume;
    uint32_t *ids;            /* of `resume` */
    struct fleet_entry *next; /* among the returned, or those to be told of their end */
    struct err err;           /* their last event */
    uint32_t n_hashes;
    uint64_t hashes[]; /* prefixes_hash() */
};

struct fleet {
    struct infer *only; /* one replica, and no other will come: nothing below is used */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for fleet_start() and the watch */
    struct fleet_config c;
    struct replica *v[REPLICAS_MAX];
    uint32_t n, turn;
    bool open; /* `limits` are settled */
    struct infer_limits limits;
    struct adapter_shelf adapters;
    struct fair fair;             /* who waits */
    struct fleet_entry *returned; /* by age */
    uint32_t n_returned;
    uint64_t order;
    bool stopping;
    const char *draining; /* why; NULL: no */
    int64_t empty_since;  /* ms: since when no replica is ready; 0: one is */
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;
    bool lost;
    struct metric_shares gauges;
    pthread_t watch;
    bool watching;
};

/* ---- with the lock ---- */

static inline bool replica_ready(const struct replica *p) { return p->infer && p->up && p->wanted; }
const char *replica_state(const struct replica *p); /* "starting", "ready", "lost", "draining" */
/* Another one; its thread starts. -1: too many, no memory. */
int replica_add(struct fleet *f, const char *target, struct err *e);
void fleet_even(struct fleet *f);            /* forgets who has computed how much */
uint32_t fleet_ready(const struct fleet *f); /* how many replicas are */

/* Send requests that wait to replicas that have room. Those that cannot be sent end: to be settled.
 */
struct fleet_entry *fleet_dispatch(struct fleet *f);
/* Every waiting request ends with an ERR_GENERATION: to be settled. */
struct fleet_entry *fleet_fail_queue(struct fleet *f, const char *why);

/* ---- without it ---- */

void fleet_settle(struct fleet_entry *ended); /* last events; NULL is fine */
/* struct sched_owner's, for a replica. */
void replica_lost(void *arg);
void replica_back(void *arg);
void replica_hand_over(void *arg, struct gen_request *r, const struct gen_resume *g);
void replica_join(struct replica *p); /* its thread has ended, or ends; frees it */
void *fleet_watch(void *arg);         /* the thread */
#endif
