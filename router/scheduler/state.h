/* state.h - the scheduler's insides, shared by scheduler.c (what next), step.c (what a step
 * brought) and trouble.c (failures, health, loss) and nobody else. */
#ifndef ROUTER_SCHEDULER_STATE_H
#define ROUTER_SCHEDULER_STATE_H
#include "router/scheduler/deliver.h"
#include "router/scheduler/policy.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/wire.h"

enum call { CALL_NONE, CALL_PREFILL, CALL_DECODE, CALL_CLEAN, CALL_CLEAR_ALL, CALL_PROBE };
enum { MAX_JOIN = 128, MAX_ADAPTERS = 256, NEW_BATCH = 1 };

struct held_batch { /* a batch the shards hold; the second only until a peer that does not chunk
                       has merged it into the first */
    bool live;
    struct wire_batch b;
};

struct scheduler {
    struct sched_options o;
    struct wire_peer peer;
    struct kv_blocks *kv;
    struct policy policy;
    struct seq_table known; /* every seq that was not freed */
    struct seq **running;   /* in the shards' batches, whatever their state, in join order */
    uint32_t n_running, cap_running;
    struct held_batch batch[2];
    uint64_t next_batch_id;
    uint32_t steps_since_join;
    char *adapters[MAX_ADAPTERS]; /* index + 1 is the number kv_key knows */

    /* the one model call that is out */
    struct fan fan;
    enum call call;
    uint32_t call_batch; /* CLEAN, PREFILL: which of `batch` */
    int64_t call_ns;
    struct seq *joining[MAX_JOIN]; /* PREFILL */
    uint32_t n_joining;
    struct rpc_mem out, in; /* being sent; received: lives until the next answer */

    struct deliver deliver;
    struct seq *dead; /* freed at the end of the turn */

    /* trouble */
    bool must_clear; /* batches in doubt: ClearCache(all) before anything else */
    bool suspect;    /* an error, and no model call that succeeded since */
    bool probe_due;
    bool lost;
    char why_lost[512]; /* set: lost once the call that is out is back */
    struct fan health;
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;

    bool stopping, unwatching, watched;
    void (*gone)(void *arg);
    void *gone_arg;
};

/* scheduler.c */
void sched_turn(struct scheduler *s);     /* send the next call, if none is out */
void sched_end_turn(struct scheduler *s); /* flush sinks, free the dead, publish numbers */
/* Out of the running batch with its blocks; q stays readable until the end of the turn. */
void sched_remove(struct scheduler *s, struct seq *q);
void sched_bury(struct scheduler *s, struct seq *q); /* the same for one that is in no batch */
bool sched_room(struct scheduler *s, uint32_t n);    /* for n more in `running`; false: oom */

/* step.c */
struct step { /* an answer to Prefill or Decode between its two readings */
    struct step_reply r;
    struct seq **owner; /* [r.n_gens], NULL: nobody to tell */
};
void step_note(struct scheduler *s, struct step *st, uint32_t into); /* counts, commits, marks */
void step_tell(struct scheduler *s, struct step *st);                /* events */
void step_join(struct scheduler *s, uint32_t into); /* those of the Prefill run in batch `into` */
void step_metrics(struct scheduler *s, const char *method, const struct step_reply *r);

/* trouble.c */
int trouble_init(struct scheduler *s, struct err *e);
void trouble_step(struct scheduler *s, const struct err *cause); /* Prefill or Decode failed */
void trouble_clean(struct scheduler *s,
                   const struct err *cause); /* FilterBatch, ClearCache failed */
void trouble_over(struct scheduler *s);      /* a model call succeeded */
void trouble_fail_all(struct scheduler *s, const struct err *cause);      /* all that runs */
void trouble_fail_everything(struct scheduler *s, const struct err *why); /* and all that waits */
void trouble_lose(struct scheduler *s, const char *why);

/* metrics are optional in tests */
static inline void sched_count(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_add(s->o.metrics, row, label, v);
}
static inline void sched_gauge(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_set(s->o.metrics, row, label, v);
}
static inline void sched_observe(struct scheduler *s, uint32_t row, const char *label, double v)
{
    if (s->o.metrics)
        metrics_observe(s->o.metrics, row, label, v);
}
#endif
