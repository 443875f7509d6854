/* scheduler.h - the loop that drives the shards: queue -> Prefill -> Decode -> FilterBatch.
 *
 * At most one model call is in flight. When it returns, the scheduler updates its accounting, sends
 * the next call, and only then sends events to the clients while the shards compute. The loop
 * thread owns all state here and runs every function. Other threads enter through
 * router/generate/infer.c.
 *
 * The next call is the first of these that is due:
 *   ClearCache(all)     after a failure that left the state of the shards' batches unknown
 *   FilterBatch, or     when requests of a batch ended, were cancelled or failed. Their blocks are
 *   ClearCache(batch)   released on the answer, because only then no step writes them
 *   KvLoad, KvStore     blocks from and to the cache tiers in memory and on disk (offload.h)
 *   Prefill             when policy_join() admits a request. A peer that chunks merges it with the
 *                       running batch; another holds a second batch, merged by the next Decode
 *   Decode              while a batch runs
 *   a probe             a one-token Prefill, when idle after an error
 *
 * For a peer that takes edits, Prefill and Decode list the requests that left. It gets FilterBatch
 * only after a failed Prefill, and ClearCache(batch) when all requests have left and none joins. */
#ifndef ROUTER_SCHEDULER_SCHEDULER_H
#define ROUTER_SCHEDULER_SCHEDULER_H
#include "common/buf.h"
#include "common/metrics.h"
#include "router/scheduler/seq.h"
#include "router/shards/shards.h"
#include "router/shards/start.h"
#include <stdatomic.h>

struct sched_status { /* status of one scheduler: written on the loop thread, read on any thread */
    _Atomic uint32_t queued, running, blocks_total, blocks_used, blocks_cached, swap_used,
        cells_used;
    _Atomic bool healthy;        /* no error since the last success, and no shard lost */
    _Atomic int64_t answered_ns; /* clock_ns() when all shards last answered any call */
    _Atomic int64_t call_ns;     /* clock_ns() when the model call in flight was sent; 0: none */
    _Atomic int64_t stalled_ns;  /* a model call in flight for longer than this counts as hung */
};

struct embed_job; /* router/embed/embedder.h */

/* Set when other schedulers serve the same model. All functions run on the loop thread. */
struct sched_owner {
    void *arg;
    void (*lost)(void *arg); /* the shards are lost; waiting requests are handed over */
    void (*back)(void *arg); /* new shards are connected; this scheduler takes requests again */
    /* Moves `r` to another scheduler, which resumes it from `g` (valid during the call). This
     * scheduler has dropped the request. */
    void (*hand_over)(void *arg, struct gen_request *r, const struct gen_resume *g);
    /* The same for a model that embeds (router/embed): `j` continues after the values it has. */
    void (*hand_over_texts)(void *arg, struct embed_job *j);
};

struct kv_publisher; /* router/events/publisher.h */

struct sched_options {
    struct shards *shards; /* owned by the scheduler once sched_new() has succeeded */
    uint32_t return_ms;    /* how long lost shards may take to return; 0: a loss is final */
    struct rpc_loop *loop; /* the event loop for timers, and of the link that reconnects: */
    const char *target;
    struct shard_model model;
    uint32_t max_batch_size; /* 0: unlimited */
    uint32_t max_waiting_tokens;
    double waiting_served_ratio;
    uint32_t target_inter_token_ms;   /* 0: no target */
    double target_inter_token_factor; /* at most 1: no target */
    struct metrics *metrics;          /* NULL: no metrics */
    struct sched_status *status;
    /* counts requests that ended because of a shard failure; NULL: not counted */
    atomic_uint *failed;
    const struct draft_source *drafts; /* NULL: no drafts; not owned */
    const struct sched_owner *owner;   /* NULL: requests wait until the shards return */
    /* receives the events of the prefix tree; NULL: none; not owned */
    struct kv_publisher *events;
    uint32_t events_rank; /* the rank of this scheduler in those events */
    bool check;           /* for tests: kv_check() after every turn */
};

struct scheduler;
struct draft_source;
/* The list of adapters for other threads. It lives as long as the scheduler. */
struct adapter_shelf *sched_shelf(struct scheduler *s);
/* Creates a scheduler over connected shards. It takes a reference to o->model.adapters and does not
 * take ownership of it. It owns o->shards only on success. NULL: out of memory, or a call queue
 * could not be created; `e` says which. */
struct scheduler *sched_new(const struct sched_options *o, struct err *e);
void sched_free(struct scheduler *s); /* call after `gone` of sched_stop(); NULL is allowed */
/* start watching the connections; a broken one counts as a loss */
void sched_watch(struct scheduler *s);

/* Enqueues `q` and takes ownership of it. `q` may end inside the call, with an event. */
void sched_add(struct scheduler *s, struct seq *q);
/* Cancels request `id`. No effect if it is unknown or has ended. */
void sched_cancel(struct scheduler *s, uint64_t id);
/* Asks every shard for its health. Called when the last answers are older than a health check
 * allows. */
void sched_probe(struct scheduler *s);
/* Declares the shards lost because they do not answer. No effect unless they may return. */
void sched_abandon(struct scheduler *s, const char *why);
/* Registers fn(arg, why) for a final loss of shards. Called at once if that has already
 * happened. */
void sched_on_lost(struct scheduler *s, void (*fn)(void *arg, const char *why), void *arg);
/* Writes the blocks, cells and slots in use, and the sequences that hold them, as a JSON object
 * (audit.c). Returns whether both sides balance. */
bool sched_audit(const struct scheduler *s, struct buf *out);
/* Makes every loss of shards final, including one that is already pending. `why` names the reason
 * in the errors of requests that were waiting for the shards. */
void sched_drain(struct scheduler *s, const char *why);
/* Ends every request with ERR_GENERATION and the message `why`. The shards stay connected. */
void sched_fail(struct scheduler *s, const char *why);
/* Stops waiting for lost shards. Call from another thread, before sched_stop(). */
void sched_halt(struct scheduler *s);
/* Ends every request with ERR_GENERATION and closes the shards. Then calls gone(arg) once; nothing
 * is pending on the loop from then on. */
void sched_stop(struct scheduler *s, void (*gone)(void *arg), void *arg);
#endif
