/* state.h - the scheduler's insides, shared by scheduler.c (what next), members.c (who comes and
 * leaves), step.c (what a step brought), preempt.c (which sequence gets blocks, which is
 * preempted), failure.c (failures, health, loss), rejoin.c (shards that come back), end_turn.c
 * (what a turn publishes), handover.c (who goes on elsewhere) and no other file. */
#ifndef ROUTER_SCHEDULER_STATE_H
#define ROUTER_SCHEDULER_STATE_H
#include "router/events/recorder.h"
#include "router/scheduler/changes.h"
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

struct held_batch { /* a batch the shards hold; the second only until a peer that does not chunk
                       has merged it into the first */
    bool live;
    struct wire_batch b;
};

struct u32_list {
    uint32_t *v, n, cap;
};
struct moves { /* KV blocks to or from the swap region, in pairs */
    struct u32_list blocks, slots;
};

struct scheduler {
    struct sched_options o;
    struct wire_peer peer;
    struct metric_shares gauges; /* what others add up with theirs */
    struct kv_blocks *kv;
    struct policy policy;
    struct seq_table known;  /* every seq that was not freed */
    struct seq **running;    /* in the shards' batches, whatever their state, in join order */
    struct started *started; /* as many: those of them in the middle of their prompt */
    uint32_t n_running, cap_running;
    uint32_t n_placed; /* of those known: those whose clients get their place in the queue */
    struct held_batch batch[2];
    uint64_t next_batch_id;
    uint32_t steps_since_join;
    struct pace pace;
    struct encode_pace encode; /* of pictures */
    struct adapter_accounts adapters;
    struct adapter_shelf shelf;
    struct served_adapters *repeated; /* the link's, until its shards are found */
    struct adapter_change *changes;   /* not done yet, in the order of their arrival */
    struct adapter_change *change;    /* the call that is out is this one's */

    /* what the next step does first; see preempt.c */
    bool grows; /* the shards take blocks as they are needed */
    bool doubt; /* a Prefill failed: FilterBatch must tell whether the old batch is still there */
    uint64_t *leave;
    uint32_t n_leave, cap_leave;
    struct moves out_moves, in_moves;
    struct wire_save *saves; /* of recurrent state */
    uint32_t n_saves, cap_saves;
    struct swap swap;
    double token_ns; /* what a prompt token takes to compute; 0: not known */

    /* the one model call that is out */
    struct fan fan;
    enum call call;
    uint32_t call_batch; /* CLEAN, PREFILL: which of `batch` */
    int64_t call_ns;
    struct seq *joining[MAX_JOIN]; /* PREFILL */
    uint32_t n_joining;
    uint32_t n_rows, n_prompt_tokens; /* decoding requests and prompt tokens in this step */
    struct rpc_mem out, in;           /* being sent; received: lives until the next answer */

    const struct draft_source *drafts; /* NULL: no draft model */
    int64_t decode_ns;                 /* what the last Decode took; 0: the last call was none */
    bool awaiting_drafts;              /* no call is sent until they are ready */
    struct deliver deliver;
    struct seq *dropped; /* freed at the end of the turn */

    /* failures */
    bool must_clear; /* batches in doubt: ClearCache(all) before anything else */
    bool suspect;    /* an error, and no model call that succeeded since */
    bool probe_due;
    bool lost;
    enum link_state link_state;
    struct shards_link *link; /* NULL: a loss is final */
    bool draining;            /* here too */
    int64_t closing_ns;
    char why_lost[512]; /* set: lost once the call that is out is back */
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
void sched_turn(struct scheduler *s); /* send the next call, if none is out */
void sched_send(struct scheduler *s, enum call call, enum shard_rpc rpc,
                const ProtobufCMessage *msg, int64_t timeout_ms);
void sched_drafts_ready(void *arg); /* drafts that a turn waited for; arg: the scheduler */

/* scheduler.c */
/* Empty ones, for what s->o.model holds; false: no memory. */
bool sched_init_accounting(struct scheduler *s);
void sched_on_call(struct fan *f); /* the model call is back */

/* end_turn.c */
void sched_publish(struct scheduler *s);  /* status and gauges */
void sched_end_turn(struct scheduler *s); /* publish gauges, flush sinks, free the dropped */

/* members.c */
/* Out of the running batch with its blocks; q stays readable until the end of the turn. */
void sched_remove(struct scheduler *s, struct seq *q);
void sched_unlist(struct scheduler *s, struct seq *q); /* out of `running`, and nothing else */
void sched_drop(struct scheduler *s, struct seq *q);   /* the same for one that is in no batch */
bool sched_room(struct scheduler *s, uint32_t n);      /* for n more in `running`; false: oom */

/* follow.c */
bool follow(struct scheduler *s, struct seq *q);          /* false: none computes the same prompt */
void follow_enqueue(struct scheduler *s, struct seq *q);  /* into the queue, or its end */
void follow_computed(struct scheduler *s, struct seq *q); /* its prompt: all may share it */
void follow_succeed(struct scheduler *s, struct seq *q);  /* it will not compute its prompt */
void follow_leave(struct seq *q);                         /* a follower was cancelled */
void follow_fail_all(struct scheduler *s, const struct err *why);

/* step.c */
struct step { /* an answer to Prefill or Decode between its two readings */
    struct step_reply r;
    struct seq **owner; /* [r.n_gens], NULL: it is gone */
};
void step_note(struct scheduler *s, struct step *st, uint32_t into); /* counts, commits, marks */
void step_send_events(struct scheduler *s, struct step *st);         /* events */
/* Prompts that were cut went on as planned, but for those that wait for a picture. */
void step_progress(struct scheduler *s, const struct step_reply *r);
/* Of v[0 .. n): n_now becomes what those computed whose pictures are not ready, and they are cut.
 */
void step_stalled(struct scheduler *s, const struct step_reply *r, struct seq *const *v,
                  uint32_t n);
void step_join(struct scheduler *s, uint32_t into); /* those of the Prefill run in batch `into` */
void step_metrics(struct scheduler *s, const char *method, const struct step_reply *r);

/* preempt.c; only where s->grows, but for the ones that end things */
/* Before a step: those that have ended leave, those that run get the blocks they need, and the last
 * in rank is preempted where there is none. True: one was; then none joins now. */
bool preempt_turn(struct scheduler *s);
void preempt_reserve(struct scheduler *s, struct seq *q); /* sets what it asks for when it joins */
bool preempt_lists_fit(struct scheduler *s); /* for preempt_swap_in(); false: no memory */
/* It joins: its blocks come back from the swap region, unless the cache had better. */
void preempt_swap_in(struct scheduler *s, struct seq *q);
/* What the next step does first, in `x` and s->out; NULL: no memory. */
const struct wire_edits *preempt_edits(struct scheduler *s, struct wire_edits *x);
void preempt_edits_sent(struct scheduler *s); /* that is on its way */
/* And was answered. A Prefill that failed may have done it or not: who left is out by FilterBatch,
 * blocks are said again, and nothing in the swap region is relied on. */
void preempt_edits_done(struct scheduler *s);
void preempt_drop_swap(struct scheduler *s, struct seq *q);
void preempt_forget_swap(struct scheduler *s); /* nothing in the region can be relied on */
void preempt_free(struct scheduler *s);
/* One that runs waits again, with what it has generated so far: all of it is computed again. */
void preempt_requeue(struct scheduler *s, struct seq *q);

/* rejoin.c */
int rejoin_init(struct scheduler *s, struct err *e);     /* nothing, where a loss is final */
void rejoin_close(struct scheduler *s, const char *why); /* the shards are gone; where s->link */
void rejoin_turn(struct scheduler *s); /* instead of a turn, while the link is not CONNECTED */
void rejoin_end(struct scheduler *s);  /* nothing else is pending: the last step of stopping */

/* transfer.c: prefill and decode apart */
/* Blocks of its prompt that were committed are stored for another service. */
void transfer_export(struct scheduler *s, struct seq *q);
/* Where the first `n` blocks of its prompt may be, in *out; false: nowhere else. `ms`: of the
 * fetch. */
bool transfer_peer(const struct scheduler *s, const struct seq *q, uint32_t n, int64_t ms,
                   Generate__V3__KvPeer *out);
struct transfer_read { /* what a fetch that has named a peer brought, of all ranks */
    uint32_t blocks;
    uint64_t bytes, ns;
    Generate__V3__KvPeerOutcome outcome; /* the first rank's that is not FOUND */
};
void transfer_note(struct transfer_read *x, uint32_t rank, const Generate__V3__KvFetchResponse *r);
void transfer_count(struct scheduler *s, const struct transfer_read *x);

/* kv_events.c */
bool kv_events_watch(struct scheduler *s, struct kv_blocks *kv); /* false: no memory */
void kv_events_flush(struct scheduler *s);                       /* what this turn brought */

/* handover.c */
/* Where the shards are lost: every request that waits goes to the owner, if there is one. */
void hand_over_waiting(struct scheduler *s);

/* failure.c */
int failure_init(struct scheduler *s, struct shards *of, struct err *e); /* also again */
void on_step_failed(struct scheduler *s, const struct err *cause); /* Prefill or Decode failed */
void on_clean_failed(struct scheduler *s,
                     const struct err *cause); /* FilterBatch, ClearCache failed */
void on_call_succeeded(struct scheduler *s);   /* a model call succeeded */
/* The shards refused a call. Perhaps they are others, who know of nothing: a connection that breaks
 * and is there again is told of a little later. */
bool failure_is_doubtful(const struct scheduler *s);
/* The last event of one request, which is no fault of its own. */
void fail_request(struct scheduler *s, struct seq *q, const struct err *cause, int64_t now);
void fail_running(struct scheduler *s, const struct err *cause);  /* all that runs */
void fail_everything(struct scheduler *s, const struct err *why); /* and all that waits */
void on_shard_lost(struct scheduler *s, const char *why); /* for good, or until they come back */
void failure_end(struct scheduler *s, const char *why);   /* for good */
void forget_kv(struct scheduler *s);                      /* the next shards know nothing */

/* metrics are optional in tests */
static inline void sched_count(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_add(s->o.metrics, row, label, v);
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
