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
    STEP_TIMEOUT_MS = 600000, /* a long prefill on a slow machine takes minutes */
    STOP_TIMEOUT_MS = 1000,
    SECOND_LOOK_MS = 50,
    IN_LIMIT = 256 << 20,
    OUT_LIMIT = 1 << 30,
};
#define FIRST_PATIENCE_NS INT64_C(120000000000) /* before the pace of the machine is known */

/* ------------------------------------------------------------------ sending */
void sched_send(struct scheduler *s, enum call call, enum shard_rpc rpc,
                const ProtobufCMessage *msg, int64_t timeout_ms)
{
    assert(s->call == CALL_NONE && !s->awaiting_drafts);
    s->call = call;
    s->decode_ns = 0;
    s->call_ns = clock_ns();
    atomic_store(&s->o.status->call_ns, s->call_ns);
    fan_call(&s->fan, rpc, msg, timeout_ms, false);
    rpc_mem_reset(&s->out);
}

static void send_clear_all(struct scheduler *s)
{
    Generate__V3__ClearCacheRequest all = GENERATE__V3__CLEAR_CACHE_REQUEST__INIT;
    s->must_clear = false;
    preempt_edits_sent(s); /* no request is there to leave or to grow */
    sched_send(s, CALL_CLEAR_ALL, SHARD_CLEAR_CACHE, &all.base,
               s->stopping ? STOP_TIMEOUT_MS : STEP_TIMEOUT_MS);
}

/* Without memory for a message no call is possible; the requests it would carry on end here. */
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

/* All of the running batch has left, and none joins. */
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
    if (s->o.model.chunking) /* else a prefill runs alone */
        l.n_tokens = tokens > s->n_running ? tokens : s->n_running;
    return l;
}

/* In the middle of its prompt; a last token rides along with those that decode. */
static bool is_started(const struct seq *q) { return seq_in_prompt(q) && seq_left(q) > 1; }

/* Where its prompt stops that was computed up to `from`. */
static void find_stop(struct scheduler *s, struct seq *q, uint32_t from)
{
    q->stop = kv_stop(s->kv, &q->kv, q->n_tokens, from, q->waiter.awaited);
}

/* For a peer that is told what prompts compute of the next step. */
static void load_chunks(struct scheduler *s, struct load *l)
{
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
    l->prompt_tokens = pace_budget(&s->pace, l->n_tokens, s->o.target_inter_token_ms * 1e-3,
                                   s->o.model.max_batch_prefill_tokens);
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

/* Decides the next step: returns who joins, `most` at most. */
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
        load_chunks(s, &l);
    uint32_t n = policy_join(&s->policy, &l, now, j, most);
    s->n_rows = l.n_tokens;
    s->n_prompt_tokens = 0;
    if (names)
        plan_chunks(s, &l);
    for (uint32_t i = 0; i < n; i++) {
        struct seq *q = out[i] = CONTAINER_OF(j[i].w, struct seq, waiter);
        q->state = SEQ_JOINING;
        if (q->req && q->req->wants_place)
            atomic_store_explicit(&q->req->place, 0, memory_order_relaxed);
        q->n_now = j[i].n_tokens;
        s->n_prompt_tokens += q->n_now;
        q->cut = j[i].cut;
        find_stop(s, q, q->kv.n_cached);
        if (q->n_preempted == 0) {
            assert(q->req); /* the last event takes a request out of the queue */
            q->req->times.batched = now;
            q->req->n_cached = q->kv.n_cached;
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

/* A call carries the prompts of many requests, and one context: that of the first that is traced.
 */
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

/* Some prompt of the step that is planned has pictures left to encode. */
static bool has_pictures(const struct scheduler *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n_running && !any; i++)
        any = seq_in_prompt(s->running[i]) && s->running[i]->waiter.key.media.n;
    for (uint32_t i = 0; i < s->n_joining && !any; i++)
        any = s->joining[i]->waiter.key.media.n;
    return any;
}

/* How much of them the step may encode; 0: no limit. */
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

/* For peers that are told of every change by a call of its own. */
static bool send_reserved(struct scheduler *s)
{
    return (s->batch[0].live && send_clean(s, 0)) ||
           (s->batch[NEW_BATCH].live && send_clean(s, NEW_BATCH)) || send_prefill(s) ||
           send_decode(s);
}

/* Once after each Decode that no prompt follows. */
static bool wait_for_drafts(struct scheduler *s)
{
    int64_t ns = s->decode_ns;
    s->decode_ns = 0;
    if (!s->drafts || ns == 0 || s->n_running == 0 || s->doubt || policy_waiting(&s->policy))
        return false;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->state != SEQ_RUNNING || seq_in_prompt(s->running[i]))
            return false;
    s->awaiting_drafts = s->drafts->wait(s->drafts->self, s->n_running, ns);
    return s->awaiting_drafts;
}

static void on_drafts_ready(void *arg)
{
    struct scheduler *s = arg;
    s->awaiting_drafts = false;
    sched_turn(s);
    sched_end_turn(s);
}

/* Who leaves and who gets blocks goes with the next step. */
static bool send_growing(struct scheduler *s)
{
    bool doubt = s->doubt;
    if (wait_for_drafts(s))
        return true;
    s->doubt = false;
    if (doubt && s->batch[0].live && send_clean(s, 0))
        return true;
    bool made_way = preempt_turn(s);
    if (!made_way && send_prefill(s))
        return true;
    if (made_way && s->peer.takes_chunks) /* none joins, but prompts go on */
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

/* ------------------------------------------------------------------ what came back */
/* What computing a token again would cost. */
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
        transfer_export(s, q);
    }
    preempt_edits_done(s);
    if (s->peer.takes_chunks && s->n_rows + s->n_prompt_tokens > 0)
        tokens = s->n_rows + s->n_prompt_tokens;
    if (tokens) /* not all of them wait for pictures */
        learn_token(s, (double)(st->r.forward_ns - st->r.encode_ns) / tokens);
    s->steps_since_join = 0;
    step_metrics(s, "prefill", &st->r);
    step_note(s, st, s->call_batch);
}

static void on_decode(struct scheduler *s, struct step *st)
{
    for (uint32_t i = 0; s->batch[NEW_BATCH].live && i < s->n_running; i++)
        s->running[i]->batch = 0; /* merged into the first by this very call */
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

/* True: a step that succeeded and has something to tell. */
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
    if (s->stopping && s->call != CALL_CLEAR_ALL) { /* all have had their last event */
        s->must_clear = true;
        return false;
    }
    if (s->call == CALL_CHANGE && fan_lost_rank(&s->fan) < 0) {
        changes_answered(s);
        return false;
    }
    if (s->call == CALL_OFFLOAD && fan_lost_rank(&s->fan) < 0)
        return false; /* what it was for is only cache */
    if (s->call == CALL_CHANGE)
        changes_lost(s);
    if (rc != 0 && is_step)
        on_step_failed(s, &e);
    else if (rc != 0 && s->call != CALL_PROBE)
        on_clean_failed(s, &e);
    else if (s->call == CALL_PROBE && fan_lost_rank(&s->fan) >= 0)
        s->must_clear = true; /* which will tell whether it is lost */
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

/* A step that takes twenty times the slowest one so far hangs. Health needs no more than that; the
 * call's own deadline ends it. */
static void learn_pace(struct scheduler *s)
{
    struct err e;
    int64_t patience = 20 * (clock_ns() - s->call_ns);
    if (s->call != CALL_CHANGE && patience > atomic_load(&s->o.status->stalled_ns) &&
        fan_error(&s->fan, &e) == 0)
        atomic_store(&s->o.status->stalled_ns, patience);
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
    sched_turn(s); /* the shards first: they work while we talk */
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
    if (failure_is_doubtful(s)) {
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
    /* a padding peer has no block 0 to spare: one more, so that all its tokens count */
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
    s->o.shards = NULL; /* not yet ours */
    s->o.model.adapters = NULL;
    adapter_shelf_init(&s->shelf);
    s->drafts = o->drafts;
    if (s->drafts)
        s->drafts->on_ready(s->drafts->self, on_drafts_ready, s);
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
    on_call_succeeded(s); /* warm-up has just worked */
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
