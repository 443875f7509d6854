/* Chooses and sends the next call to the shards. */
#include "common/clock.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_TIMEOUT_MS = 600000, /* a long prefill on a slow machine takes minutes */
    STOP_TIMEOUT_MS = 1000,
};

/* True if a prompt of the planned step has images left to encode. */
static bool has_pictures(const struct scheduler *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n_running && !any; i++)
        any = seq_in_prompt(s->running[i]) && s->running[i]->waiter.key.media.n;
    for (uint32_t i = 0; i < s->n_joining && !any; i++)
        any = s->joining[i]->waiter.key.media.n;
    return any;
}

/* Duration after which the call counts as hung, for the health check; its own deadline ends it. */
static int64_t patience(const struct scheduler *s, enum call call)
{
    const bool step = call == CALL_PREFILL || call == CALL_DECODE;
    const double known =
        step && !has_pictures(s) ? pace_patience(&s->pace, s->n_rows, s->n_prompt_tokens) : 0;
    return known > 0 ? (int64_t)(known * 1e9) : s->patience_ns;
}

void sched_send(struct scheduler *s, enum call call, enum shard_rpc rpc,
                const ProtobufCMessage *msg, int64_t timeout_ms)
{
    assert(s->call == CALL_NONE && !s->awaiting_drafts);
    s->call = call;
    s->decode_ns = 0;
    s->call_ns = clock_ns();
    atomic_store(&s->o.status->stalled_ns, patience(s, call));
    atomic_store(&s->o.status->call_ns, s->call_ns);
    fan_call(&s->fan, rpc, msg, timeout_ms, false);
    rpc_mem_reset(&s->out);
}

static void send_clear_all(struct scheduler *s)
{
    Generate__V3__ClearCacheRequest all = GENERATE__V3__CLEAR_CACHE_REQUEST__INIT;
    s->must_clear = false;
    preempt_edits_sent(s); /* no request is left to remove or grow */
    sched_send(s, CALL_CLEAR_ALL, SHARD_CLEAR_CACHE, &all.base,
               s->stopping ? STOP_TIMEOUT_MS : STEP_TIMEOUT_MS);
}

/* Out of memory for a message: no call is possible, and the requests it would carry end here. */
static void send_failed(struct scheduler *s)
{
    struct err e = ERR_INIT;
    err_nomem(&e);
    rpc_mem_reset(&s->out);
    preempt_forget_swap(s);
    fail_running(s, &e);
    send_clear_all(s);
}

static bool send_clean(struct scheduler *s, uint32_t k)
{
    uint32_t n_keep = 0, n_go = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->batch == k)
            *(s->running[i]->state == SEQ_RUNNING ? &n_keep : &n_go) += 1;
    if (n_go == 0)
        return false;
    uint64_t *keep = RPC_NEW(&s->out, uint64_t, n_keep + 1);
    n_keep = 0;
    for (uint32_t i = 0; keep && i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (q->batch == k && q->state == SEQ_RUNNING)
            keep[n_keep++] = q->id;
        else if (q->batch == k)
            q->state = SEQ_GOING;
    }
    const ProtobufCMessage *msg = !keep    ? NULL
                                  : n_keep ? wire_filter(s->batch[k].b.id, keep, n_keep, &s->out)
                                           : wire_clear(&s->batch[k].b.id, &s->out);
    if (!msg)
        return send_failed(s), true;
    s->call_batch = k;
    if (n_keep == 0)
        s->batch[k].live = false;
    sched_send(s, CALL_CLEAN, n_keep ? SHARD_FILTER_BATCH : SHARD_CLEAR_CACHE, msg,
               STEP_TIMEOUT_MS);
    return true;
}

/* All running requests have left, and none joins. */
static bool send_over(struct scheduler *s)
{
    const ProtobufCMessage *msg = wire_clear(&s->batch[0].b.id, &s->out);
    if (!msg)
        return send_failed(s), true;
    s->batch[0].live = false;
    s->call_batch = 0;
    preempt_edits_sent(s);
    sched_send(s, CALL_CLEAN, SHARD_CLEAR_CACHE, msg, STEP_TIMEOUT_MS);
    return true;
}

static struct load current_load(const struct scheduler *s)
{
    struct load l = {.n_running = s->n_running,
                     .steps_since_join = s->steps_since_join,
                     .keep_free = s->n_running};
    uint32_t tokens = s->batch[0].live ? s->batch[0].b.current_tokens : 0;
    if (s->o.model.chunking) /* without chunking a prefill runs alone */
        l.n_tokens = tokens > s->n_running ? tokens : s->n_running;
    return l;
}

/* In the middle of its prompt; the last prompt token is computed with the decode rows. */
static bool is_started(const struct seq *q) { return seq_in_prompt(q) && seq_left(q) > 1; }

/* Finds where the prompt stops next, if it is computed up to `from`. */
static void find_stop(struct scheduler *s, struct seq *q, uint32_t from)
{
    q->stop = kv_stop(s->kv, &q->kv, q->n_tokens, from, q->waiter.awaited);
}

/* For a peer that receives the number of prompt tokens to compute. */
static void load_chunks(struct scheduler *s, struct load *l, int64_t now)
{
    const double target = s->o.target_inter_token_ms * 1e-3;
    l->started = s->started;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (!is_started(q))
            continue;
        find_stop(s, q, q->n_computed);
        s->started[l->n_started++] = (struct started){.left = seq_left(q),
                                                      .stop = q->stop - q->n_computed,
                                                      .at = q->n_computed,
                                                      .media = q->waiter.key.media};
    }
    l->n_tokens = s->n_running - l->n_started;
    l->prompt_tokens =
        pace_budget(&s->pace, l->n_tokens, target, s->o.model.max_batch_prefill_tokens);
    l->prompt_tokens =
        pace_budget_factor(&s->pace, l->n_tokens, s->o.target_inter_token_factor, l->prompt_tokens);
    if (target > 0)
        contest_bound(&s->contest, &s->pace, now, l);
    sched_gauge(s, M_BATCH_PROMPT_BUDGET, NULL, l->prompt_tokens);
}

static void plan_chunks(struct scheduler *s, const struct load *l)
{
    for (uint32_t i = 0, k = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        bool started = is_started(q);
        q->n_now = started ? l->started[k++].n_now : seq_in_prompt(q);
        s->n_prompt_tokens += started ? q->n_now : 0;
    }
}

/* Plans the next step. Returns the number of joiners, at most `most`. */
static uint32_t join(struct scheduler *s, struct seq **out, uint32_t most)
{
    struct joiner j[MAX_JOIN];
    int64_t now = clock_ns();
    struct load l = current_load(s);
    bool names = s->peer.takes_chunks;
    if ((!policy_waiting(&s->policy) && !names) || !sched_room(s, MAX_JOIN) ||
        !preempt_lists_fit(s))
        return 0;
    kv_step_tokens(s->kv, pace_step(&s->pace));
    if (names)
        load_chunks(s, &l, now);
    uint32_t n = policy_join(&s->policy, &l, now, j, most);
    s->n_rows = l.n_tokens;
    s->n_prompt_tokens = 0;
    if (names)
        plan_chunks(s, &l);
    for (uint32_t i = 0; i < n; i++) {
        struct seq *q = out[i] = CONTAINER_OF(j[i].w, struct seq, waiter);
        q->state = SEQ_JOINING;
        if (j[i].newcomer)
            contest_note(&s->contest, j[i].w->left, now);
        if (q->req && q->req->wants_place)
            atomic_store_explicit(&q->req->place, 0, memory_order_relaxed);
        q->n_now = j[i].n_tokens;
        s->n_prompt_tokens += q->n_now;
        q->cut = j[i].cut;
        find_stop(s, q, q->kv.n_cached);
        if (q->n_preempted == 0) {
            assert(q->req); /* a request is removed from the queue with its last event */
            q->req->times.batched = now;
            q->req->n_cached = q->kv.n_cached;
            q->req->cache_miss = kv_miss_name(q->kv.miss);
            q->req->cache_miss_at = q->kv.miss_at;
            deliver_progress(&s->deliver, q, q->kv.n_cached);
        }
        if (!q->waiter.swap_to || q->kv.n_cached != q->waiter.swap_to) {
            sched_count(s, M_PREFIX_QUERY_TOKENS, NULL, q->waiter.key.n);
            sched_count(s, M_PREFIX_HIT_TOKENS, NULL, q->kv.n_cached);
        }
        sched_count(s, M_KV_COPIES, NULL, q->kv.copy_from != 0);
        sched_count(s, M_STATE_HITS, NULL, q->kv.state_from != 0);
        preempt_swap_in(s, q);
    }
    return n;
}

/* A call carries the prompts of many requests but one trace context: that of the first traced
 * one. */
static void trace_joining(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_joining; i++) {
        const struct gen_request *r = s->joining[i]->req;
        if (r && r->trace.sampled) {
            trace_print(&r->trace, s->fan.traceparent);
            return;
        }
    }
}

/* Image operations the step may compute; 0: no limit. */
static uint64_t encode_most(const struct scheduler *s)
{
    const double target = s->o.target_inter_token_ms * 1e-3;
    if (target <= 0 || !has_pictures(s))
        return 0;
    return encode_budget(&s->encode, &s->pace, s->n_rows, target);
}

static bool send_prefill(struct scheduler *s)
{
    if (s->batch[NEW_BATCH].live || !(s->n_joining = join(s, s->joining, MAX_JOIN)))
        return false;
    bool running = s->batch[0].live, merge = running && s->o.model.chunking;
    s->call_batch = running && !merge ? NEW_BATCH : 0;
    sched_observe(s, M_BATCH_NEXT_SIZE, NULL, s->n_joining);
    if (running)
        sched_count(s, M_BATCH_CONCAT,
                    merge                                            ? "chunking"
                    : s->steps_since_join >= s->o.max_waiting_tokens ? "wait_exceeded"
                                                                     : "backpressure",
                    1);
    sched_count(s, M_BATCH_INFERENCE_COUNT, "prefill", 1);
    struct wire_edits x;
    const ProtobufCMessage *msg = NULL;
    if (preempt_edits(s, &x))
        msg = wire_prefill(&s->peer, s->next_batch_id++, s->joining, s->n_joining,
                           merge ? &s->batch[0].b : NULL, &x, &s->out);
    if (s->peer.takes_chunks)
        msg = wire_chunks(msg, s->running, s->n_running, encode_most(s), &s->out);
    if (!msg) {
        step_join(s, s->call_batch);
        return send_failed(s), true;
    }
    trace_joining(s);
    sched_send(s, CALL_PREFILL, SHARD_PREFILL, msg, STEP_TIMEOUT_MS);
    preempt_edits_sent(s);
    return true;
}

static bool send_decode(struct scheduler *s)
{
    const struct wire_batch *b[2];
    uint32_t n = 0;
    for (uint32_t k = 0; k < 2; k++)
        if (s->batch[k].live)
            b[n++] = &s->batch[k].b;
    if (n == 0)
        return false;
    sched_count(s, M_BATCH_INFERENCE_COUNT, "decode", 1);
    struct wire_edits x;
    const ProtobufCMessage *msg = preempt_edits(s, &x) ? wire_decode(b, n, &x, &s->out) : NULL;
    if (s->peer.takes_chunks)
        msg = wire_chunks(msg, s->running, s->n_running, encode_most(s), &s->out);
    if (!msg)
        return send_failed(s), true;
    sched_send(s, CALL_DECODE, SHARD_DECODE, msg, STEP_TIMEOUT_MS);
    preempt_edits_sent(s);
    return true;
}

static void on_unwatched(void *arg) { rejoin_end(arg); }

static void finish(struct scheduler *s)
{
    if (s->unwatching || s->health.busy || s->offload.fan.busy || s->offload.timer)
        return;
    s->unwatching = true;
    if (s->watched)
        shards_unwatch(s->o.shards, on_unwatched, s);
    else
        rejoin_end(s);
}

/* For peers that get each change in a call of its own. */
static bool send_reserved(struct scheduler *s)
{
    return (s->batch[0].live && send_clean(s, 0)) ||
           (s->batch[NEW_BATCH].live && send_clean(s, NEW_BATCH)) || send_prefill(s) ||
           send_decode(s);
}

/* Once after each Decode that is followed by no prompt. */
static bool wait_for_drafts(struct scheduler *s)
{
    int64_t ns = s->decode_ns;
    s->decode_ns = 0;
    if (!s->drafts || ns == 0 || s->n_running == 0 || s->batch_unknown ||
        policy_waiting(&s->policy))
        return false;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->state != SEQ_RUNNING || seq_in_prompt(s->running[i]))
            return false;
    s->awaiting_drafts = s->drafts->wait(s->drafts->self, s->n_running, ns);
    return s->awaiting_drafts;
}

void sched_drafts_ready(void *arg)
{
    struct scheduler *s = arg;
    s->awaiting_drafts = false;
    sched_turn(s);
    sched_end_turn(s);
}

/* Removals and block growth are sent with the next step. */
static bool send_growing(struct scheduler *s)
{
    bool batch_unknown = s->batch_unknown;
    if (wait_for_drafts(s))
        return true;
    s->batch_unknown = false;
    if (batch_unknown && s->batch[0].live && send_clean(s, 0))
        return true;
    bool preempted = preempt_turn(s);
    if (!preempted && send_prefill(s))
        return true;
    if (preempted && s->peer.takes_chunks) /* none joins, but started prompts continue */
        join(s, s->joining, 0);
    if (s->n_running > 0)
        return send_decode(s);
    return s->batch[0].live && send_over(s);
}

void sched_turn(struct scheduler *s)
{
    if (s->call != CALL_NONE || s->awaiting_drafts)
        return;
    if (s->link_state != LINK_CONNECTED) {
        rejoin_turn(s);
    } else if (s->must_clear && !s->lost) {
        send_clear_all(s);
    } else if (s->stopping) {
        finish(s);
    } else if (s->lost || (s->changes && changes_turn(s)) || offload_turn(s)) {
        return;
    } else if (!(s->grows ? send_growing(s) : send_reserved(s)) && s->probe_due) {
        s->probe_due = false;
        sched_send(s, CALL_PROBE, SHARD_PREFILL, wire_probe(&s->peer, &s->out), STEP_TIMEOUT_MS);
    }
}
