#include "router/scheduler/changes.h"
#include "common/log/log.h"
#include "router/scheduler/state.h"
#include "router/shards/restore_adapters.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGE_TIMEOUT_MS = 120000, REFUSED_MOST = 8, LOST_MOST = 2 };

/* ------------------------------------------------------------------ the list */

/* Takes ownership of `list`. */
static bool adopt(struct scheduler *s, struct served_adapters *list)
{
    const bool ok = list && adapters_replace(&s->adapters, list);
    if (ok)
        adapter_shelf_put(&s->shelf, list);
    served_adapters_release(list);
    return ok;
}

static bool mark(struct scheduler *s, uint32_t number, bool leaving)
{
    return adopt(s, served_adapters_marked(s->adapters.list, number, leaving));
}

static const struct served_adapter *listed(const struct scheduler *s, uint32_t number)
{
    const struct served_adapters *l = s->adapters.list;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].number == number)
            return &l->v[i];
    return NULL;
}

/* ------------------------------------------------------------------ the queue */

static void take_out(struct scheduler *s, const struct adapter_change *c)
{
    struct adapter_change **at = &s->changes;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void finish(struct scheduler *s, struct adapter_change *c)
{
    take_out(s, c);
    if (c->err.kind != ERR_NONE)
        LOG(LOG_WARN, c->path ? "adapter not loaded" : "adapter not unloaded",
            LOGS("adapter", c->name), LOGS("error", c->err.msg));
    else
        LOG(LOG_INFO, c->path ? "adapter loaded" : "adapter unloaded", LOGS("adapter", c->name));
    c->done(c);
}

static bool is_pending(const struct adapter_change *pending, const char *name, bool load)
{
    for (const struct adapter_change *c = pending; c; c = c->next)
        if ((c->path != NULL) == load && strcmp(c->name, name) == 0)
            return true;
    return false;
}

int change_check(struct adapter_change *c, const struct served_adapters *list,
                 const struct adapter_change *pending, bool stopping, bool possible)
{
    const struct served_adapter *a = served_adapters_find(list, c->name);
    if (stopping)
        return err_set(&c->err, ERR_UNHEALTHY, "the server is shutting down");
    if (!possible)
        return err_set(&c->err, ERR_NOT_FOUND,
                       "adapters are not loaded and unloaded here: see --max-runtime-adapters");
    if (c->path && (a || is_pending(pending, c->name, true)))
        return err_set(&c->err, ERR_VALIDATION,
                       "The lora adapter '%.200s' has already been loaded.", c->name);
    if (c->path && is_pending(pending, c->name, false))
        return err_set(&c->err, ERR_VALIDATION, "The lora adapter '%.200s' is being unloaded.",
                       c->name);
    if (!c->path && !a)
        return err_set(&c->err, ERR_NOT_FOUND, "The lora adapter '%.200s' cannot be found.",
                       c->name);
    c->number = a ? a->number : 0;
    return 0;
}

void sched_change(struct scheduler *s, struct adapter_change *c)
{
    struct adapter_change **end = &s->changes;
    c->err = (struct err)ERR_INIT;
    c->next = NULL;
    c->state = CHANGE_WAITING;
    c->refused = c->lost = 0;
    c->call_sent = false;
    int rc = change_check(c, s->adapters.list, s->changes, s->stopping || s->lost,
                          s->o.model.runtime_adapters > 0);
    if (rc == 0 && !c->path && !mark(s, c->number, true))
        rc = err_nomem(&c->err);
    if (rc != 0) {
        c->done(c);
        return;
    }
    while (*end)
        end = &(*end)->next;
    *end = c;
    sched_turn(s);
    sched_end_turn(s);
}

void changes_rejoined(struct scheduler *s)
{
    for (const struct adapter_change *c = s->changes; c; c = c->next) {
        const struct served_adapter *a = c->path ? NULL : listed(s, c->number);
        if (a && !a->leaving) /* out of memory: it stays available until no request uses it */
            (void)mark(s, c->number, true);
    }
}

void changes_fail(struct scheduler *s, const char *why)
{
    s->change = NULL;
    for (struct adapter_change *c; (c = s->changes);) {
        err_set(&c->err, ERR_UNHEALTHY, "%s", why);
        finish(s, c);
    }
}

/* ------------------------------------------------------------------ the calls */

/* True if no request uses the adapter. Ended requests leave the shards' batch with the next
 * call. */
static bool nobody_uses(const struct scheduler *s, struct adapter_change *c)
{
    if (c->path || c->state == CHANGE_UNDOING)
        return true;
    if (adapters_known(&s->adapters, c->number) > 0)
        return false;
    const bool quiet =
        s->n_leave == 0 && (s->n_running > 0 || !(s->batch[0].live || s->batch[NEW_BATCH].live));
    if (quiet || c->call_sent)
        return true;
    c->call_sent = true; /* by the call that is sent next */
    return false;
}

bool changes_turn(struct scheduler *s)
{
    struct adapter_change *c = s->changes;
    while (c && !nobody_uses(s, c))
        c = c->next;
    if (!c)
        return false;
    Generate__V3__LoadAdapterRequest load = GENERATE__V3__LOAD_ADAPTER_REQUEST__INIT;
    Generate__V3__UnloadAdapterRequest unload = GENERATE__V3__UNLOAD_ADAPTER_REQUEST__INIT;
    const bool loads = (c->path != NULL) != (c->state == CHANGE_UNDOING);
    load.name = unload.name = c->name;
    if (loads)
        load.path = c->path ? c->path : listed(s, c->number)->path;
    if (c->state == CHANGE_WAITING)
        c->state = CHANGE_SENT;
    s->change = c;
    sched_send(s, CALL_CHANGE, loads ? SHARD_LOAD_ADAPTER : SHARD_UNLOAD_ADAPTER,
               loads ? &load.base : &unload.base, CHANGE_TIMEOUT_MS);
    return true;
}

static bool any_did(const struct fan *f)
{
    const char *why;
    for (uint32_t i = 0; i < f->n; i++) {
        const grpc_status_code code = fan_status(f, i, &why);
        /* ALREADY_EXISTS: left by an earlier change; after a timeout the rank may still succeed */
        if (code == GRPC_STATUS_OK || code == GRPC_STATUS_ALREADY_EXISTS ||
            code == GRPC_STATUS_DEADLINE_EXCEEDED)
            return true;
    }
    return false;
}

static void loaded(struct scheduler *s, struct adapter_change *c)
{
    const Generate__V3__LoadAdapterResponse *r =
        (const void *)fan_reply(&s->fan, 0, &s->in, &c->err);
    struct served_adapter a = {.name = c->name,
                               .path = c->path,
                               .pages = r && r->adapter ? r->adapter->pages : 0,
                               .content = r && r->adapter ? r->adapter->content_hash : 0,
                               .number = s->adapters.next_number};
    if (!r)
        return;
    if (!adopt(s, served_adapters_with(s->adapters.list, &a)))
        err_nomem(&c->err);
}

/* Undoes a change that only some ranks applied. An adapter loaded at start has no path to reload it
 * from, so it is no longer served. */
static void undo(struct scheduler *s, struct adapter_change *c)
{
    const struct served_adapter *a = c->path ? NULL : listed(s, c->number);
    const bool some = any_did(&s->fan);
    if (some && (c->path || (a && a->path))) {
        c->state = CHANGE_UNDOING;
        return;
    }
    if (a && some)
        adopt(s, served_adapters_without(s->adapters.list, c->number));
    else if (a)
        mark(s, c->number, false);
    finish(s, c);
}

/* A reloaded adapter may have other weights, so it gets a new number. */
static void list_again(struct scheduler *s, uint32_t number)
{
    const struct served_adapter *was = listed(s, number);
    if (!was)
        return;
    struct served_adapter a = *was;
    struct served_adapters *without = served_adapters_without(s->adapters.list, number);
    a.number = s->adapters.next_number;
    a.leaving = false;
    if (without)
        adopt(s, served_adapters_with(without, &a));
    served_adapters_release(without);
}

static void undone(struct scheduler *s, struct adapter_change *c)
{
    struct err e = ERR_INIT;
    const bool loads = c->path == NULL;
    const bool ok = adapter_refusal(&s->fan, loads, &e) == 0 || (loads && any_did(&s->fan));
    if (!ok)
        LOG(LOG_ERROR, "the shards disagree about an adapter", LOGS("adapter", c->name),
            LOGS("error", e.msg));
    else if (loads)
        list_again(s, c->number);
    finish(s, c);
}

void changes_answered(struct scheduler *s)
{
    struct adapter_change *c = s->change;
    if (!c) /* the change has ended meanwhile */
        return;
    s->change = NULL;
    if (c->state == CHANGE_UNDOING) {
        undone(s, c);
        return;
    }
    struct err e = ERR_INIT;
    if (adapter_refusal(&s->fan, c->path != NULL, &e) != 0) {
        const bool again = !c->path && e.kind == ERR_OVERLOADED && fan_refused(&s->fan) &&
                           c->refused++ < REFUSED_MOST;
        c->err = e;
        c->state = CHANGE_WAITING;
        c->call_sent = false;
        if (again)
            c->err = (struct err)ERR_INIT;
        else
            undo(s, c);
        return;
    }
    if (c->path)
        loaded(s, c);
    else if (!adopt(s, served_adapters_without(s->adapters.list, c->number)))
        err_nomem(&c->err);
    finish(s, c);
}

void changes_lost(struct scheduler *s)
{
    struct adapter_change *c = s->change;
    s->change = NULL;
    if (!c)
        return;
    const bool undoing = c->state == CHANGE_UNDOING; /* the ranks that had applied it are gone */
    c->state = CHANGE_WAITING;
    c->call_sent = false;
    if (!undoing && ++c->lost < LOST_MOST)
        return;
    if (!undoing)
        err_set(&c->err, ERR_SYSTEM, "the shards were lost during the change");
    if (!c->path)
        mark(s, c->number, false);
    finish(s, c);
}
