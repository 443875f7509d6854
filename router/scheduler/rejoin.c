/* Shards that crash and return: their launcher restarts them, and running requests resume.
 *
 * A request is its tokens (prompt and generated) and its parameters; the random numbers of a
 * sampled token depend only on seed and position. So requests that ran at a loss are queued again,
 * as after a preemption, and the new shards recompute them. The client sees a pause. A request that
 * ran at two losses may be their cause, and ends with the error. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include "router/shards/link.h"
#include "router/shards/restore_adapters.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { LOSSES_MOST = 2 };

/* ------------------------------------------------------------------ releasing shards */

/* A request that has ended still has its last event pending, in the step being processed. */
static void let_go(struct scheduler *s, struct seq *q, const struct err *why)
{
    bool ended = q->state != SEQ_RUNNING || !q->req;
    if (!ended && ++q->n_lost < LOSSES_MOST) {
        preempt_requeue(s, q);
        return;
    }
    if (!ended)
        fail_request(s, q, why, clock_ns());
    sched_remove(s, q);
}

void rejoin_close(struct scheduler *s, const char *why)
{
    struct err e = ERR_INIT;
    if (s->link_state != LINK_CONNECTED || s->lost)
        return;
    LOG(LOG_WARN, "shards lost; waiting for them to return", LOGS("error", why),
        LOGI("running", s->n_running));
    err_set(&e, ERR_GENERATION, "Request failed during generation: %s", why);
    while (s->n_running > 0)
        let_go(s, s->running[s->n_running - 1], &e);
    preempt_edits_sent(s); /* no request is left to remove or grow */
    forget_kv(s);
    s->batch[0].live = s->batch[NEW_BATCH].live = false;
    s->must_clear = s->batch_unknown = false;
    s->why_lost[0] = 0;
    s->link_state = LINK_BROKEN;
    s->closing_ns = clock_ns();
    fan_cancel(&s->health);
    fan_cancel(&s->offload.fan);
    if (s->o.owner)
        s->o.owner->lost(s->o.owner->arg);
}

static void on_unwatched(void *arg)
{
    struct scheduler *s = arg;
    struct shards *old = s->o.shards;
    assert(s->link_state == LINK_CLOSING && old);
    s->o.shards = NULL;
    s->watched = false;
    s->link_state = LINK_DISCONNECTED;
    fan_free(&s->fan);
    fan_free(&s->health);
    offload_free(s);
    shards_link_lost(s->link, old);
    sched_turn(s);
}

void rejoin_turn(struct scheduler *s)
{
    if (s->link_state == LINK_BROKEN && !s->health.busy && !s->offload.fan.busy) {
        s->link_state = LINK_CLOSING;
        shards_unwatch(s->o.shards, on_unwatched, s);
    } else if (s->link_state == LINK_DISCONNECTED && s->stopping && !s->unwatching) {
        s->unwatching = true;
        rejoin_end(s);
    }
}

/* ------------------------------------------------------------------ reconnecting */

/* Runs on the link's thread, while the loop does not use s->o.model. Of adapters prepare() replays
 * the changes, and unloads those with other files than before. */
static const char *unfit(void *arg, const struct shard_model *m)
{
    struct scheduler *s = arg;
    const char *why = shard_model_unfit(&s->o.model, m);
    const bool other = !m->runtime_adapters != !s->o.model.runtime_adapters;
    return why ? why : other ? "it came back with another --max-runtime-adapters" : NULL;
}

/* The link's thread. */
static int prepare(void *arg, struct shards *of, const struct shard_model *m, struct err *e)
{
    struct scheduler *s = arg;
    struct served_adapters *list = adapter_shelf_hold(&s->shelf);
    served_adapters_release(s->repeated);
    int rc = restore_adapters(list, m->adapters, !m->runtime_adapters, of, &s->repeated, e);
    served_adapters_release(list);
    return rc;
}

/* Creates empty accounting for the new shards' capacity. */
static bool take_over(struct scheduler *s, struct shards *of, const struct shard_model *m)
{
    struct err e = ERR_INIT;
    struct shard_model *now = &s->o.model;
    assert(s->n_running == 0 && s->call == CALL_NONE);
    now->max_batch_total_tokens = m->max_batch_total_tokens;
    now->swap_slots = m->swap_slots;
    now->offloads = m->offloads;
    now->state_cells = m->state_cells;
    now->window_blocks = m->window_blocks;
    now->window_tokens = m->window_tokens;
    s->peer.windows = now->window_blocks > 0;
    now->swap_block_ns = m->swap_block_ns;
    s->adapters.pool = now->adapter_pages = m->adapter_pages;
    if (!sched_init_accounting(s) || !adapters_replace(&s->adapters, s->repeated))
        return false;
    adapter_shelf_put(&s->shelf, s->repeated);
    changes_rejoined(s);
    for (size_t i = 0; i < sizeof(s->known.bucket) / sizeof(s->known.bucket[0]); i++)
        for (struct seq *q = s->known.bucket[i]; q; q = q->chain)
            q->waiter.tried = 0; /* the failure was recorded for the old cache */
    return fan_init(&s->fan, of, sched_on_call, s, &e) == 0 && failure_init(s, of, &e) == 0;
}

static void on_found(void *arg, struct shards *of, const struct shard_model *m)
{
    struct scheduler *s = arg;
    if (s->stopping || s->lost) {
        shards_link_lost(s->link, of);
        return;
    }
    assert(s->link_state == LINK_DISCONNECTED);
    if (!take_over(s, of, m)) {
        shards_link_lost(s->link, of);
        failure_end(s, "out of memory");
        return;
    }
    s->o.shards = of;
    s->link_state = LINK_CONNECTED;
    on_call_succeeded(s);
    sched_count(s, M_SHARD_RETURNS, NULL, 1);
    LOG(LOG_INFO, "shards are back", LOGD("seconds", (double)(clock_ns() - s->closing_ns) * 1e-9),
        LOGI("waiting", policy_waiting(&s->policy)));
    if (s->o.owner)
        s->o.owner->back(s->o.owner->arg);
    sched_watch(s);
    sched_turn(s);
    sched_end_turn(s);
}

static void on_missed(void *arg, const char *why)
{
    struct scheduler *s = arg;
    failure_end(s, why);
    sched_turn(s);
    sched_end_turn(s);
}

/* ------------------------------------------------------------------ life */

int rejoin_init(struct scheduler *s, struct err *e)
{
    const struct sched_options *o = &s->o;
    if (!o->return_ms || !s->grows) /* without on-demand blocks a sequence cannot resume */
        return 0;
    struct shards_link_options l = {.loop = o->loop,
                                    .name = "the model",
                                    .target = o->target,
                                    .ask = o->model,
                                    .unfit = unfit,
                                    .prepare = prepare,
                                    .found = on_found,
                                    .missed = on_missed,
                                    .arg = s,
                                    .patience_ms = o->return_ms};
    return shards_link_open(&s->link, &l, false, e);
}

void sched_abandon(struct scheduler *s, const char *why)
{
    if (!s->link || s->stopping || s->draining || s->link_state != LINK_CONNECTED || s->lost)
        return;
    if (s->call == CALL_NONE) {
        on_shard_lost(s, why);
    } else { /* the call in flight ends first: it uses blocks */
        snprintf(s->why_lost, sizeof(s->why_lost), "%s", why);
        fan_cancel(&s->fan);
    }
    sched_turn(s);
    sched_end_turn(s);
}

void sched_drain(struct scheduler *s, const char *why)
{
    char text[200];
    s->draining = true;
    if (s->link_state == LINK_CONNECTED)
        return;
    snprintf(text, sizeof(text), "the shards were lost, and %s", why);
    failure_end(s, text);
    sched_turn(s);
    sched_end_turn(s);
}

void sched_halt(struct scheduler *s) { shards_link_halt(s->link); }

void rejoin_end(struct scheduler *s) { shards_link_end(s->link, s->gone, s->gone_arg); }
