#include "router/draft/drafter.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "router/draft/draft_seq.h"
#include "router/draft/step_wait.h"
#include "router/metrics.h"
#include "router/scheduler/wire.h"
#include "router/shards/link.h"
#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

/* CALL_TIMEOUT_MS: draft shards that hang longer are lost. */
enum {
    MOST_JOIN = 64,
    CALL_TIMEOUT_MS = 10000,
    MEMORY = 64 << 20,
    OFFER_MOST = 64,
    CATCH_UP = 32, /* tokens a draft sequence computes in about the time of one */
    SMALL_PREFILL = 2048
};

struct drafter {
    struct draft_source source;
    struct drafter_options o;
    struct shards_link *link;
    uint64_t vocab_hash; /* of the served model */
    uint32_t speculate;  /* most drafts per sequence that a step verifies */
    uint32_t ahead;      /* most drafts of a draft sequence */
    struct draft_seq *draft_seqs;
    uint32_t n_draft_seqs;

    struct shards *shards; /* NULL: not connected */
    struct shard_model model;
    struct wire_peer peer;
    struct kv_blocks *kv;
    struct fan fan;
    bool calling, leaving; /* leaving: the shards are being closed */
    bool clearing;         /* the call in flight is a ClearCache */
    bool must_clear;
    struct wire_batch batch;
    bool batch_live;
    uint64_t next_batch_id;
    struct rpc_mem out, in;
    struct seq *joining[MOST_JOIN];

    int64_t call_ns;       /* when the Decode in flight was sent; 0: none */
    struct step_wait wait; /* of the served model's step */

    void (*gone)(void *arg);
    void *gone_arg;
};

static void detach(struct drafter *d);

/* ---------------------------------------------------------------- draft sequences */

/* Blocks with confirmed, computed tokens stay in the prefix cache; drafts do not. */
static void release(struct drafter *d, struct draft_seq *t, bool computed)
{
    uint32_t sure = t->n_kv < t->n_known ? t->n_kv : t->n_known;
    if (t->own->kv.len)
        kv_release(d->kv, &t->own->kv, t->own->tokens, computed ? sure : 0);
}

static void drop(struct drafter *d, struct draft_seq *t)
{
    struct draft_seq **at = &d->draft_seqs;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    d->n_draft_seqs--;
    release(d, t, true);
    draft_seq_free(t);
}

static void drafter_follow(void *self, struct seq *q)
{
    struct drafter *d = self;
    /* Not after an image: draft models read text only. NULL if out of memory. */
    struct draft_seq *t = q->draft_seq || q->n_media ? NULL : draft_seq_new(q);
    if (!t)
        return;
    q->draft_seq = t;
    t->next = d->draft_seqs;
    d->draft_seqs = t;
    d->n_draft_seqs++;
}

static void drafter_on_tokens(void *self, struct seq *q)
{
    (void)self;
    if (q->draft_seq)
        draft_seq_follow(q->draft_seq);
}

static void drafter_forget(void *self, struct seq *q)
{
    struct drafter *d = self;
    struct draft_seq *t = q->draft_seq;
    if (!t)
        return;
    q->draft_seq = NULL;
    t->q = NULL;
    if (t->state == DRAFT_SEQ_OUT)
        drop(d, t);
}

static const uint32_t *drafter_offer(const void *self, const struct seq *q, uint32_t *n)
{
    const struct draft_seq *t = q->draft_seq;
    (void)self;
    *n = t ? draft_seq_ahead(t) : 0;
    *n = *n < OFFER_MOST ? *n : OFFER_MOST;
    return *n ? t->own->tokens + q->n_tokens : NULL;
}

static bool drafter_active(const void *self)
{
    const struct drafter *d = self;
    return d->shards && !d->leaving && d->n_draft_seqs;
}

/* ---------------------------------------------------------------- choice of draft sequences */

static bool useful(const struct drafter *d, const struct draft_seq *t)
{
    const struct seq *q = t->q;
    return q && q->req && q->state == SEQ_RUNNING && !t->refused && !t->ended &&
           draft_seq_ahead(t) < d->ahead &&
           seq_generated(t->own) + 1 < q->req->params.max_new_tokens;
}

/* Reserves blocks for its maximum length, once. */
static bool place(struct drafter *d, struct draft_seq *t)
{
    struct seq *own = t->own;
    if (own->kv.len)
        return true;
    /* with other salts than its own no request shares blocks, here neither */
    struct kv_key key = {.tokens = own->tokens, .n = own->n_tokens, .salt = t->q->req->cache_salt};
    uint32_t most = t->q->n_prompt + t->q->req->params.max_new_tokens;
    if (!kv_may_fit(d->kv, own->n_tokens, most) ||
        !kv_admit(d->kv, &own->kv, &key, d->model.prefix_caching, most))
        return false;
    t->n_kv = own->kv.n_cached;
    own->waiter.n_reserve = most;
    return true;
}

/* Chooses those that leave the batch; some rejoin at once. Returns how many stay. */
static uint32_t choose_leavers(struct drafter *d, uint64_t *leave, uint32_t *n_leave)
{
    uint32_t stay = 0;
    *n_leave = 0;
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next) {
        if (t->state != DRAFT_SEQ_IN)
            continue;
        if (useful(d, t) && draft_seq_current(t)) {
            stay++;
            continue;
        }
        t->state = DRAFT_SEQ_LEAVING;
        leave[(*n_leave)++] = t->own->id;
    }
    return stay;
}

/* Fewest drafts first, as it needs them soonest. A prompt too long for a step joins alone. */
static uint32_t choose_joiners(struct drafter *d)
{
    uint32_t n = 0, tokens = 0;
    for (uint32_t ahead = 0; ahead <= d->ahead / 2 && n < MOST_JOIN; ahead++)
        for (struct draft_seq *t = d->draft_seqs; t && n < MOST_JOIN; t = t->next) {
            if ((t->state != DRAFT_SEQ_OUT && t->state != DRAFT_SEQ_LEAVING) || !useful(d, t) ||
                draft_seq_ahead(t) != ahead || !place(d, t))
                continue;
            uint32_t cost = t->own->n_tokens - (t->n_kv < t->own->n_tokens ? t->n_kv : 0);
            if (n && tokens + cost > d->model.max_batch_prefill_tokens)
                continue;
            tokens += cost;
            draft_seq_join(t);
            t->state = DRAFT_SEQ_JOINING;
            d->joining[n++] = t->own;
        }
    return n;
}

static void call(struct drafter *d, enum shard_rpc rpc, const ProtobufCMessage *msg)
{
    d->calling = true;
    d->clearing = rpc == SHARD_CLEAR_CACHE;
    d->call_ns = rpc == SHARD_DECODE ? clock_ns() : 0;
    fan_call(&d->fan, rpc, msg, CALL_TIMEOUT_MS, false);
    rpc_mem_reset(&d->out);
}

/* Clears all batches, and the KV that the shards hold. */
static void clear(struct drafter *d)
{
    Generate__V3__ClearCacheRequest all = GENERATE__V3__CLEAR_CACHE_REQUEST__INIT;
    d->must_clear = false;
    call(d, SHARD_CLEAR_CACHE, &all.base);
}

/* May the draft shards start calls before they receive them? See draft_runs_ahead(). */
static bool runs_ahead(const struct drafter *d)
{
    struct draft_wait_case c = {
        .step_ns = d->wait.step.ns, .draft_ns = d->wait.call.ns, .most = d->speculate};
    for (const struct draft_seq *t = d->draft_seqs; t; t = t->next) {
        c.running += useful(d, t);
        c.acceptance += useful(d, t) ? (double)t->hits.rate : 0;
    }
    c.acceptance /= c.running ? c.running : 1;
    return draft_runs_ahead(&c);
}

static void drafter_turn(void *self)
{
    struct drafter *d = self;
    const ProtobufCMessage *msg = NULL;
    const struct wire_batch *batch = &d->batch;
    uint32_t n_leave;
    if (!d->shards || d->calling || d->leaving)
        return;
    if (d->must_clear) {
        clear(d);
        return;
    }
    if (!d->n_draft_seqs && !d->batch_live)
        return;
    uint64_t *leave = RPC_NEW(&d->out, uint64_t, d->n_draft_seqs + 1);
    if (!leave)
        return;
    uint32_t stay = choose_leavers(d, leave, &n_leave), n = choose_joiners(d);
    struct wire_edits x = {.leave = leave, .n_leave = n_leave, .drafting = !runs_ahead(d)};
    if (n) {
        msg = wire_prefill(&d->peer, d->next_batch_id++, d->joining, n,
                           d->batch_live ? batch : NULL, &x, &d->out);
        if (msg)
            call(d, SHARD_PREFILL, msg);
    } else if (stay) {
        msg = wire_decode(&batch, 1, &x, &d->out);
        if (msg)
            call(d, SHARD_DECODE, msg);
    } else if (d->batch_live) {
        clear(d);
        return;
    } else {
        rpc_mem_reset(&d->out);
        return;
    }
    if (!msg)
        clear(d); /* out of memory: handled as a failed call */
}

/* ---------------------------------------------------------------- waiting steps */

/* It has no drafts and can get some soon. */
static bool lacks(const struct drafter *d, const struct draft_seq *t)
{
    return useful(d, t) && draft_seq_ahead(t) == 0 && t->own->kv.len &&
           t->n_kv + CATCH_UP >= t->own->n_tokens;
}

static bool drafter_wait(void *self, uint32_t running, int64_t step_ns)
{
    struct drafter *d = self;
    struct draft_wait_case c = {.running = running, .most = d->speculate};
    draft_duration_note(&d->wait.step, step_ns);
    if (!drafter_active(d) || !step_wait_allowed(&d->wait))
        return false;
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next) {
        t->awaited = lacks(d, t);
        c.lacking += t->awaited;
        c.acceptance += t->awaited ? (double)t->hits.rate : 0;
    }
    if (c.lacking == 0 || c.lacking > running)
        return false;
    c.acceptance /= c.lacking;
    return step_wait_begin(&d->wait, &c);
}

static void drafter_on_ready(void *self, void (*ready)(void *arg), void *arg)
{
    struct drafter *d = self;
    step_wait_on_ready(&d->wait, ready, arg);
}

/* Called after each call: ends the wait if no awaited sequence can still get its drafts. */
static void end_wait_if_met(struct drafter *d)
{
    if (d->wait.count == 0)
        return;
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next)
        if (t->awaited && useful(d, t) && draft_seq_ahead(t) < d->wait.count)
            return;
    step_wait_met(&d->wait);
}

/* ---------------------------------------------------------------- answers */

static struct draft_seq *find(struct drafter *d, uint64_t id)
{
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next)
        if (t->own->id == id && t->state == DRAFT_SEQ_IN)
            return t;
    return NULL;
}

static void count(struct drafter *d, uint32_t row, double v)
{
    if (d->o.metrics)
        metrics_add(d->o.metrics, row, NULL, v);
}

static void note(struct drafter *d, const Generate__V3__Generation *g)
{
    struct draft_seq *t = find(d, g->request_id);
    if (!t)
        return;
    if (*g->error) { /* the shard has dropped it */
        LOG(LOG_DEBUG, "no drafts", LOGI("request_id", g->request_id), LOGS("why", g->error));
        t->refused = true;
        t->state = DRAFT_SEQ_OUT;
        return;
    }
    for (size_t i = 0; t->q && g->tokens && i < g->tokens->n_ids; i++)
        draft_seq_push(t, g->tokens->ids[i], g->generated_text && i + 1 == g->tokens->n_ids);
    count(d, M_DRAFT_TOKENS, g->tokens ? (double)g->tokens->n_ids : 0);
}

/* The call has returned: applies its state changes and frees ended ones. */
static void arrive(struct drafter *d)
{
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next) {
        if (t->state == DRAFT_SEQ_JOINING)
            t->state = DRAFT_SEQ_IN;
        else if (t->state == DRAFT_SEQ_LEAVING)
            t->state = DRAFT_SEQ_OUT;
    }
}

static void sweep(struct drafter *d)
{
    for (struct draft_seq *t = d->draft_seqs, *next; t; t = next) {
        next = t->next;
        if (!t->q && t->state == DRAFT_SEQ_OUT)
            drop(d, t);
    }
}

static void reset_all(struct drafter *d)
{
    for (struct draft_seq *t = d->draft_seqs; t; t = t->next) {
        release(d, t, false);
        draft_seq_reset(t);
    }
    d->batch_live = false;
}

static void on_step(struct drafter *d)
{
    struct err e = ERR_INIT;
    struct step_reply r;
    if (fan_error(&d->fan, &e) != 0 || fan_step_reply(&d->fan, &d->in, &r, &e) != 0) {
        LOG(LOG_WARN, "drafting failed", LOGS("why", e.msg));
        reset_all(d);
        kv_forget(d->kv);
        d->must_clear = true;
        return;
    }
    arrive(d);
    for (size_t i = 0; i < r.n_gens; i++)
        note(d, r.gens[i]);
    d->batch_live = r.batch != NULL;
    if (r.batch)
        d->batch = (struct wire_batch){r.batch->id, r.batch->size, r.batch->max_tokens,
                                       r.batch->current_tokens};
    for (struct draft_seq *t = d->draft_seqs; t && !r.batch; t = t->next)
        t->state = DRAFT_SEQ_OUT; /* all have ended */
}

static void on_call(struct fan *f)
{
    struct drafter *d = f->arg;
    struct err e = ERR_INIT;
    rpc_mem_reset(&d->in);
    d->calling = false;
    if (d->leaving) {
        detach(d);
        return;
    }
    step_wait_answered(&d->wait, d->call_ns ? clock_ns() - d->call_ns : 0);
    if (!d->clearing) {
        on_step(d);
    } else {
        for (struct draft_seq *t = d->draft_seqs; t; t = t->next)
            t->state = DRAFT_SEQ_OUT;
        d->batch_live = false;
    }
    if (fan_lost_rank(f) >= 0 || (d->clearing && fan_error(f, &e) != 0)) {
        detach(d);
        return;
    }
    sweep(d);
    drafter_turn(d); /* sends the next call before the step */
    end_wait_if_met(d);
}

/* ---------------------------------------------------------------- loss and return of draft
 * shards */

static void gauge(struct drafter *d)
{
    if (d->o.metrics)
        metrics_set(d->o.metrics, M_DRAFT_MODEL, NULL, d->shards && !d->leaving);
}

/* Last stage of drafter_end(), when no timer is pending. */
static void leave_link(struct drafter *d)
{
    if (!d->wait.pending)
        shards_link_end(d->link, d->gone, d->gone_arg);
}

static void on_idle(void *arg)
{
    struct drafter *d = arg;
    if (d->gone && !d->shards)
        leave_link(d);
}

/* No call or watch of the shards is pending any more. */
static void on_unwatched(void *arg)
{
    struct drafter *d = arg;
    struct shards *s = d->shards;
    d->shards = NULL;
    d->leaving = false;
    fan_free(&d->fan);
    kv_free(d->kv);
    d->kv = NULL;
    gauge(d);
    shards_link_lost(d->link, s);
    if (d->gone)
        leave_link(d);
}

static void detach(struct drafter *d)
{
    if (!d->leaving && !d->gone)
        log_msg(LOG_WARN, "draft model lost; continuing without drafts");
    d->leaving = true;
    gauge(d);
    if (d->wait.count)
        step_wait_lost(&d->wait);
    if (d->calling) {
        fan_cancel(&d->fan); /* on_call() continues here */
        return;
    }
    reset_all(d);
    sweep(d);
    shards_unwatch(d->shards, on_unwatched, d);
}

static void on_break(void *arg, const char *why)
{
    struct drafter *d = arg;
    (void)why;
    if (!d->leaving)
        detach(d);
}

static void on_found(void *arg, struct shards *s, const struct shard_model *m)
{
    struct drafter *d = arg;
    struct err e = ERR_INIT;
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
        seed = (uint64_t)(uintptr_t)s;
    d->kv = kv_new(m->max_batch_total_tokens / m->block_size, m->block_size, seed);
    if (!d->kv || fan_init(&d->fan, s, on_call, d, &e) != 0) {
        kv_free(d->kv);
        d->kv = NULL;
        shards_link_lost(d->link, s);
        return;
    }
    d->shards = s;
    d->model = *m;
    d->peer = (struct wire_peer){.takes_input_ids = true, .block_size = m->block_size};
    d->batch_live = d->must_clear = false;
    step_wait_new_shards(&d->wait);
    LOG(LOG_INFO, "Drafting", LOGI("shards", shards_count(s)), LOGI("ahead", d->ahead),
        LOGS("device", m->device), LOGS("quantize", m->quantize));
    gauge(d);
    shards_watch(s, on_break, d);
    drafter_turn(d);
}

/* ---------------------------------------------------------------- life */

/* Link thread. */
static const char *unfit(void *arg, const struct shard_model *m)
{
    const struct drafter *d = arg;
    if (!m->takes_input_ids || !m->takes_edits)
        return "its shards take no token ids";
    if (d->vocab_hash && m->vocab_hash && d->vocab_hash != m->vocab_hash)
        return "its vocabulary is another one";
    return NULL;
}

const struct draft_source *drafter_source(const struct drafter *d) { return d ? &d->source : NULL; }

struct drafter *drafter_new(const struct drafter_options *o, struct err *e)
{
    struct drafter *d = calloc(1, sizeof(*d));
    if (!d)
        return err_nomem(e), NULL;
    d->o = *o;
    d->o.served = NULL; /* not owned */
    d->speculate = o->served->speculate;
    d->ahead = 2 * d->speculate;
    d->source = (struct draft_source){.self = d,
                                      .follow = drafter_follow,
                                      .on_tokens = drafter_on_tokens,
                                      .forget = drafter_forget,
                                      .offer = drafter_offer,
                                      .active = drafter_active,
                                      .turn = drafter_turn,
                                      .wait = drafter_wait,
                                      .on_ready = drafter_on_ready};
    step_wait_init(&d->wait, &(struct step_wait_options){o->loop, o->metrics, on_idle, d});
    rpc_mem_init(&d->out, MEMORY);
    rpc_mem_init(&d->in, MEMORY);
    struct shards_link_options l = {.loop = o->loop,
                                    .name = "the draft model",
                                    .target = o->target,
                                    .ask = {.max_total_tokens = o->served->max_total_tokens,
                                            .max_batch_prefill_tokens = SMALL_PREFILL},
                                    .unfit = unfit,
                                    .found = on_found,
                                    .arg = d};
    d->vocab_hash = o->served->vocab_hash;
    if (shards_link_open(&d->link, &l, true, e) == 0)
        return d;
    drafter_free(d);
    return NULL;
}

void drafter_halt(struct drafter *d) { shards_link_halt(d->link); }

void drafter_end(struct drafter *d, void (*gone)(void *arg), void *arg)
{
    d->gone = gone;
    d->gone_arg = arg;
    if (!d->shards)
        leave_link(d);
    else if (!d->leaving)
        detach(d);
}

void drafter_free(struct drafter *d)
{
    if (!d)
        return;
    assert(!d->draft_seqs && !d->shards);
    shards_link_free(d->link);
    rpc_mem_free(&d->out);
    rpc_mem_free(&d->in);
    free(d);
}
