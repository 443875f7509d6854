/* members.c - requests known to the scheduler: they are added, cancelled and removed. */
#include "common/clock.h"
#include "router/scheduler/state.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool sched_room(struct scheduler *s, uint32_t n)
{
    uint32_t need = s->n_running + n;
    if (need <= s->cap_running)
        return true;
    uint32_t cap = need > 2 * s->cap_running ? need : 2 * s->cap_running;
    struct seq **p = realloc(s->running, cap * sizeof(struct seq *));
    if (!p)
        return false;
    s->running = p;
    struct started *started = realloc(s->started, cap * sizeof(*started));
    if (!started)
        return false;
    s->started = started;
    s->cap_running = cap;
    return true;
}

void sched_drop(struct scheduler *s, struct seq *q)
{
    kv_release(s->kv, &q->kv, q->tokens, q->n_computed);
    policy_leaves(&s->policy, &q->waiter);
    preempt_drop_swap(s, q);
    policy_forget(&s->policy, &q->waiter);
    adapters_release(&s->adapters, q->waiter.key.adapter);
    q->next = s->dropped;
    s->dropped = q;
    follow_succeed(s, q);
}

void sched_unlist(struct scheduler *s, struct seq *q)
{
    uint32_t i = 0;
    while (s->running[i] != q) {
        i++;
        assert(i < s->n_running);
    }
    memmove(&s->running[i], &s->running[i + 1], (s->n_running - i - 1) * sizeof(struct seq *));
    s->n_running--;
    if (s->drafts)
        s->drafts->forget(s->drafts->self, q);
}

void sched_remove(struct scheduler *s, struct seq *q)
{
    sched_unlist(s, q);
    sched_drop(s, q);
}

static void refuse(struct scheduler *s, struct seq *q, const struct err *e)
{
    deliver_error(&s->deliver, q, e, clock_ns());
    sched_drop(s, q);
}

static void fill_waiter(struct scheduler *s, struct seq *q)
{
    const struct gen_params *p = &q->req->params;
    const uint32_t adapter = adapters_number(&s->adapters, p->adapter_id);
    const bool numbered = adapter != ADAPTER_UNNUMBERED; /* unnumbered adapters share nothing */
    /* the last token's KV is never needed; a peer without on-demand blocks also writes drafts
     * after it */
    uint64_t reserve = (uint64_t)q->n_prompt + p->max_new_tokens - 1;
    reserve += s->grows ? 0 : s->peer.speculate;
    q->n_most = reserve > q->n_prompt ? (uint32_t)reserve : q->n_prompt;
    q->waiter = (struct waiter){
        .fair = {.priority = q->req->priority, .order = q->id},
        .tenant = q->req->tenant,
        .key = {q->tokens, q->n_prompt, numbered ? adapter : 0, .salt = q->req->cache_salt,
                .media = seq_media(q)},
        /* a token's log-probability needs the logits of the token before it */
        .share =
            s->o.model.prefix_caching && numbered && (!p->prefill_logprobs || p->logprobs_from > 0),
        .kv = &q->kv,
    };
    for (uint32_t i = 0; i < q->req->n_media; i++)
        q->waiter.n_bytes +=
            q->req->media[i].n_bytes + q->req->media[i].n_ids * sizeof(*q->req->media[i].ids);
    if (p->prefill_logprobs && p->logprobs_from && p->logprobs_from <= q->n_prompt)
        q->waiter.key.n_fresh = q->n_prompt - p->logprobs_from + 1;
    adapters_retain(&s->adapters, q->waiter.key.adapter);
    preempt_reserve(s, q);
}

/* It existed when the request was parsed, or another replica had it. Shards of TGI may have
 * adapters that they do not list. */
static bool adapter_unlisted(const struct scheduler *s, const struct seq *q)
{
    const char *name = q->req->params.adapter_id;
    const bool listed = s->o.model.runtime_adapters || (s->o.owner && s->o.model.takes_input_ids);
    return listed && name && *name && !served_adapters_find(s->adapters.list, name);
}

void sched_add(struct scheduler *s, struct seq *q)
{
    struct err e = ERR_INIT;
    seq_table_add(&s->known, q);
    q->placed = q->req->wants_place;
    s->n_placed += q->placed;
    fill_waiter(s, q);
    if (s->stopping || (s->lost && !s->o.owner)) {
        err_set(&e, ERR_GENERATION, "Request failed during generation: %s",
                s->lost ? "a shard was lost" : "the router is shutting down");
        refuse(s, q, &e);
    } else if (adapter_unlisted(s, q)) {
        err_set(&e, ERR_NO_MODEL, "The model `%.200s` does not exist", q->req->params.adapter_id);
        refuse(s, q, &e);
    } else if (q->n_prompt == 0 || !kv_could_fit(s->kv, q->n_most)) {
        err_set(&e, ERR_TOO_LONG,
                "`inputs` tokens + `max_new_tokens` must be <= %u. Given: %u `inputs` tokens and "
                "%u `max_new_tokens`",
                kv_stats(s->kv).total * s->peer.block_size, q->n_prompt,
                q->req->params.max_new_tokens);
        refuse(s, q, &e);
    } else if (!kv_pictures_could_fit(s->kv, &q->waiter.key.media)) {
        err_set(&e, ERR_VALIDATION,
                "an image is larger than the window cache "
                "(--kv-cache-memory)");
        refuse(s, q, &e);
    } else if (!follow(s, q)) {
        offload_enqueue(s, q);
    }
    sched_turn(s);
    sched_end_turn(s);
}

void sched_cancel(struct scheduler *s, uint64_t id)
{
    struct seq *q = seq_table_find(&s->known, id);
    if (!q || !q->req) /* its last event is being sent */
        return;
    struct err e = ERR_INIT;
    err_set(&e, ERR_INCOMPLETE, "Request cancelled");
    deliver_error(&s->deliver, q, &e, clock_ns());
    if (q->state == SEQ_FOLLOWING) {
        follow_leave(q);
        sched_drop(s, q);
    } else if (q->state == SEQ_FETCHING) {
        offload_cancel(s, q);
    } else if (q->state == SEQ_WAITING) {
        policy_remove(&s->policy, &q->waiter);
        sched_drop(s, q);
    } else if (q->state == SEQ_JOINING) {
        q->gone = true;
    } else if (q->state == SEQ_RUNNING) {
        q->state = SEQ_LEAVING;
    }
    sched_turn(s);
    sched_end_turn(s);
}
