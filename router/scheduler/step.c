/* The result of a Prefill or Decode, read twice. step_note() runs before the next call is sent,
 * because it decides that call. step_send_events() runs after, while the shards compute. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <string.h>

/* KV is computed for all tokens but the newest, which is computed by the next step. */
static void note_tokens(struct scheduler *s, struct seq *q, const Generate__V3__Generation *g)
{
    bool first = q->n_tokens == q->waiter.key.n;
    assert(q->n_tokens > 0 && q->req);
    for (size_t i = 0; i < g->tokens->n_ids; i++)
        seq_push(q, g->tokens->ids[i]);
    q->n_computed = q->n_tokens - 1;
    fair_charge(&q->waiter.fair, (int64_t)FAIR_NEW_TOKEN * (int64_t)g->tokens->n_ids);
    if (first) { /* a chunked prompt is complete now; the rest is committed at the end */
        kv_commit(s->kv, &q->kv, q->tokens, q->waiter.key.n);
        transfer_export(s, q);
        follow_computed(s, q);
    }
    if (g->generated_text)
        q->state = SEQ_LEAVING;
    if (s->drafts)
        s->drafts->on_tokens(s->drafts->self, q);
}

static void count_prompt(struct scheduler *s, const struct seq *q)
{
    const uint32_t n = q->req->n_input, cached = q->req->n_cached < n ? q->req->n_cached : n;
    const uint32_t loaded = q->n_loaded < cached ? q->n_loaded : cached;
    sched_count(s, M_PROMPT_TOKENS, NULL, n);
    sched_count(s, M_PROMPT_SOURCES, "local_compute", n - cached);
    sched_count(s, M_PROMPT_SOURCES, "local_cache_hit", cached - loaded);
    sched_count(s, M_PROMPT_SOURCES, "external_kv_transfer", loaded);
}

/* `accepted` of `drafted` tokens; a sibling of the first draft may be accepted in its place. */
static void count_drafts(struct scheduler *s, uint32_t drafted, uint32_t accepted)
{
    static const char *const position[] = {"0", "1", "2",  "3",  "4",  "5",  "6",  "7",
                                           "8", "9", "10", "11", "12", "13", "14", "15"};
    const uint32_t most = sizeof(position) / sizeof(position[0]);
    sched_count(s, M_SPEC_DRAFTS, NULL, 1);
    sched_count(s, M_SPEC_TOKENS, NULL, drafted);
    sched_count(s, M_SPEC_ACCEPTED, NULL, accepted);
    for (uint32_t i = 0; i < accepted && i < most; i++)
        sched_count(s, M_SPEC_POSITIONS, position[i], 1);
}

/* Rates of tokens follow the steps: a long answer is not counted at its end alone. */
static void count_tokens(struct scheduler *s, struct seq *q, const Generate__V3__Generation *g,
                         int64_t now)
{
    const uint32_t n = (uint32_t)g->tokens->n_ids;
    if (!q->req->times.first) /* of a resumed request it is set */
        count_prompt(s, q);
    if (q->token_ns)
        sched_observe(s, M_INTER_TOKEN, NULL, (double)(now - q->token_ns) * 1e-9);
    q->token_ns = now;
    sched_count(s, M_NEW_TOKENS, NULL, n);
    sched_observe(s, M_SKIPPED_TOKENS, NULL, (double)(n - 1));
    if (g->drafted)
        count_drafts(s, g->drafted, n - 1);
}

static void fail_one(struct scheduler *s, struct seq *q, const char *why, int64_t now)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERATION, "Request failed during generation: Server error: %s", why);
    deliver_error(&s->deliver, q, &e, now);
    q->state = SEQ_LEAVING;
}

/* A fault of the request that only the shards could find. */
static void refuse_one(struct scheduler *s, struct seq *q, const char *why, int64_t now)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_VALIDATION, "%s", why);
    deliver_error(&s->deliver, q, &e, now);
    q->state = SEQ_LEAVING;
}

/* `lost`: why its events cannot be sent; NULL: they can. */
static struct seq *note_generation(struct scheduler *s, const Generate__V3__Generation *g,
                                   const char *lost, int64_t now)
{
    struct seq *q = seq_table_find(&s->known, g->request_id);
    if (!q || (q->state != SEQ_RUNNING && q->state != SEQ_LEAVING)) {
        if (!q)
            LOG(LOG_WARN, "a generation for an unknown request", LOGI("request_id", g->request_id));
        return NULL;
    }
    const char *bad = *g->error || !lost ? deliver_check(g) : lost;
    if (bad) {
        fail_one(s, q, bad, now);
        return NULL;
    }
    if (*g->error) { /* the shards have dropped it: no call is needed */
        if (g->unservable)
            refuse_one(s, q, g->error, now);
        else
            fail_one(s, q, g->error, now);
        sched_remove(s, q);
        return NULL;
    }
    if (!q->req) /* cancelled during the step */
        return NULL;
    note_tokens(s, q, g);
    count_tokens(s, q, g, now);
    return q;
}

/* The shards report that every request of the batch ended. Requests without a last event were
 * lost. */
static void note_no_batch(struct scheduler *s, uint32_t into, int64_t now)
{
    s->batch[into].live = false;
    for (uint32_t i = s->n_running; i-- > 0;) {
        struct seq *q = s->running[i];
        if (q->batch != into)
            continue;
        if (q->state == SEQ_RUNNING)
            fail_one(s, q, "its batch has vanished", now);
        sched_remove(s, q);
    }
}

void step_note(struct scheduler *s, struct step *st, uint32_t into)
{
    int64_t now = clock_ns();
    assert(into < sizeof(s->batch) / sizeof(s->batch[0]));
    uint32_t n_new = 0;
    st->owner = RPC_NEW(&s->in, struct seq *, st->r.n_gens + 1);
    for (size_t i = 0; i < st->r.n_gens; i++) {
        struct seq *q = note_generation(s, st->r.gens[i], st->owner ? NULL : "out of memory", now);
        n_new += q ? (uint32_t)st->r.gens[i]->tokens->n_ids : 0;
        if (st->owner)
            st->owner[i] = q;
    }
    sched_observe(s, M_BATCH_TOKENS, NULL, s->n_prompt_tokens + n_new);
    if (!st->r.batch) {
        note_no_batch(s, into, now);
        return;
    }
    const Generate__V3__CachedBatch *b = st->r.batch;
    s->batch[into].live = true;
    s->batch[into].b = (struct wire_batch){b->id, b->size, b->max_tokens, b->current_tokens};
}

void step_send_events(struct scheduler *s, struct step *st)
{
    int64_t now = clock_ns();
    for (size_t i = 0; st->owner && i < st->r.n_gens; i++) {
        struct seq *q = st->owner[i];
        if (q && q->req && /* the next call may have detected a loss */
            deliver_generation(&s->deliver, q, st->r.gens[i], now, &s->in) != 0)
            fail_one(s, q, "out of memory", now);
    }
}

void step_stalled(struct scheduler *s, const struct step_reply *r, struct seq *const *v, uint32_t n)
{
    for (size_t i = 0; r->stalled && i < r->stalled->n_request_ids; i++)
        for (uint32_t k = 0; k < n; k++) {
            struct seq *q = v[k];
            if (q->id != r->stalled->request_ids[i])
                continue;
            const uint32_t less =
                r->stalled->tokens[i] < q->n_now ? r->stalled->tokens[i] : q->n_now;
            q->n_now -= less;
            q->cut = true; /* while it joins */
            s->n_prompt_tokens -= less < s->n_prompt_tokens ? less : s->n_prompt_tokens;
        }
}

void step_progress(struct scheduler *s, const struct step_reply *r)
{
    step_stalled(s, r, s->running, s->n_running);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (!s->peer.takes_chunks || !seq_in_prompt(q))
            continue;
        assert(q->n_now <= seq_left(q));
        q->n_computed += q->n_now;
        q->n_now = 0;
        kv_commit(s->kv, &q->kv, q->tokens, q->n_computed);
        deliver_progress(&s->deliver, q, q->n_computed);
        transfer_export(s, q);
    }
}

void step_join(struct scheduler *s, uint32_t into)
{
    for (uint32_t i = 0; i < s->n_joining; i++) {
        struct seq *q = s->joining[i];
        assert(q->state == SEQ_JOINING && s->n_running < s->cap_running);
        q->batch = into;
        q->state = q->gone ? SEQ_LEAVING : SEQ_RUNNING;
        s->running[s->n_running++] = q;
        if (s->drafts && !q->gone)
            s->drafts->follow(s->drafts->self, q);
    }
}

static void note_constraints(struct scheduler *s, const Generate__V3__ConstraintStats *now)
{
    struct constraint_counts *was = &s->constraints;
    if (!now)
        return;
    sched_gauge(s, M_CONSTRAINT_BYTES, NULL, (double)now->bytes);
    sched_count_since(s, M_CONSTRAINT_EVICTIONS, "unused", now->dropped, &was->dropped);
    sched_count_since(s, M_CONSTRAINT_EVICTIONS, "masks", now->trimmed, &was->trimmed);
    sched_count_since(s, M_CONSTRAINT_EVICTIONS, "closed", now->closed, &was->closed);
}

void step_metrics(struct scheduler *s, const char *method, const struct step_reply *r)
{
    double sec = (double)(clock_ns() - s->call_ns) * 1e-9;
    note_constraints(s, r->constraints);
    sched_count(s, M_BATCH_INFERENCE_SUCCESS, method, 1);
    sched_observe(s, M_BATCH_INFERENCE_DURATION, method, sec);
    sched_observe(s, M_BATCH_FORWARD_DURATION, method, (double)r->forward_ns * 1e-9);
    if (s->peer.takes_chunks) {
        double model = (double)(r->forward_ns - r->encode_ns + r->decode_ns) * 1e-9;
        encode_note(&s->encode, r->encode_done, (double)r->encode_ns * 1e-9);
        pace_note(&s->pace, s->n_rows, s->n_prompt_tokens, model);
        contest_step(&s->contest, s->n_rows, s->n_prompt_tokens, model);
        sched_observe(s, M_BATCH_PROMPT_TOKENS, NULL, s->n_prompt_tokens);
    }
    sched_observe(s, M_BATCH_DECODE_DURATION, method, (double)r->decode_ns * 1e-9);
    if (r->concat_ns)
        sched_observe(s, M_BATCH_CONCAT_DURATION, method, (double)r->concat_ns * 1e-9);
}
