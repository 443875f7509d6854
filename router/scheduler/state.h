/* state.h - private state of the scheduler, shared by its own files only: scheduler.c (the answer
 * to a call), turn.c (the next call), members.c (requests that come and leave), step.c (results of
 * a step), preempt.c (block growth and preemption), failure.c (failures, health, loss), rejoin.c
 * (shards that return), end_turn.c (publishing a turn), handover.c (requests moved to another
 * scheduler). */
#ifndef ROUTER_SCHEDULER_STATE_H
#define ROUTER_SCHEDULER_STATE_H
#include "router/events/recorder.h"
#include "router/scheduler/changes.h"
#include "router/scheduler/contest.h"
#include "router/scheduler/deliver.h"
#include "router/scheduler/draft_source.h"
#include "router/scheduler/offload.h"
#include "router/scheduler/pace.h"
#include "router/scheduler/policy.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/swap.h"
#include "router/scheduler/wire.h"
#include "router/shards/link.h"

enum call {
    CALL_NONE,
    CALL_PREFILL,
    CALL_DECODE,
    CALL_CLEAN,
    CALL_CLEAR_ALL,
    CALL_PROBE,
    CALL_CHANGE,
    CALL_OFFLOAD
};
enum { MAX_JOIN = 128, NEW_BATCH = 1 };

/* a batch the shards hold; the second exists only until a peer that does not chunk has merged it
 * into the first */
struct held_batch {
    bool live;
    struct wire_batch b;
};

struct u32_list {
    uint32_t *v, n, cap;
};
struct moves { /* KV blocks copied to or from the swap region, in pairs */
    struct u32_list blocks, slots;
};

struct constraint_counts { /* the shards' counters at the last report */
    uint64_t dropped, trimmed, closed;
};

struct scheduler {
    struct sched_options o;
    struct wire_peer peer;
    struct metric_shares gauges; /* gauges summed over several schedulers */
    struct kv_blocks *kv;
    struct policy policy;
    struct seq_table known;  /* every seq that is not freed */
    struct seq **running;    /* in the shards' batches, in any state, in join order */
    struct started *started; /* [cap_running] those of them in the middle of their prompt */
    uint32_t n_running, cap_running;
    uint32_t n_placed; /* known seqs whose clients are sent their queue position */
    struct held_batch batch[2];
    uint64_t next_batch_id;
    uint32_t steps_since_join;
    struct pace pace;
    struct contest contest;
    struct encode_pace encode; /* throughput of image encoding */
    struct constraint_counts constraints;
    struct adapter_accounts adapters;
    struct adapter_shelf shelf;
    struct served_adapters *repeated; /* the link's, until new shards are connected */
    struct adapter_change *changes;   /* pending changes, in arrival order */
    struct adapter_change *change;    /* the change whose call is in flight */

    /* the edits of the next step; see preempt.c */
    bool grows;         /* blocks are allocated on demand */
    bool batch_unknown; /* a Prefill failed: FilterBatch must tell whether the old batch still
                           exists */
    uint64_t *leave;
    uint32_t n_leave, cap_leave;
    struct moves out_moves, in_moves;
    struct wire_save *saves; /* snapshots of recurrent state */
    uint32_t n_saves, cap_saves;
    struct swap swap;
    double token_ns; /* ns to compute a prompt token; 0: unknown */

    /* the model call in flight */
    struct fan fan;
    enum call call;
    uint32_t call_batch; /* CLEAN, PREFILL: index into `batch` */
    int64_t call_ns;
    int64_t patience_ns;           /* of calls of unknown pace: twenty times the slowest so far */
    struct seq *joining[MAX_JOIN]; /* PREFILL: the requests that join */
    uint32_t n_joining;
    uint32_t n_rows, n_prompt_tokens; /* decoding requests and prompt tokens in this step */
    /* message being sent; answer received, valid until the next one */
    struct rpc_mem out, in;

    const struct draft_source *drafts; /* NULL: no draft model */
    int64_t decode_ns;                 /* ns the last Decode took; 0: the last call was another */
    bool awaiting_drafts;              /* no call is sent until drafts are ready */
    struct deliver deliver;
    struct seq *dropped; /* freed at the end of the turn */

    /* failures */
    bool must_clear; /* unknown batches: ClearCache(all) before anything else */
    bool suspect;    /* an error, and no successful model call since */
    bool probe_due;
    bool lost;
    enum link_state link_state;
    struct shards_link *link; /* NULL: a loss is final */
    bool draining;            /* losses are final from now on */
    int64_t closing_ns;
    char why_lost[512]; /* set: the shards are lost when the call in flight has returned */
    struct rpc_op second_look;
    struct fan health;
    struct offload offload;
    struct kv_recorder recorder; /* for o.events */
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;

    bool stopping, unwatching, watched;
    void (*gone)(void *arg);
    void *gone_arg;
};

/* turn.c */
void sched_turn(struct scheduler *s); /* sends the next call if none is in flight */
void sched_send(struct scheduler *s, enum call call, enum shard_rpc rpc,
                const ProtobufCMessage *msg, int64_t timeout_ms);
void sched_drafts_ready(void *arg); /* drafts for a postponed step; arg: the scheduler */

/* scheduler.c */
/* Creates empty accounting for s->o.model's capacity. False: out of memory. */
bool sched_init_accounting(struct scheduler *s);
void sched_on_call(struct fan *f); /* the model call has returned */

/* end_turn.c */
void sched_publish(struct scheduler *s);  /* updates status and gauges */
void sched_end_turn(struct scheduler *s); /* publishes, flushes sinks, frees dropped seqs */

/* members.c */
/* Removes `q` from the running batch and releases its blocks. `q` stays readable until the end of
 * the turn. */
void sched_remove(struct scheduler *s, struct seq *q);
void sched_unlist(struct scheduler *s, struct seq *q); /* removes from `running` only */
/* as sched_remove(), for a seq in no batch */
void sched_drop(struct scheduler *s, struct seq *q);
/* grows `running` for n more; false: out of memory */
bool sched_room(struct scheduler *s, uint32_t n);

/* follow.c */
/* false: no request computes the same prompt */
bool follow(struct scheduler *s, struct seq *q);
/* enters the queue, or ends with an error */
void follow_enqueue(struct scheduler *s, struct seq *q);
/* the leader's prompt is computed: followers may share it */
void follow_computed(struct scheduler *s, struct seq *q);
/* the leader ends early: a follower replaces it */
void follow_succeed(struct scheduler *s, struct seq *q);
void follow_leave(struct seq *q); /* a follower was cancelled */
void follow_fail_all(struct scheduler *s, const struct err *why);

/* step.c */
struct step { /* the answer to a Prefill or Decode, between its two readings */
    struct step_reply r;
    struct seq **owner; /* [r.n_gens]; NULL: the request is gone */
};
/* accounting: counts, commits, marks */
void step_note(struct scheduler *s, struct step *st, uint32_t into);
void step_send_events(struct scheduler *s, struct step *st); /* events for the clients */
/* Advances prompts that were cut, except those that wait for an image. */
void step_progress(struct scheduler *s, const struct step_reply *r);
/* Sets n_now of those v[0 .. n) whose images are not ready to what was computed, and marks them as
 * cut. */
void step_stalled(struct scheduler *s, const struct step_reply *r, struct seq *const *v,
                  uint32_t n);
/* moves the joiners of the Prefill to batch `into` */
void step_join(struct scheduler *s, uint32_t into);
void step_metrics(struct scheduler *s, const char *method, const struct step_reply *r);

/* preempt.c; only if s->grows, except for the functions that release */
/* Before a step: drops ended requests, allocates blocks for running ones, and preempts the last in
 * rank while blocks are missing. True: one was preempted, so none may join in this step. */
bool preempt_turn(struct scheduler *s);
/* sets the tokens to reserve when it joins */
void preempt_reserve(struct scheduler *s, struct seq *q);
/* grows the lists of preempt_swap_in(); false: out of memory */
bool preempt_lists_fit(struct scheduler *s);
/* `q` joins: its blocks are copied from the swap region, unless the cache holds more. */
void preempt_swap_in(struct scheduler *s, struct seq *q);
/* The edits of the next step, in `x` and s->out. NULL: out of memory. */
const struct wire_edits *preempt_edits(struct scheduler *s, struct wire_edits *x);
void preempt_edits_sent(struct scheduler *s); /* the call that carries them is in flight */
/* That call returned. After a failed Prefill it is unknown whether the edits were applied:
 * FilterBatch removes the sequences that left, blocks are sent again, and the swap region counts as
 * empty. */
void preempt_edits_done(struct scheduler *s);
void preempt_drop_swap(struct scheduler *s, struct seq *q);
void preempt_forget_swap(struct scheduler *s); /* the content of the region is unknown */
void preempt_free(struct scheduler *s);
/* Puts a running request back into the queue with its generated tokens; all of it is recomputed. */
void preempt_requeue(struct scheduler *s, struct seq *q);

/* rejoin.c */
int rejoin_init(struct scheduler *s, struct err *e);     /* does nothing if a loss is final */
void rejoin_close(struct scheduler *s, const char *why); /* closes lost shards; only with s->link */
void rejoin_turn(struct scheduler *s); /* replaces a turn while the link is not CONNECTED */
void rejoin_end(struct scheduler *s);  /* last step of stopping: nothing else is pending */

/* transfer.c: disaggregated prefill and decode */
/* Queues committed blocks of its prompt for storing, for another service. */
void transfer_export(struct scheduler *s, struct seq *q);
/* Fills *out with the peer that may hold the first `n` blocks of its prompt. False: no peer. `ms`:
 * timeout of the fetch. */
bool transfer_peer(const struct scheduler *s, const struct seq *q, uint32_t n, int64_t ms,
                   Generate__V3__KvPeer *out);
struct transfer_read { /* result of a fetch that named a peer, over all ranks */
    uint32_t blocks;
    uint64_t bytes, ns;
    Generate__V3__KvPeerOutcome outcome; /* the first rank's outcome that is not FOUND */
};
void transfer_note(struct transfer_read *x, uint32_t rank, const Generate__V3__KvFetchResponse *r);
void transfer_count(struct scheduler *s, const struct transfer_read *x);

/* events.c */
bool kv_events_watch(struct scheduler *s, struct kv_blocks *kv); /* false: out of memory */
void kv_events_flush(struct scheduler *s);                       /* sends the events of this turn */

/* handover.c */
/* After a loss: hands every waiting request to the owner, if there is one. */
void hand_over_waiting(struct scheduler *s);

/* failure.c */
/* also called for new shards */
int failure_init(struct scheduler *s, struct shards *of, struct err *e);
void on_step_failed(struct scheduler *s, const struct err *cause); /* Prefill or Decode failed */
/* FilterBatch or ClearCache failed */
void on_clean_failed(struct scheduler *s, const struct err *cause);
void on_call_succeeded(struct scheduler *s); /* a model call succeeded */
/* The shards refused a call. They may be restarted ones without state: the event loop reports a
 * connection that broke and was restored a little later. */
bool failure_is_ambiguous(const struct scheduler *s);
/* Ends one request because of a failure it did not cause. */
void fail_request(struct scheduler *s, struct seq *q, const struct err *cause, int64_t now);
void fail_running(struct scheduler *s, const struct err *cause); /* ends all running requests */
/* ends all running and waiting requests */
void fail_everything(struct scheduler *s, const struct err *why);
void on_shard_lost(struct scheduler *s, const char *why); /* final, or until the shards return */
void failure_end(struct scheduler *s, const char *why);   /* final */
/* empties the accounting: new shards hold nothing */
void forget_kv(struct scheduler *s);

/* metrics are optional in tests */
static inline void sched_count(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_add(s->o.metrics, row, label, v);
}
/* The counter of a shard is `now`, and was *was. */
static inline void sched_count_since(struct scheduler *s, uint32_t row, const char *label,
                                     uint64_t now, uint64_t *was)
{
    /* a smaller count: the shards restarted */
    sched_count(s, row, label, (double)(now >= *was ? now - *was : now));
    *was = now;
}
static inline void sched_gauge(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_share(s->o.metrics, &s->gauges, row, label, v);
}
static inline void sched_observe(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_observe(s->o.metrics, row, label, v);
}
#endif
