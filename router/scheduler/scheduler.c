#include "router/scheduler/scheduler.h"
#include "common/clock.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include "router/shards/link.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    SECOND_LOOK_MS = 50,
    IN_LIMIT = 1 << 30,
    OUT_LIMIT = 1 << 30,
};
#define FIRST_PATIENCE_NS INT64_C(120000000000) /* hang threshold until step times are known */

/* ------------------------------------------------------------------ answers */
/* Measures the cost of recomputing a token. */
static void learn_token(struct scheduler *s, double ns)
{
    s->token_ns = s->token_ns > 0 ? 0.8 * s->token_ns + 0.2 * ns : ns;
}

static void on_prefill(struct scheduler *s, struct step *st)
{
    uint32_t tokens = s->n_running;
    step_progress(s, &st->r);
    step_stalled(s, &st->r, s->joining, s->n_joining);
    step_join(s, s->call_batch);
    for (uint32_t i = 0; i < s->n_joining; i++) {
        struct seq *q = s->joining[i];
        tokens += q->n_now;
        kv_copied(s->kv, &q->kv);
        q->n_computed = q->cut ? q->kv.n_cached + q->n_now : q->waiter.key.n;
        kv_commit(s->kv, &q->kv, q->tokens, q->n_computed);
        deliver_progress(&s->deliver, q, q->n_computed);
        transfer_export(s, q);
    }
    preempt_edits_done(s);
    if (s->peer.takes_chunks && s->n_rows + s->n_prompt_tokens > 0)
        tokens = s->n_rows + s->n_prompt_tokens;
    if (tokens) /* zero if all prompts wait for images */
        learn_token(s, (double)(st->r.forward_ns - st->r.encode_ns) / tokens);
    s->steps_since_join = 0;
    step_metrics(s, "prefill", &st->r);
    step_note(s, st, s->call_batch);
}

static void on_decode(struct scheduler *s, struct step *st)
{
    for (uint32_t i = 0; s->batch[NEW_BATCH].live && i < s->n_running; i++)
        s->running[i]->batch = 0; /* this call merged it into the first batch */
    s->batch[NEW_BATCH].live = false;
    s->steps_since_join++;
    s->decode_ns = s->peer.takes_chunks && s->n_prompt_tokens ? 0 : clock_ns() - s->call_ns;
    preempt_edits_done(s);
    step_progress(s, &st->r);
    step_metrics(s, "decode", &st->r);
    step_note(s, st, 0);
}

static void on_clean(struct scheduler *s)
{
    struct err e = ERR_INIT;
    const Generate__V3__FilterBatchResponse *r;
    for (uint32_t i = s->n_running; i-- > 0;)
        if (s->running[i]->state == SEQ_GOING)
            sched_remove(s, s->running[i]);
    if (s->fan.rpc == SHARD_FILTER_BATCH &&
        (r = (const void *)fan_reply(&s->fan, s->fan.n - 1, &s->in, &e)) && r->batch)
        s->batch[s->call_batch].b = (struct wire_batch){
            r->batch->id, r->batch->size, r->batch->max_tokens, r->batch->current_tokens};
    sched_observe(s, M_BATCH_FILTER_DURATION, "decode", (double)(clock_ns() - s->call_ns) * 1e-9);
}

static void on_clear_all(struct scheduler *s)
{
    s->batch[0].live = s->batch[NEW_BATCH].live = false;
    while (s->n_running > 0)
        sched_remove(s, s->running[s->n_running - 1]);
}

/* True: the step succeeded and has events. */
static bool note(struct scheduler *s, struct step *st)
{
    struct err e = ERR_INIT;
    bool is_step = s->call == CALL_PREFILL || s->call == CALL_DECODE;
    int rc = fan_error(&s->fan, &e);
    if (rc == 0 && is_step)
        rc = fan_step_reply(&s->fan, &s->in, &st->r, &e);
    if (s->call == CALL_OFFLOAD)
        offload_answered(s, rc == 0);
    if (s->stopping && s->call == CALL_PREFILL)
        step_join(s, s->call_batch);
    if (s->stopping && s->call != CALL_CLEAR_ALL) { /* all requests have had their last event */
        s->must_clear = true;
        return false;
    }
    if (s->call == CALL_CHANGE && fan_lost_rank(&s->fan) < 0) {
        changes_answered(s);
        return false;
    }
    if (s->call == CALL_OFFLOAD && fan_lost_rank(&s->fan) < 0)
        return false; /* its result would only be cache */
    if (s->call == CALL_CHANGE)
        changes_lost(s);
    if (rc != 0 && is_step)
        on_step_failed(s, &e);
    else if (rc != 0 && s->call != CALL_PROBE)
        on_clean_failed(s, &e);
    else if (s->call == CALL_PROBE && fan_lost_rank(&s->fan) >= 0)
        s->must_clear = true; /* its outcome shows whether the batch still exists */
    else if (s->call == CALL_CLEAN)
        on_clean(s);
    else if (s->call == CALL_CLEAR_ALL)
        on_clear_all(s);
    else if (rc == 0)
        on_call_succeeded(s);
    if (rc != 0 || !is_step)
        return false;
    if (s->call == CALL_PREFILL)
        on_prefill(s, st);
    else
        on_decode(s, st);
    return true;
}

/* A call of unknown pace that takes twenty times the slowest one so far counts as hung, for the
 * health check only. The call's own deadline ends it. */
static void learn_pace(struct scheduler *s)
{
    struct err e;
    int64_t patience = PACE_HANGS * (clock_ns() - s->call_ns);
    if (s->call != CALL_CHANGE && patience > s->patience_ns && fan_error(&s->fan, &e) == 0)
        s->patience_ns = patience;
    atomic_store(&s->o.status->call_ns, 0);
}

static void call_back(struct scheduler *s)
{
    struct step st = {0};
    rpc_mem_reset(&s->in);
    bool events = note(s, &st);
    s->call = CALL_NONE;
    s->n_joining = 0;
    if (s->why_lost[0])
        on_shard_lost(s, s->why_lost);
    sched_turn(s); /* the shards first: they compute while events are sent */
    if (events)
        step_send_events(s, &st);
    sched_end_turn(s);
}

static void on_second_look(struct rpc_op *op, bool ok)
{
    (void)ok;
    call_back(CONTAINER_OF(op, struct scheduler, second_look));
}

void sched_on_call(struct fan *f)
{
    struct scheduler *s = f->arg;
    learn_pace(s);
    if (failure_is_ambiguous(s)) {
        s->second_look = (struct rpc_op){on_second_look, "second look"};
        rpc_after(s->o.loop, SECOND_LOOK_MS, &s->second_look);
    } else {
        call_back(s);
    }
}

/* ------------------------------------------------------------------ life */
bool sched_init_accounting(struct scheduler *s)
{
    const struct shard_model *m = &s->o.model;
    struct swap swap = {0};
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
        seed = (uint64_t)clock_ns();
    /* a padding peer uses no block 0 for padding rows: one more block, so that all its tokens
     * count */
    struct kv_blocks *kv = kv_new(m->max_batch_total_tokens / m->block_size + m->requires_padding,
                                  m->block_size, seed);
    bool snapshots = s->grows && m->takes_chunks && m->prefix_caching;
    bool ok = kv && (!m->state_cells_per_request || kv_stateful(kv, m->state_cells, snapshots));
    ok = ok && (!m->window_blocks ||
                kv_windowed(kv, m->window_blocks, m->window_tokens, m->max_batch_prefill_tokens));
    ok = ok && (!m->offloads || kv_offloading(kv)) && kv_events_watch(s, kv);
    if (!ok || !swap_init(&swap, s->grows ? m->swap_slots : 0)) {
        kv_free(kv);
        return false;
    }
    kv_free(s->kv);
    swap_fini(&s->swap);
    s->policy.kv = s->kv = kv;
    s->swap = swap;
    kv_copying(kv, m->copies_kv && m->prefix_caching);
    sched_gauge(s, M_BATCH_MAX_TOTAL_TOKENS, NULL, m->max_batch_total_tokens);
    return true;
}

struct scheduler *sched_new(const struct sched_options *o, struct err *e)
{
    const struct shard_model *m = &o->model;
    struct scheduler *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->o = *o;
    s->o.shards = NULL; /* owned on success only */
    s->o.model.adapters = NULL;
    adapter_shelf_init(&s->shelf);
    s->drafts = o->drafts;
    if (s->drafts)
        s->drafts->on_ready(s->drafts->self, sched_drafts_ready, s);
    s->peer = (struct wire_peer){m->takes_input_ids, m->requires_padding, m->block_size,
                                 m->speculate,       m->takes_chunks,     m->window_blocks > 0};
    rpc_mem_init(&s->in, IN_LIMIT);
    rpc_mem_init(&s->out, OUT_LIMIT);
    s->grows = m->takes_edits;
    struct served_adapters *adapters =
        m->adapters ? served_adapters_hold(m->adapters) : served_adapters_none();
    bool ok = adapters && adapters_init(&s->adapters, adapters, m->adapter_pages);
    if (ok)
        adapter_shelf_put(&s->shelf, adapters);
    served_adapters_release(adapters);
    if (!ok || !sched_init_accounting(s)) {
        err_nomem(e);
        sched_free(s);
        return NULL;
    }
    struct policy_limits limits = {.prefill_tokens = m->max_batch_prefill_tokens,
                                   .batch_size = o->max_batch_size,
                                   .chunking = m->chunking,
                                   .grows = m->takes_edits,
                                   .waiting_served_ratio = o->waiting_served_ratio,
                                   .max_waiting_tokens = o->max_waiting_tokens};
    policy_init(&s->policy, &limits, s->kv, &s->adapters);
    if (fan_init(&s->fan, o->shards, sched_on_call, s, e) != 0 ||
        failure_init(s, o->shards, e) != 0 || rejoin_init(s, e) != 0) {
        sched_free(s);
        return NULL;
    }
    s->o.shards = o->shards;
    on_call_succeeded(s); /* warm-up has just succeeded */
    s->patience_ns = FIRST_PATIENCE_NS;
    atomic_store(&o->status->stalled_ns, FIRST_PATIENCE_NS);
    sched_publish(s);
    return s;
}

struct adapter_shelf *sched_shelf(struct scheduler *s) { return &s->shelf; }

static void fail_all(struct scheduler *s, const char *why)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERATION, "Request failed during generation: %s", why);
    for (uint32_t i = 0; i < s->n_joining; i++) {
        fail_request(s, s->joining[i], &e, clock_ns());
        s->joining[i]->gone = true;
    }
    fail_everything(s, &e);
}

void sched_fail(struct scheduler *s, const char *why)
{
    fail_all(s, why);
    sched_turn(s);
    sched_end_turn(s);
}

void sched_stop(struct scheduler *s, void (*gone)(void *arg), void *arg)
{
    s->stopping = true;
    s->gone = gone;
    s->gone_arg = arg;
    fail_all(s, "the router is shutting down");
    changes_fail(s, "the server is shutting down");
    fan_cancel(&s->fan);
    fan_cancel(&s->health);
    fan_cancel(&s->offload.fan);
    sched_turn(s);
    sched_end_turn(s);
}

void sched_free(struct scheduler *s)
{
    if (!s)
        return;
    assert(s->n_running == 0 && s->known.n == 0 && swap_used(&s->swap) == 0);
    if (s->o.metrics)
        metrics_unshare(s->o.metrics, &s->gauges);
    fan_free(&s->fan);
    fan_free(&s->health);
    offload_free(s);
    shards_link_free(s->link);
    shards_free(s->o.shards);
    policy_free(&s->policy);
    kv_free(s->kv);
    preempt_free(s);
    rpc_mem_free(&s->in);
    rpc_mem_free(&s->out);
    kv_recorder_free(&s->recorder);
    adapters_free(&s->adapters);
    adapter_shelf_fini(&s->shelf);
    served_adapters_release(s->repeated);
    free(s->running);
    free(s->started);
    free(s);
}
