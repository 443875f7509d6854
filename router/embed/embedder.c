#include "router/embed/embedder.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "router/embed/state.h"
#include "router/metrics.h"
#include "router/scheduler/policy.h"
#include "router/scheduler/wire.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    TURN_TEXTS = 16, /* texts of one request per turn */
    /* numbers of a call's answer: of sparse vectors a text has as many as the vocabulary */
    CALL_NUMBERS = 64 * 1024 * 1024,
    CALL_TIMEOUT_MS = 30 * 60000,
    MOST_LOSSES = 2, /* a request present at this many losses may be their cause */
};
static const int64_t PATIENCE_NS = 120000000000; /* a longer call counts as hung */

static void count(struct embedder *s, enum router_metric m, const char *label, double v)
{
    if (s->o.metrics)
        metrics_add(s->o.metrics, m, label, v);
}

static void observe(struct embedder *s, enum router_metric m, const char *label, double v)
{
    if (s->o.metrics)
        metrics_observe(s->o.metrics, m, label, v);
}

static void publish(struct embedder *s)
{
    struct sched_status *t = s->o.status;
    atomic_store(&t->queued, s->queue.n_waiting);
    atomic_store(&t->running, s->n_slots);
    atomic_store(&t->healthy, s->link_state == LINK_CONNECTED && !s->lost);
    if (!s->o.metrics)
        return;
    metrics_share(s->o.metrics, &s->gauges, M_QUEUE_SIZE, NULL, s->queue.n_waiting);
    metrics_share(s->o.metrics, &s->gauges, M_BATCH_CURRENT_SIZE, NULL, s->n_slots);
    metrics_share(s->o.metrics, &s->gauges, M_QUEUE_KEYS, NULL, fair_present(&s->queue));
}

/* ---------------------------------------------------------------- jobs */

static void stop_waiting(struct embedder *s, struct embed_job *j)
{
    if (j->waiting)
        fair_unwait(&s->queue, &j->fair);
    j->waiting = false;
}

static void embedder_end_job(struct embedder *s, struct embed_job *j)
{
    stop_waiting(s, j);
    if (j->in_flight)
        return;
    fair_leave(&s->queue, &j->fair);
    j->ended_ns = clock_ns();
    s->n_jobs--;
    j->done(j);
}

static void fail_job(struct embedder *s, struct embed_job *j, const struct err *why)
{
    if (j->err.kind == ERR_NONE) {
        j->err = *why;
        if (why->kind == ERR_GENERATION && s->o.failed)
            atomic_fetch_add(s->o.failed, 1);
    }
    embedder_end_job(s, j);
}

/* Ends all jobs with `why`; jobs with texts in flight end when the call returns. */
static void embedder_fail_all(struct embedder *s, const struct err *why)
{
    for (struct fair_item *it; (it = fair_first(&s->queue));)
        fail_job(s, CONTAINER_OF(it, struct embed_job, fair), why);
}

/* Allocates memory for its result. */
static int make_room(const struct embedder *s, struct embed_job *j)
{
    size_t rows = j->n;
    for (uint32_t i = 0; j->all && i < j->n; i++)
        rows += embed_text_rows(&j->texts[i]) - (size_t)1;
    j->width = j->all ? s->o.model.hidden_size : s->o.model.embed_width;
    j->room = rows * j->width;
    j->values = malloc((j->room ? j->room : 1) * sizeof(*j->values));
    return j->values ? 0 : err_nomem(&j->err);
}

void embedder_add(struct embedder *s, struct embed_job *j)
{
    struct err e = ERR_INIT;
    s->n_jobs++;
    j->queued_ns = j->queued_ns ? j->queued_ns : clock_ns();
    j->fair = (struct fair_item){.priority = j->priority, .order = s->order++};
    if (s->stopping || (s->lost && !s->o.owner))
        err_set(&e, ERR_GENERATION, "the shards are gone");
    else if (!fair_enter(&s->queue, &j->fair, j->tenant))
        err_nomem(&e);
    if (e.kind != ERR_NONE || j->n == 0) {
        j->err = e;
        embedder_end_job(s, j);
        return;
    }
    j->waiting = true;
    fair_wait(&s->queue, &j->fair);
    embedder_turn(s);
}

/* ---------------------------------------------------------------- a batch */

static bool add_slot(struct embedder *s, struct embed_job *j)
{
    if (s->n_slots == s->cap_slots) {
        const uint32_t cap = s->cap_slots ? 2 * s->cap_slots : 64;
        struct embed_slot *v = realloc(s->slots, cap * sizeof(*v));
        if (!v)
            return false;
        s->slots = v;
        s->cap_slots = cap;
    }
    s->slots[s->n_slots++] = (struct embed_slot){j, j->next++};
    j->in_flight++;
    return true;
}

/* Moves it to the end of its key's queue. */
static void next_turn(struct embedder *s, struct embed_job *j)
{
    stop_waiting(s, j);
    if (j->next == j->n)
        return;
    j->fair.order = s->order++;
    j->waiting = true;
    fair_wait(&s->queue, &j->fair);
}

/* What is in a batch. */
struct taken {
    uint64_t tokens, bytes; /* bytes: of images */
};

/* Adds texts of `j` to the batch, within its turn and the budget; an empty batch accepts any text.
 * False: the batch is full. */
static bool take_texts(struct embedder *s, struct embed_job *j, uint64_t budget, struct taken *t)
{
    for (uint32_t k = 0; k < TURN_TEXTS && j->next < j->n; k++) {
        const struct embed_text *next = &j->texts[j->next];
        const uint32_t n = next->cost ? next->cost : next->n;
        if (s->n_slots && (t->tokens + n > budget || s->slots[0].job->all != j->all ||
                           (next->n_bytes && t->bytes + next->n_bytes > POLICY_MAX_BYTES)))
            return false;
        if (!add_slot(s, j))
            return false;
        t->tokens += n;
        t->bytes += next->n_bytes;
        fair_charge(&j->fair, n);
        j->begun_ns = j->begun_ns ? j->begun_ns : clock_ns();
    }
    return true;
}

bool embedder_has_adapter(struct embedder *s, const struct embed_job *j, struct err *e)
{
    const char *name = j->texts[0].adapter;
    if (!name || !*name || adapter_shelf_has(&s->shelf, name))
        return true;
    err_set(e, ERR_NO_MODEL, "there is no adapter `%.200s`", name);
    return false;
}

static uint64_t fill_batch(struct embedder *s)
{
    const uint64_t budget = s->o.model.max_batch_prefill_tokens;
    const uint32_t wide = CALL_NUMBERS / (s->o.model.embed_width ? s->o.model.embed_width : 1) + 1;
    const uint32_t asked = s->o.model.max_batch_size;
    const uint32_t most = asked && asked < wide ? asked : wide;
    struct taken taken = {0};
    bool room = true;
    for (struct fair_item *it; room && s->n_slots < most && (it = fair_first(&s->queue));) {
        struct embed_job *j = CONTAINER_OF(it, struct embed_job, fair);
        struct err e = ERR_INIT;
        if (atomic_load(j->cancelled)) {
            err_set(&e, ERR_INCOMPLETE, "the client has gone");
            fail_job(s, j, &e);
            continue;
        }
        if (!embedder_has_adapter(s, j, &e)) { /* a shard would refuse the whole call */
            fail_job(s, j, &e);
            continue;
        }
        if (!j->values && make_room(s, j)) {
            embedder_end_job(s, j);
            continue;
        }
        room = take_texts(s, j, budget, &taken);
        fair_joins(&j->fair);
        next_turn(s, j);
    }
    return taken.tokens;
}

/* Builds the request in s->mem, which is empty. NULL: out of memory. */
static Generate__V3__EmbedRequest *write_request(struct embedder *s)
{
    Generate__V3__EmbedRequest *q = RPC_NEW(&s->mem, Generate__V3__EmbedRequest, 1);
    Generate__V3__EmbedText **list = RPC_NEW(&s->mem, Generate__V3__EmbedText *, s->n_slots);
    Generate__V3__EmbedText *texts = RPC_NEW(&s->mem, Generate__V3__EmbedText, s->n_slots);
    if (!q || !list || !texts)
        return NULL;
    generate__v3__embed_request__init(q);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        const struct embed_text *t = &s->slots[i].job->texts[s->slots[i].text];
        generate__v3__embed_text__init(&texts[i]);
        texts[i].ids = (uint32_t *)(uintptr_t)t->ids;
        texts[i].n_ids = t->n;
        texts[i].types.data = (uint8_t *)(uintptr_t)t->types;
        texts[i].types.len = t->types ? t->n : 0;
        texts[i].skip = t->skip;
        texts[i].attended = t->attended;
        texts[i].rows = (uint32_t *)(uintptr_t)t->rows;
        texts[i].n_rows = t->n_rows;
        if (t->adapter)
            texts[i].adapter = (char *)(uintptr_t)t->adapter;
        if (t->n_media && !(texts[i].media = wire_media(t->media, t->n_media, &s->mem)))
            return NULL;
        texts[i].n_media = t->n_media;
        list[i] = &texts[i];
    }
    q->texts = list;
    q->n_texts = s->n_slots;
    q->all = s->slots[0].job->all;
    return q;
}

/* The texts in flight have returned, or failed with `why`. */
static void release(struct embedder *s, const struct err *why)
{
    struct embed_slot *slots = s->slots;
    const uint32_t n = s->n_slots;
    s->n_slots = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct embed_job *j = slots[i].job;
        j->in_flight--;
        if (why && j->err.kind == ERR_NONE) {
            j->err = *why;
            if (s->o.failed)
                atomic_fetch_add(s->o.failed, 1);
        }
        const bool over = j->err.kind != ERR_NONE || j->next == j->n;
        if (over && j->in_flight == 0)
            embedder_end_job(s, j);
    }
}

static void send(struct embedder *s)
{
    struct err e = ERR_INIT;
    rpc_mem_reset(&s->mem);
    Generate__V3__EmbedRequest *q = write_request(s);
    if (!q) {
        err_nomem(&e);
        release(s, &e);
        return;
    }
    s->again = false;
    s->called_ns = clock_ns();
    atomic_store(&s->o.status->call_ns, s->called_ns);
    fan_call(&s->call, SHARD_EMBED, &q->base, CALL_TIMEOUT_MS, false);
}

void embedder_turn(struct embedder *s)
{
    if (!s->call.busy && s->link_state == LINK_CONNECTED && !s->lost && !s->stopping) {
        if (s->again && s->n_slots) {
            send(s);
        } else if (s->queue.n_waiting) {
            const uint64_t tokens = fill_batch(s);
            if (s->n_slots) {
                observe(s, M_BATCH_NEXT_SIZE, NULL, s->n_slots);
                observe(s, M_BATCH_PROMPT_TOKENS, NULL, (double)tokens);
                send(s);
            }
        }
    }
    embedder_hand_over(s);
    embedder_recover_turn(s);
    publish(s);
}

/* ---------------------------------------------------------------- answers */

static uint64_t rows_of(const struct embed_slot *t)
{
    return t->job->all ? embed_text_rows(&t->job->texts[t->text]) : 1;
}

/* Only rank 0 returns values. */
static const Generate__V3__EmbedResponse *read_reply(struct embedder *s, struct err *e)
{
    const Generate__V3__EmbedResponse *r = NULL;
    uint64_t want = 0;
    for (uint32_t i = 0; i < s->call.n; i++) {
        const Generate__V3__EmbedResponse *one = (const void *)fan_reply(&s->call, i, &s->mem, e);
        if (!one)
            return NULL;
        r = one->n_values ? one : r;
    }
    for (uint32_t i = 0; i < s->n_slots; i++)
        want += rows_of(&s->slots[i]) * s->slots[i].job->width;
    if (!r || r->n_values != want) {
        err_set(e, ERR_GENERATION, "Server error: %llu numbers were expected, %llu came",
                (unsigned long long)want, (unsigned long long)(r ? r->n_values : 0));
        return NULL;
    }
    return r;
}

/* Texts of a request return in order. */
static void take_values(struct embedder *s, const Generate__V3__EmbedResponse *r)
{
    const float *from = r->values;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct embed_job *j = s->slots[i].job;
        const size_t n = rows_of(&s->slots[i]) * j->width;
        assert(j->n_values + n <= j->room);
        memcpy(j->values + j->n_values, from, n * sizeof(*from));
        j->n_values += n;
        from += n;
    }
    observe(s, M_BATCH_FORWARD_DURATION, "embed", (double)r->forward_ns * 1e-9);
}

/* One slot of each request in the call, whose turns may have put texts of others in between. */
static bool is_last_of_job(const struct embed_slot *t) { return t->text + 1 == t->job->next; }

void embedder_drop_failed(struct embedder *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct embed_job *j = s->slots[i].job;
        if (j->err.kind == ERR_NONE)
            s->slots[kept++] = s->slots[i];
        else if (--j->in_flight == 0)
            embedder_end_job(s, j);
    }
    s->n_slots = kept;
    s->again = kept > 0;
}

/* Keeps the call for the next shards, except requests that were present at an earlier loss. */
static void keep_for_others(struct embedder *s, const struct err *why)
{
    for (uint32_t i = 0; i < s->n_slots; i++)
        s->slots[i].job->n_lost += is_last_of_job(&s->slots[i]);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct embed_job *j = s->slots[i].job;
        if (j->n_lost >= MOST_LOSSES && j->err.kind == ERR_NONE)
            j->err = *why;
    }
    embedder_drop_failed(s);
}

static void call_failed(struct embedder *s, const struct err *e)
{
    struct err why = *e;
    const bool lost = s->why_lost[0] || fan_lost_rank(&s->call) >= 0;
    why.kind = fan_request_error(e->kind);
    count(s, M_BATCH_INFERENCE_FAILURE, "embed", 1);
    LOG(LOG_ERROR, "Embed failed", LOGS("error", why.msg), LOGI("texts", s->n_slots));
    if (lost && s->link && !s->stopping && !s->draining)
        keep_for_others(s, &why);
    else
        release(s, &why);
    if (lost)
        embedder_broken(s, s->why_lost[0] ? s->why_lost : e->msg);
}

static void on_call(struct fan *f)
{
    struct embedder *s = f->arg;
    struct err e = ERR_INIT;
    const Generate__V3__EmbedResponse *r = NULL;
    atomic_store(&s->o.status->call_ns, 0);
    count(s, M_BATCH_INFERENCE_COUNT, "embed", 1);
    observe(s, M_BATCH_INFERENCE_DURATION, "embed", (double)(clock_ns() - s->called_ns) * 1e-9);
    if (fan_error(f, &e) == 0)
        r = read_reply(s, &e);
    if (r) {
        count(s, M_BATCH_INFERENCE_SUCCESS, "embed", 1);
        embedder_answered(s);
        take_values(s, r);
        release(s, NULL);
        if (s->why_lost[0])
            embedder_broken(s, s->why_lost);
    } else {
        call_failed(s, &e);
    }
    embedder_turn(s);
}

/* ---------------------------------------------------------------- life */

struct embedder *embedder_new(const struct embedder_options *o, struct err *e)
{
    struct embedder *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->o = *o;
    s->o.shards = NULL; /* owned on success only */
    rpc_mem_init(&s->mem, (size_t)4 << 30);
    adapter_shelf_init(&s->shelf);
    if (o->model.adapters)
        adapter_shelf_put(&s->shelf, o->model.adapters);
    s->o.model.adapters = NULL; /* the caller's */
    if (fan_init(&s->call, o->shards, on_call, s, e) || embedder_recover_init(s, e)) {
        embedder_free(s);
        return NULL;
    }
    s->o.shards = o->shards;
    atomic_store(&o->status->stalled_ns, PATIENCE_NS);
    embedder_answered(s);
    publish(s);
    return s;
}

struct adapter_shelf *embedder_shelf(struct embedder *s) { return &s->shelf; }

void embedder_free(struct embedder *s)
{
    if (!s)
        return;
    assert(s->n_jobs == 0);
    if (s->o.metrics)
        metrics_unshare(s->o.metrics, &s->gauges);
    fan_free(&s->call);
    fan_free(&s->health);
    shards_link_free(s->link);
    shards_free(s->o.shards);
    fair_free(&s->queue);
    rpc_mem_free(&s->mem);
    adapter_shelf_fini(&s->shelf);
    served_adapters_release(s->restored);
    free(s->slots);
    free(s);
}

void embedder_fail(struct embedder *s, const char *why)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERATION, "Request failed: %s", why);
    for (uint32_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].job->err.kind == ERR_NONE)
            s->slots[i].job->err = e;
    embedder_fail_all(s, &e);
    if (!s->call.busy)
        release(s, &e);
    embedder_turn(s);
}

void embedder_stop(struct embedder *s, void (*gone)(void *arg), void *arg)
{
    s->stopping = true;
    s->gone = gone;
    s->gone_arg = arg;
    embedder_fail(s, "the router is shutting down");
    fan_cancel(&s->call);
    fan_cancel(&s->health);
    embedder_turn(s);
}

bool embedder_audit(const struct embedder *s, struct buf *out)
{
    uint32_t in_flight = 0;
    for (uint32_t i = 0; i < s->n_slots; i++)
        in_flight += is_last_of_job(&s->slots[i]);
    const bool balanced = s->n_jobs >= in_flight;
    buf_fmt(out,
            "{\"requests\":%u,\"waiting\":%u,\"running\":%u,\"texts_out\":%u,\"connected\":%s,"
            "\"balanced\":%s}",
            s->n_jobs, s->queue.n_waiting, in_flight, s->n_slots,
            s->link_state == LINK_CONNECTED ? "true" : "false", balanced ? "true" : "false");
    return balanced;
}
