/* Failures, health and loss. A request's own error ends that request. A failed step ends the
 * requests it carried. A lost shard ends all requests and the router, unless the shards may return
 * (rejoin.c). */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { HEALTH_TIMEOUT_MS = 5000 };

void forget_kv(struct scheduler *s)
{
    kv_forget(s->kv);
    preempt_forget_swap(s);
    offload_forget(s);
}

void fail_request(struct scheduler *s, struct seq *q, const struct err *cause, int64_t now)
{
    assert(cause->kind != ERR_NONE);
    if (!q->req)
        return;
    if (s->o.failed)
        atomic_fetch_add(s->o.failed, 1);
    deliver_error(&s->deliver, q, cause, now);
}

void fail_running(struct scheduler *s, const struct err *cause)
{
    int64_t now = clock_ns();
    for (uint32_t i = 0; i < s->n_running; i++) {
        fail_request(s, s->running[i], cause, now);
        s->running[i]->state = SEQ_LEAVING;
    }
    s->must_clear = s->n_running > 0 || s->batch[0].live || s->batch[1].live;
}

void fail_everything(struct scheduler *s, const struct err *why)
{
    int64_t now = clock_ns();
    fail_running(s, why);
    follow_fail_all(s, why);
    offload_fail_all(s, why);
    for (struct waiter *w; (w = policy_any(&s->policy));) {
        struct seq *q = CONTAINER_OF(w, struct seq, waiter);
        policy_remove(&s->policy, &q->waiter);
        fail_request(s, q, why, now);
        sched_drop(s, q);
    }
}

static struct err during(const struct err *cause)
{
    struct err e = *cause;
    e.kind = fan_request_error(cause->kind);
    err_wrap(&e, "Request failed during generation");
    LOG(LOG_ERROR, e.msg);
    return e;
}

/* The joining requests end. Running ones continue if the shards are still consistent: every rank
 * answered and none executed the step. FilterBatch then shows whether the old batch still
 * exists. */
static void prefill_failed(struct scheduler *s, const struct err *e)
{
    int64_t now = clock_ns();
    uint32_t into = s->call_batch;
    bool merged = s->batch[into].live;
    assert(s->call == CALL_PREFILL);
    for (uint32_t i = 0; i < s->n_joining; i++) {
        fail_request(s, s->joining[i], e, now);
        s->joining[i]->gone = true;
    }
    step_join(s, into);
    s->batch_unknown = true;
    if (!merged) /* ClearCache(id) follows; clearing an absent batch is not an error */
        s->batch[into] = (struct held_batch){true, {.id = s->next_batch_id - 1}};
    else if (!fan_refused(&s->fan))
        fail_running(s, e);
}

static bool may_return(const struct scheduler *s)
{
    return s->link && !s->stopping && !s->draining;
}

/* The failed call, or the connection, shows that the shards are lost; others may replace them. */
static bool replaced(const struct scheduler *s)
{
    return may_return(s) && (s->why_lost[0] || fan_lost_rank(&s->fan) >= 0);
}

bool failure_is_ambiguous(const struct scheduler *s)
{
    struct err e = ERR_INIT;
    return may_return(s) && !replaced(s) && fan_error(&s->fan, &e) != 0;
}

void on_step_failed(struct scheduler *s, const struct err *cause)
{
    bool prefill = s->call == CALL_PREFILL;
    sched_count(s, M_BATCH_INFERENCE_FAILURE, prefill ? "prefill" : "decode", 1);
    s->suspect = s->probe_due = true;
    if (replaced(s)) {
        step_join(s, s->call_batch);
        rejoin_close(s, cause->msg);
        return;
    }
    struct err e = during(cause);
    bool broke = fan_lost_rank(&s->fan) >= 0;
    preempt_forget_swap(s); /* swap-outs of this call may not have happened */
    if (prefill)
        prefill_failed(s, &e);
    if (!prefill || broke)
        fail_running(s, &e);
    if (broke) {
        s->must_clear = true;
        forget_kv(s);
    }
}

void on_clean_failed(struct scheduler *s, const struct err *cause)
{
    if (s->call == CALL_CLEAR_ALL || replaced(s)) {
        on_shard_lost(s, cause->msg);
        return;
    }
    struct err e = during(cause);
    s->suspect = s->probe_due = true;
    fail_running(s, &e);
    s->must_clear = true;
    if (fan_lost_rank(&s->fan) >= 0)
        forget_kv(s);
}

void on_call_succeeded(struct scheduler *s)
{
    s->suspect = s->probe_due = false;
    atomic_store(&s->o.status->answered_ns, clock_ns());
}

void on_shard_lost(struct scheduler *s, const char *why)
{
    if (may_return(s))
        rejoin_close(s, why);
    else
        failure_end(s, why);
}

void failure_end(struct scheduler *s, const char *why)
{
    struct err e = ERR_INIT;
    if (s->lost)
        return;
    s->lost = true;
    err_set(&e, ERR_GENERATION, "Request failed during generation: %s", why);
    fail_everything(s, &e);
    changes_fail(s, why);
    s->must_clear = false;
    s->batch[0].live = s->batch[1].live = false;
    while (s->n_running > 0) /* no shard is left that writes their blocks */
        sched_remove(s, s->running[s->n_running - 1]);
    forget_kv(s);
    LOG(LOG_ERROR, "shard lost", LOGS("error", why));
    if (s->on_lost && !s->stopping)
        s->on_lost(s->on_lost_arg, why);
}

/* ------------------------------------------------------------------ health */
static void on_health(struct fan *f)
{
    struct scheduler *s = f->arg;
    struct err e = ERR_INIT;
    int rc = fan_error(f, &e);
    if (s->link_state != LINK_CONNECTED) {
        /* the answer is of shards that are gone */
    } else if (rc == 0) {
        atomic_store(&s->o.status->answered_ns, clock_ns());
    } else if (!s->stopping) {
        s->suspect = s->probe_due = true;
        LOG(LOG_WARN, "health check failed", LOGS("error", e.msg));
        if (fan_lost_rank(f) >= 0 && s->call == CALL_NONE) {
            on_shard_lost(s, e.msg);
        } else if (fan_lost_rank(f) >= 0) { /* the call in flight ends first: it uses blocks */
            snprintf(s->why_lost, sizeof(s->why_lost), "%s", e.msg);
            fan_cancel(&s->fan);
        }
    }
    sched_turn(s);
    sched_end_turn(s);
}

void sched_probe(struct scheduler *s)
{
    Generate__V3__HealthRequest ask = GENERATE__V3__HEALTH_REQUEST__INIT;
    s->probe_due = s->suspect;
    /* TGI's server does not answer health checks while it computes: a call in flight counts as
     * alive */
    bool blocked = s->call != CALL_NONE && !s->peer.takes_input_ids;
    if (blocked)
        atomic_store(&s->o.status->answered_ns, clock_ns());
    else if (!s->health.busy && !s->lost && !s->stopping && s->link_state == LINK_CONNECTED)
        fan_call(&s->health, SHARD_HEALTH, &ask.base, HEALTH_TIMEOUT_MS, false);
    sched_turn(s);
    sched_end_turn(s);
}

static void on_break(void *arg, const char *why)
{
    struct scheduler *s = arg;
    if (s->link_state != LINK_CONNECTED)
        return;
    LOG(LOG_WARN, "the connection to a shard broke", LOGS("error", why));
    forget_kv(s); /* the next answer may come from restarted shards */
    s->suspect = s->probe_due = true;
    /* A call in flight may have succeeded; the next one would reach restarted shards. */
    if (may_return(s) && s->call != CALL_NONE)
        snprintf(s->why_lost, sizeof(s->why_lost), "%s", why);
    else if (may_return(s))
        on_shard_lost(s, why);
    else if (s->call == CALL_NONE) /* a call in flight will fail */
        s->must_clear = true;
    sched_turn(s);
    sched_end_turn(s);
}

void sched_watch(struct scheduler *s)
{
    s->watched = true;
    shards_watch(s->o.shards, on_break, s);
}

int failure_init(struct scheduler *s, struct shards *of, struct err *e)
{
    return fan_init(&s->health, of, on_health, s, e) || offload_init(s, of, e) ? -1 : 0;
}

void sched_on_lost(struct scheduler *s, void (*fn)(void *arg, const char *why), void *arg)
{
    s->on_lost = fn;
    s->on_lost_arg = arg;
    if (s->lost)
        fn(arg, "a shard was lost");
}
