/* The queue above the schedulers. A request is dispatched only when a replica has free capacity for
 * it: docs/decisions/fleet.md. */
#include "common/clock.h"
#include "router/fleet/impl.h"
#include "router/metrics.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ROOM_STEPS: prompts for this many steps may wait at a replica, so that it never idles. SCAN_MOST:
 * most requests examined that fit nowhere now. */
enum { ROOM_STEPS = 2, ROOM_REQUESTS = 64, SCAN_MOST = 64 };

/* ---------------------------------------------------------------- entries */

/* False: out of memory. */
static bool hash_prompt(struct fleet_entry *e, const struct gen_request *r, uint32_t block)
{
    struct kv_medium *v = r->n_media ? calloc(r->n_media, sizeof(*v)) : NULL;
    if (r->n_media && !v)
        return false;
    for (uint32_t i = 0; i < r->n_media; i++)
        v[i] = (struct kv_medium){r->media[i].first, r->media[i].n, r->media[i].digest};
    struct kv_media media = {.v = v, .n = r->n_media, .whole = r->whole_media};
    if (r->whole_prompt) {
        media.prefix = r->n_ids;
        media.prompt = kv_media_prompt(v, r->n_media, r->ids, r->n_ids);
    }
    e->n_hashes = prefixes_hash(r->params.adapter_id, r->cache_salt, &media, r->ids, r->n_ids,
                                block, e->hashes);
    free(v);
    return true;
}

static struct fleet_entry *entry_new(const struct fleet *f, struct gen_request *r)
{
    uint32_t block = f->limits.block_size, n = block ? r->n_ids / block : 0;
    struct fleet_entry *e = calloc(1, sizeof(*e) + (n + 1) * sizeof(e->hashes[0]));
    if (!e || !hash_prompt(e, r, block)) {
        free(e);
        return NULL;
    }
    e->n_tokens = r->n_ids;
    e->event = r->sink.event;
    e->r = r;
    return e;
}

static void entry_free(struct fleet_entry *e)
{
    free(e->ids);
    free(e);
}

/* Removes its counts from the replica. */
static void leave(struct fleet_entry *e)
{
    struct replica *p = e->at;
    if (!p)
        return;
    assert(e->begun ? p->n_running > 0 : p->n_waiting > 0);
    *(e->begun ? &p->n_running : &p->n_waiting) -= 1;
    *(e->begun ? &p->running : &p->waiting) -= e->begun ? e->n_tokens : e->todo;
    e->at = NULL;
    if (!p->wanted)
        pthread_cond_signal(&p->turn);
}

static void release(struct fleet *f, struct fleet_entry *e)
{
    leave(e);
    fair_leave(&f->fair, &e->fair);
    fleet_leave_adapter(f, e);
    e->r->entry = NULL;
}

/* Ends a queued request: prepends it to the list of requests to settle. */
static struct fleet_entry *end(struct fleet *f, struct fleet_entry *e, enum err_kind kind,
                               const char *why, struct fleet_entry *list)
{
    release(f, e);
    err_set(&e->err, kind, "%s", why);
    e->next = list;
    return e;
}

void fleet_settle(struct fleet_entry *ended)
{
    for (struct fleet_entry *e = ended, *next; e; e = next) {
        const struct gen_sink sink = e->r->sink;
        next = e->next;
        e->r->times.ended = clock_ns();
        e->event(e->r, &(struct gen_event){.type = GEN_ERROR, .err = &e->err});
        if (sink.flush)
            sink.flush(sink.arg);
        entry_free(e);
    }
}

/* ---------------------------------------------------------------- queues */

static void take_returned(struct fleet *f, struct fleet_entry *e)
{
    struct fleet_entry **at = &f->returned;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    f->n_returned--;
}

static void put_returned(struct fleet *f, struct fleet_entry *e)
{
    struct fleet_entry **at = &f->returned;
    while (*at && (*at)->fair.order < e->fair.order)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
    f->n_returned++;
}

static void take_out(struct fleet *f, struct fleet_entry *e)
{
    if (e->returned)
        take_returned(f, e);
    else
        fair_unwait(&f->fair, &e->fair);
}

static struct fleet_entry *entry_of(struct fair_item *it)
{
    return it ? CONTAINER_OF(it, struct fleet_entry, fair) : NULL;
}

struct fleet_entry *fleet_fail_queue(struct fleet *f, const char *why)
{
    struct fleet_entry *list = NULL, *e;
    while ((e = f->returned ? f->returned : entry_of(fair_first(&f->fair)))) {
        take_out(f, e);
        list = end(f, e, ERR_GENERATION, why, list);
        if (f->c.infer.failed)
            atomic_fetch_add(f->c.infer.failed, 1);
    }
    return list;
}

/* ---------------------------------------------------------------- dispatch */

static bool has_room(const struct replica *p)
{
    uint64_t step = infer_limits(p->infer)->max_batch_prefill_tokens;
    return p->n_waiting == 0 || (p->n_waiting < ROOM_REQUESTS && p->waiting < ROOM_STEPS * step);
}

/* A key of which no replica has a request waits for no place: the scheduler lets it join the next
 * step, before the prompts that wait there, and bounds its steps while keys compete. */
static bool has_place(const struct replica *p, const struct fleet_entry *e)
{
    return has_room(p) || (!e->returned && fair_newcomer(&e->fair) && p->n_waiting < ROOM_REQUESTS);
}

static bool may_hold(const struct replica *p, const struct gen_request *r)
{
    const struct infer_limits *l = infer_limits(p->infer);
    return r->n_ids <= l->max_input_tokens &&
           (uint64_t)r->n_ids + r->params.max_new_tokens <= l->max_total_tokens;
}

/* Prompt tokens whose blocks the replica may have cached. */
static uint32_t shared(const struct fleet *f, const struct replica *p, const struct fleet_entry *e)
{
    uint32_t n = prefixes_match(&p->prefixes, e->hashes, e->n_hashes);
    return n > 1 ? (n - 1) * f->limits.block_size : 0;
}

static struct replica *pick(struct fleet *f, const struct fleet_entry *e)
{
    struct pick_candidate c[REPLICAS_MAX];
    const char *adapter = e->r->params.adapter_id;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct replica *p = f->v[i];
        bool ready = replica_ready(p) && replica_serves(p, adapter);
        c[i] = (struct pick_candidate){.room = ready && has_place(p, e) && may_hold(p, e->r),
                                       .shared = ready ? shared(f, p, e) : 0,
                                       .has_adapter = !adapter || !*adapter ||
                                                      prefixes_match(&p->prefixes, e->hashes, 1),
                                       .waiting = p->waiting,
                                       .running = p->running,
                                       .computed = p->computed};
    }
    int at = fleet_pick(f->c.policy, c, f->n, e->n_tokens, f->turn);
    if (at < 0)
        return NULL;
    f->turn = (uint32_t)at + 1;
    return f->v[at];
}

static bool bind(struct fleet *f, struct fleet_entry *e, struct replica *p)
{
    uint32_t have = shared(f, p, e);
    take_out(f, e);
    e->todo = e->n_tokens > have ? e->n_tokens - have : 0;
    e->at = p;
    e->begun = false;
    p->n_waiting++;
    p->waiting += e->todo;
    p->computed += e->todo;
    p->n_sent++;
    p->n_shared += have;
    prefixes_put(&p->prefixes, e->hashes, e->n_hashes);
    fair_charge(&e->fair, e->todo);
    e->r->resume = e->returned ? &e->resume : NULL;
    bool ok = infer_offer(p->infer, e->r);
    e->r->resume = NULL;
    return ok;
}

static bool any_room(const struct fleet *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (replica_ready(f->v[i]) && has_room(f->v[i]))
            return true;
    return false;
}

/* The next request that fits somewhere, and the replica. Without room only newcomers are tried. */
static struct fleet_entry *next(struct fleet *f, struct replica **to)
{
    const bool room = any_room(f);
    uint32_t seen = 0;
    *to = NULL;
    for (struct fleet_entry *e = room ? f->returned : NULL; e; e = e->next)
        if ((*to = pick(f, e)))
            return e;
    for (struct fair_item *it = fair_first(&f->fair); it && seen < SCAN_MOST;
         it = room ? fair_next(&f->fair) : fair_next_newcomer(&f->fair), seen++)
        if ((room || fair_newcomer(it)) && (*to = pick(f, entry_of(it)))) {
            fair_joins(it);
            return entry_of(it);
        }
    return NULL;
}

/* Positions count behind the requests that wait at the replicas. */
static void send_places(struct fleet *f)
{
    uint32_t place = f->n_returned;
    for (uint32_t i = 0; i < f->n; i++)
        place += f->v[i]->n_waiting;
    for (struct fair_item *it = fair_first(&f->fair); it; it = fair_next(&f->fair)) {
        struct gen_request *r = entry_of(it)->r;
        place++;
        if (r->wants_place)
            atomic_store_explicit(&r->place, place, memory_order_relaxed);
    }
}

void fleet_publish_queue(struct fleet *f)
{
    if (f->c.infer.metrics)
        metrics_share(f->c.infer.metrics, &f->gauges, M_QUEUE_SIZE, NULL,
                      f->fair.n_waiting + f->n_returned + f->n_texts);
}

/* Sends queued requests to replicas with free capacity. Returns requests that cannot be sent and
 * have ended: pass them to fleet_settle(). */
static struct fleet_entry *dispatch(struct fleet *f)
{
    struct fleet_entry *refused = NULL, *e;
    struct replica *to;
    while (!f->stopping && (e = next(f, &to)))
        if (!bind(f, e, to))
            refused = end(f, e, ERR_OVERLOADED, "Model is overloaded", refused);
    if (f->fair.n_waiting)
        send_places(f);
    fleet_publish_queue(f);
    return refused;
}

/* ---------------------------------------------------------------- events */

/* Replica's scheduler thread. */
static void on_event(struct gen_request *r, const struct gen_event *ev)
{
    struct fleet_entry *e = r->entry, *refused = NULL;
    struct replica *p = e->at;
    struct fleet *f = p->fleet;
    void (*event)(struct gen_request * r, const struct gen_event *ev) = e->event;
    const bool last = ev->type == GEN_ERROR || ev->end;
    pthread_mutex_lock(&f->lock);
    const bool begins = !e->begun;
    if (begins) {
        e->begun = true;
        p->n_waiting--;
        p->n_running++;
        p->waiting -= e->todo;
        p->running += e->n_tokens;
    }
    if (ev->type == GEN_TOKEN) {
        e->n_tokens++;
        p->running++;
        fair_charge(&e->fair, FAIR_NEW_TOKEN);
    }
    if (last)
        release(f, e);
    if (begins || last)
        refused = dispatch(f);
    pthread_mutex_unlock(&f->lock);
    if (last)
        entry_free(e);
    event(r, ev);
    fleet_settle(refused);
}

static void refuse(struct gen_request *r, enum err_kind kind, const char *why)
{
    struct err e = ERR_INIT;
    const struct gen_sink sink = r->sink;
    err_set(&e, kind, "%s", why);
    r->times.queued = r->times.ended = clock_ns();
    sink.event(r, &(struct gen_event){.type = GEN_ERROR, .err = &e});
    if (sink.flush)
        sink.flush(sink.arg);
}

static bool enter(struct fleet *f, struct fleet_entry *e)
{
    if (!e || !fair_enter(&f->fair, &e->fair, e->r->tenant))
        return false;
    e->fair.priority = e->r->priority;
    e->fair.order = f->order++;
    fair_wait(&f->fair, &e->fair);
    e->r->entry = e;
    e->r->sink.event = on_event;
    return true;
}

void fleet_submit(struct fleet *f, struct gen_request *r)
{
    struct fleet_entry *ended = NULL;
    if (f->only) {
        infer_submit(f->only, r);
        return;
    }
    if (f->limits.task > TASK_GENERATE) {
        refuse(r, ERR_TASK, "this model generates no text");
        return;
    }
    struct fleet_entry *e = infer_prepare(r) ? entry_new(f, r) : NULL;
    pthread_mutex_lock(&f->lock);
    const bool open = !f->stopping && !f->lost;
    const bool known = !e || fleet_use_adapter(f, e), taken = open && known && enter(f, e);
    if (taken)
        ended = dispatch(f);
    else if (e)
        fleet_leave_adapter(f, e);
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
    if (taken)
        return;
    free(e);
    if (!known) { /* it existed when the request was parsed */
        char why[256];
        snprintf(why, sizeof(why), "The model `%.200s` does not exist", r->params.adapter_id);
        refuse(r, ERR_NO_MODEL, why);
        return;
    }
    refuse(r, ERR_OVERLOADED, open ? "Model is overloaded" : "The server is shutting down");
}

void fleet_cancel(struct fleet *f, struct gen_request *r)
{
    struct fleet_entry *ended = NULL;
    if (f->only) {
        infer_cancel(f->only, r);
        return;
    }
    pthread_mutex_lock(&f->lock);
    struct fleet_entry *e = r->entry;
    if (e && e->at) {
        e->cancelled = true; /* it may be in a hand-over to us */
        if (e->at->infer)
            infer_cancel(e->at->infer, r);
    } else if (e) {
        take_out(f, e);
        ended = end(f, e, ERR_INCOMPLETE, "Request cancelled", NULL);
    }
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
}

/* ---------------------------------------------------------------- lost replicas */

void replica_lost(void *arg)
{
    struct replica *p = arg;
    pthread_mutex_lock(&p->fleet->lock);
    p->up = false;
    pthread_cond_broadcast(&p->fleet->changed);
    pthread_mutex_unlock(&p->fleet->lock);
}

void fleet_send_waiting(struct fleet *f)
{
    struct fleet_entry *ended = dispatch(f);
    struct fleet_texts *texts = fleet_dispatch_texts(f);
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
    fleet_settle_texts(texts);
    pthread_mutex_lock(&f->lock);
}

void replica_back(void *arg)
{
    struct replica *p = arg;
    struct fleet *f = p->fleet;
    pthread_mutex_lock(&f->lock);
    p->up = true;
    p->silent = false;
    p->stale = f->uses.list != NULL; /* they may have been changed meanwhile */
    pthread_cond_signal(&p->turn);
    prefixes_clear(&p->prefixes);
    fleet_reset_computed(f);
    fleet_send_waiting(f);
    pthread_mutex_unlock(&f->lock);
}

static bool keep(struct fleet_entry *e, const struct gen_resume *g)
{
    uint32_t *ids = malloc((g->n + 1) * sizeof(*ids));
    if (!ids)
        return false;
    if (g->n)
        memcpy(ids, g->ids, g->n * sizeof(*ids));
    free(e->ids);
    e->ids = ids;
    e->resume = *g;
    e->resume.ids = ids;
    return true;
}

void replica_hand_over(void *arg, struct gen_request *r, const struct gen_resume *g)
{
    struct replica *p = arg;
    struct fleet *f = p->fleet;
    struct fleet_entry *e = r->entry, *ended = NULL;
    pthread_mutex_lock(&f->lock);
    leave(e);
    e->n_tokens = r->n_ids + g->n;
    if (e->cancelled) {
        ended = end(f, e, ERR_INCOMPLETE, "Request cancelled", NULL);
    } else if (f->stopping || !keep(e, g)) {
        ended =
            end(f, e, ERR_GENERATION, "Request failed during generation: a shard was lost", NULL);
    } else {
        e->returned = true;
        put_returned(f, e);
        if (f->c.infer.metrics)
            metrics_add(f->c.infer.metrics, M_HANDOVERS, NULL, 1);
        ended = dispatch(f);
    }
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
}
