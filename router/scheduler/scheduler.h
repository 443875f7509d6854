/* scheduler.h - the loop that keeps the shards busy: queue -> Prefill -> Decode -> FilterBatch.
 *
 * One model call is out at any time. When it comes back: note what it brought, send the next call,
 * and only then tell the clients, while the shards work already. Every function runs on the loop's
 * thread, which owns all of this; router/generate/infer.c is the entry point for other threads.
 *
 * The next call is, in this order:
 *   ClearCache(all)     after a failure that left the shards' batches in doubt
 *   FilterBatch, or     when requests of a batch ended, were cancelled or failed; their blocks are
 *   ClearCache(batch)   released when it is answered, because only then no step writes them
 *   KvLoad, KvStore     blocks from and to what lies below the cache (offload.h)
 *   Prefill             when policy_join() lets a request in; a peer that chunks merges them with
 *                       the running batch, another one gets them apart and merges at the next
 *                       Decode
 *   Decode              while a batch runs
 *   a probe             a one-token Prefill, when idle with an error behind us
 * A peer that takes edits gets with Prefill and Decode which requests left: FilterBatch comes only
 * after a Prefill that failed, ClearCache(batch) when all have left and none joins. */
#ifndef ROUTER_SCHEDULER_SCHEDULER_H
#define ROUTER_SCHEDULER_SCHEDULER_H
#include "common/buf.h"
#include "common/metrics.h"
#include "router/scheduler/seq.h"
#include "router/shards/shards.h"
#include "router/shards/start.h"
#include <stdatomic.h>

struct sched_status { /* written on the loop's thread, read anywhere */
    _Atomic uint32_t queued, running, blocks_total, blocks_used, blocks_cached, swap_used,
        cells_used;
    _Atomic bool healthy;        /* no error behind us, no shard lost */
    _Atomic int64_t answered_ns; /* when all shards last answered anything */
    _Atomic int64_t call_ns;     /* since when a model call is out; 0: none is */
    _Atomic int64_t stalled_ns;  /* how long it may take before we must think that it hangs */
};

/* Who has other schedulers for the same model. Loop thread. */
struct sched_owner {
    void *arg;
    void (*lost)(void *arg); /* the shards are; requests that wait here are handed over */
    void (*back)(void *arg); /* others took their place: requests are welcome again */
    /* `r` goes on elsewhere from `g`, which lasts for the call. This scheduler has forgotten it. */
    void (*hand_over)(void *arg, struct gen_request *r, const struct gen_resume *g);
};

struct kv_publisher; /* router/events/publisher.h */

struct sched_options {
    struct shards *shards; /* the scheduler's, once sched_new() has succeeded */
    uint32_t return_ms;    /* shards that are lost may come back within it; 0: a loss is final */
    struct rpc_loop *loop; /* where return_ms, and where they were found: */
    const char *target;
    struct shard_model model;
    uint32_t max_batch_size; /* 0: no limit */
    uint32_t max_waiting_tokens;
    double waiting_served_ratio;
    uint32_t target_inter_token_ms; /* 0: none */
    struct metrics *metrics;        /* NULL: none */
    struct sched_status *status;
    atomic_uint *failed; /* counts the requests that a failure of the shards ended; NULL: none */
    const struct draft_source *drafts; /* NULL: none; not owned */
    const struct sched_owner *owner;   /* NULL: requests wait for the shards to come back */
    struct kv_publisher *events;       /* told of the prefix tree; NULL: none. Not owned */
    uint32_t events_rank;              /* which of several schedulers this is, there */
    bool check;                        /* for tests: kv_check() after every turn */
};

struct scheduler;
struct draft_source;
/* The list of adapters, for other threads; as long as the scheduler. */
struct adapter_shelf *sched_shelf(struct scheduler *s);
/* o->model.adapters is held, not taken over. */
struct scheduler *sched_new(const struct sched_options *o, struct err *e);
void sched_free(struct scheduler *s);  /* after sched_stop() was through */
void sched_watch(struct scheduler *s); /* notice connections that break, from now on */

void sched_add(struct scheduler *s, struct seq *q); /* takes q over; may end it at once */
void sched_cancel(struct scheduler *s, uint64_t id);
/* The answers are older than the reader likes: ask the shards for their health. */
void sched_probe(struct scheduler *s);
/* The shards do not answer: they are lost, if others may take their place. */
void sched_abandon(struct scheduler *s, const char *why);
/* fn(arg, why) when a shard is lost for good; at once if that has happened already. */
void sched_on_lost(struct scheduler *s, void (*fn)(void *arg, const char *why), void *arg);
/* What it holds, and which sequences hold it: a JSON object, see audit.c. Whether that balances. */
bool sched_audit(const struct scheduler *s, struct buf *out);
/* From now on a loss is final, also one that lies behind us; `why` shards are not waited for. */
void sched_drain(struct scheduler *s, const char *why);
/* Ends every request with ERR_GENERATION and these words; the shards stay. */
void sched_fail(struct scheduler *s, const char *why);
/* From any other thread, before sched_stop(): shards that are lost are waited for no more. */
void sched_halt(struct scheduler *s);
/* Ends every request with ERR_GENERATION, lets go of the shards, then calls gone(arg) once: nothing
 * is pending on the loop any more. */
void sched_stop(struct scheduler *s, void (*gone)(void *arg), void *arg);
#endif
