/* Adapters that are loaded and unloaded while several replicas serve. The fleet has one list, and
 * every replica is made equal to it: each ready one when a change is made, the others when they
 * are connected or come back. All replicas make a change, or none does. */
#include "router/fleet/impl.h"
#include <stdlib.h>
#include <string.h>

/* Attempts to make a replica equal: its scheduler may refuse a change for a moment. */
enum { ROUNDS_MOST = 20, AGAIN_MS = 50 };

/* ---------------------------------------------------------------- one change of one replica */

/* Freed by step(), or by step_done() if step() stopped waiting before. Then it is left at the
 * replica's scheduler, which may still make it with the next shards. */
struct step {
    struct adapter_change change;
    struct replica *p;
    bool done, left;
};

static void step_free(struct step *s)
{
    free(s->change.name);
    free(s->change.path);
    free(s);
}

static void step_done(struct adapter_change *c)
{
    struct step *s = c->arg;
    struct fleet *f = s->p->fleet;
    pthread_mutex_lock(&f->lock);
    const bool left = s->left;
    s->done = true;
    s->p->n_left -= left;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (left)
        step_free(s);
}

static bool is_there(const struct replica *p) { return p->up && !p->over && !p->fleet->stopping; }

/* Loads (`path`) or unloads at one replica, and waits for the answer, or for the loss of its
 * shards. */
static int step(struct replica *p, struct infer *i, const char *name, const char *path,
                struct err *e)
{
    struct fleet *f = p->fleet;
    struct step *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e);
    s->p = p;
    s->change = (struct adapter_change){
        .name = strdup(name), .path = path ? strdup(path) : NULL, .done = step_done, .arg = s};
    if (!s->change.name || (path && !s->change.path)) {
        step_free(s);
        return err_nomem(e);
    }
    p->users++;
    pthread_mutex_unlock(&f->lock);
    infer_change(i, &s->change);
    pthread_mutex_lock(&f->lock);
    while (!s->done && is_there(p))
        pthread_cond_wait(&f->changed, &f->lock);
    p->users--;
    pthread_cond_signal(&p->turn);
    if (!s->done) {
        s->left = true;
        p->n_left++;
        return err_set(e, ERR_UNHEALTHY, "the shards were lost during the change");
    }
    const int rc = s->change.err.kind == ERR_NONE ? 0 : -1;
    if (rc)
        *e = s->change.err;
    step_free(s);
    return rc;
}

/* ---------------------------------------------------------------- one replica */

static bool names(const struct served_adapters *list, const char *name, bool leaving)
{
    bool found = false;
    for (uint32_t i = 0; i < list->n; i++)
        found |= (leaving || !list->v[i].leaving) && strcmp(list->v[i].name, name) == 0;
    return found;
}

/* What a replica has and should not. One that the fleet unloads stays as long as requests name
 * it. */
static const struct served_adapter *surplus(const struct served_adapters *have,
                                            const struct served_adapters *want)
{
    for (uint32_t i = 0; i < have->n; i++)
        if (!have->v[i].leaving && !names(want, have->v[i].name, true))
            return &have->v[i];
    return NULL;
}

static const struct served_adapter *missing(const struct served_adapters *have,
                                            const struct served_adapters *want)
{
    for (uint32_t i = 0; i < want->n; i++)
        if (!names(have, want->v[i].name, false))
            return &want->v[i];
    return NULL;
}

static const struct served_adapter *differing(const struct served_adapters *a,
                                              const struct served_adapters *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (!served_adapters_same(b, &a->v[i]))
            return &a->v[i];
    return NULL;
}

enum approach { EQUAL, CHANGED, FAILED, IMPOSSIBLE };

/* Makes one change, if the replica's adapters are not those of `want`. */
static enum approach approach(struct replica *p, struct infer *i,
                              const struct served_adapters *want, struct err *e)
{
    struct served_adapters *have = adapter_shelf_hold(infer_adapters(i));
    const struct served_adapter *more = surplus(have, want), *less = missing(have, want);
    const struct served_adapter *other = differing(want, have);
    enum approach did = EQUAL;
    if (more || (less && less->path)) {
        const bool ok = more ? step(p, i, more->name, NULL, e) == 0
                             : step(p, i, less->name, less->path, e) == 0;
        did = ok ? CHANGED : FAILED;
    } else if (less) {
        err_set(e, ERR_VALIDATION, "it does not serve the adapter `%.200s`", less->name);
        did = IMPOSSIBLE;
    } else if (other) {
        err_set(e, ERR_VALIDATION, "its adapter `%.200s` has other files", other->name);
        did = IMPOSSIBLE;
    }
    served_adapters_release(have);
    return did;
}

int fleet_adapt_replica(struct replica *p, struct infer *i, struct err *e)
{
    struct fleet *f = p->fleet;
    while (p->n_left > 0 && is_there(p)) /* what they do is compared, too */
        pthread_cond_wait(&f->changed, &f->lock);
    struct served_adapters *want = served_adapters_hold(f->uses.list);
    uint32_t failed = 0;
    enum approach did;
    while ((did = approach(p, i, want, e)) != EQUAL && did != IMPOSSIBLE && failed < ROUNDS_MOST &&
           is_there(p))
        if (did == FAILED) {
            failed++;
            fleet_rest(f, AGAIN_MS);
        }
    served_adapters_release(want);
    if (did == EQUAL)
        *e = (struct err)ERR_INIT; /* an earlier attempt may have failed */
    return did == EQUAL ? 0 : -1;
}

/* ---------------------------------------------------------------- one change of all */

/* The replicas that are ready when a change is made. They stay as long as they are held. */
struct ready {
    struct replica *p[REPLICAS_MAX];
    struct infer *i[REPLICAS_MAX];
    bool made[REPLICAS_MAX];
    uint32_t n;
};

static void hold_ready(struct fleet *f, struct ready *r)
{
    r->n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (replica_ready(f->v[i])) {
            f->v[i]->users++;
            r->p[r->n] = f->v[i];
            r->i[r->n] = f->v[i]->infer;
            r->made[r->n++] = false;
        }
}

static void let_go(struct ready *r)
{
    for (uint32_t k = 0; k < r->n; k++) {
        r->p[k]->users--;
        pthread_cond_signal(&r->p[k]->turn);
    }
}

/* Its own thread makes it equal, before it gets requests again. */
static void distrust(struct replica *p)
{
    p->stale = true;
    pthread_cond_signal(&p->turn);
}

/* The fleet's adapters are those of the first replica. False: out of memory. */
static bool adopt(struct fleet *f, struct served_adapters *list)
{
    const bool ok = list && adapters_replace(&f->uses, list);
    if (ok)
        adapter_shelf_put(&f->adapters, list);
    return ok;
}

static bool replace(struct fleet *f, struct served_adapters *list)
{
    const bool ok = adopt(f, list);
    served_adapters_release(list);
    return ok;
}

static bool add(struct fleet *f, const struct adapter_change *c, struct infer *i)
{
    struct served_adapters *theirs = adapter_shelf_hold(infer_adapters(i));
    const struct served_adapter *there = served_adapters_find(theirs, c->name);
    const struct served_adapter a = {.name = c->name,
                                     .path = c->path,
                                     .pages = there ? there->pages : 0,
                                     .content = there ? there->content : 0,
                                     .number = f->uses.next_number};
    const bool ok = replace(f, served_adapters_with(f->uses.list, &a));
    served_adapters_release(theirs);
    return ok;
}

/* A replica that is lost meanwhile gets the adapter when it comes back. */
static void load(struct fleet *f, struct adapter_change *c, struct ready *r)
{
    struct infer *first = NULL;
    struct err none = ERR_INIT, e = ERR_INIT;
    for (uint32_t k = 0; k < r->n && e.kind == ERR_NONE; k++) {
        r->made[k] = fleet_adapt_replica(r->p[k], r->i[k], &e) == 0 &&
                     step(r->p[k], r->i[k], c->name, c->path, &e) == 0;
        first = first || !r->made[k] ? first : r->i[k];
        if (!r->made[k] && !is_there(r->p[k]))
            e = none;
    }
    if (e.kind == ERR_NONE && !first)
        err_set(&e, ERR_UNHEALTHY, "no replica is ready");
    if (e.kind == ERR_NONE && !add(f, c, first))
        err_nomem(&e);
    for (uint32_t k = 0; k < r->n && e.kind != ERR_NONE; k++)
        if (r->made[k] && step(r->p[k], r->i[k], c->name, NULL, &none) != 0)
            distrust(r->p[k]);
    c->err = e;
}

/* No request of the fleet names it any more. */
static void unload(struct fleet *f, struct adapter_change *c, struct ready *r)
{
    struct err e = ERR_INIT;
    if (!replace(f, served_adapters_without(f->uses.list, c->number))) {
        err_nomem(&c->err);
        return;
    }
    for (uint32_t k = 0; k < r->n; k++)
        if (step(r->p[k], r->i[k], c->name, NULL, &e) != 0)
            distrust(r->p[k]);
}

static struct adapter_change *next_change(struct fleet *f)
{
    struct adapter_change *c = f->changes;
    while (c && !c->path && adapters_known(&f->uses, c->number) > 0)
        c = c->next;
    return c;
}

static void take_out(struct fleet *f, const struct adapter_change *c)
{
    struct adapter_change **at = &f->changes;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void make(struct fleet *f, struct adapter_change *c)
{
    struct ready r;
    fleet_lock_adapters(f);
    hold_ready(f, &r);
    if (c->path)
        load(f, c, &r);
    else
        unload(f, c, &r);
    let_go(&r);
    take_out(f, c);
    fleet_unlock_adapters(f);
    pthread_mutex_unlock(&f->lock);
    c->done(c);
    pthread_mutex_lock(&f->lock);
}

void *fleet_adapt(void *arg)
{
    struct fleet *f = arg;
    struct adapter_change *c;
    pthread_mutex_lock(&f->lock);
    while (!f->stopping)
        if ((c = next_change(f)))
            make(f, c);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    while ((c = f->changes)) {
        f->changes = c->next;
        pthread_mutex_unlock(&f->lock);
        err_set(&c->err, ERR_UNHEALTHY, "the server is shutting down");
        c->done(c);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---------------------------------------------------------------- requests and changes */

void fleet_change(struct fleet *f, struct adapter_change *c)
{
    if (f->only) {
        infer_change(f->only, c);
        return;
    }
    c->err = (struct err)ERR_INIT;
    pthread_mutex_lock(&f->lock);
    int rc = change_check(c, f->uses.list, f->changes, f->stopping || f->lost, f->adapts);
    if (rc == 0 && !c->path && !replace(f, served_adapters_marked(f->uses.list, c->number, true)))
        rc = err_nomem(&c->err);
    if (rc == 0) {
        struct adapter_change **end = &f->changes;
        while (*end)
            end = &(*end)->next;
        *end = c;
        c->next = NULL;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    if (rc != 0)
        c->done(c);
}

bool fleet_use_adapter(struct fleet *f, struct fleet_entry *e)
{
    const char *name = e->r->params.adapter_id;
    if (!f->adapts || !name || !*name)
        return true;
    const struct served_adapter *a = served_adapters_find(f->uses.list, name);
    if (!a)
        return false;
    e->adapter = a->number;
    adapters_retain(&f->uses, a->number);
    return true;
}

void fleet_leave_adapter(struct fleet *f, struct fleet_entry *e)
{
    if (!e->adapter)
        return;
    adapters_release(&f->uses, e->adapter);
    e->adapter = 0;
    if (f->changes)
        pthread_cond_broadcast(&f->changed);
}
