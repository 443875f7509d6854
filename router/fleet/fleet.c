#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/cond.h"
#include "router/fleet/discover.h"
#include "router/fleet/impl.h"
#include "router/metrics.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONNECT_MS = 600000, LOOK_MS = 1000, LOST_MS = 100, LOST_MOST = 10 };

/* ---------------------------------------------------------------- start */

/* Were the shards lost, not refused, and do others take their place? */
static bool others_come(const struct fleet *f, uint32_t lost, bool connected, const struct err *e)
{
    if (!shards_lost(e) && (connected || e->sys != ETIMEDOUT || !f->c.returns))
        return false;
    if (f->c.returns)
        return f->c.returns(f->c.returns_arg);
    nanosleep(&(struct timespec){.tv_nsec = LOST_MS * 1000000L}, NULL);
    return lost < LOST_MOST;
}

static int start_one(struct fleet *f, struct err *e)
{
    struct infer_config one = f->c.infer;
    bool connected = false;
    one.shard_target = f->c.targets[0];
    one.connected = &connected;
    if (f->c.returns) /* it is asked again and again, not once in ten minutes */
        one.connect_timeout_ms = LOOK_MS;
    for (uint32_t lost = 0; !(f->only = infer_start(&one, e)); lost++) {
        if (!others_come(f, lost, connected, e))
            return -1;
        LOG(LOG_WARN, "Shards were lost while they started", LOGS("why", e->msg));
        connected = false;
    }
    return 0;
}

static int check(const struct fleet_config *c, struct err *e)
{
    if (c->infer.draft_target)
        return err_set(e, ERR_VALIDATION, "several replicas take no draft model");
    if (c->n_targets > REPLICAS_MAX)
        return err_set(e, ERR_VALIDATION, "more than %d replicas", REPLICAS_MAX);
    if (c->n_targets == 0 && !c->discovery)
        return err_set(e, ERR_VALIDATION, "no replica is named");
    return c->discovery ? discover_check(c->discovery, e) : 0;
}

static void free_targets(char **v, uint32_t n)
{
    for (uint32_t i = 0; v && i < n; i++)
        free(v[i]);
    free(v);
}

static char **copy_targets(const struct fleet_config *c)
{
    char **v = calloc(c->n_targets + 1, sizeof(*v));
    for (uint32_t i = 0; v && i < c->n_targets; i++)
        if (!(v[i] = strdup(c->targets[i]))) {
            free_targets(v, i);
            return NULL;
        }
    return v;
}

/* With the lock. A replica that refused, if all have and no other can be discovered; otherwise
 * NULL. */
static const struct replica *all_refused(const struct fleet *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (!f->v[i]->refused)
            return NULL;
    return f->c.discovery || f->n == 0 ? NULL : f->v[0];
}

/* Waits until one is ready. */
static int await_first(struct fleet *f, struct err *e)
{
    int64_t ms = f->c.infer.connect_timeout_ms ? f->c.infer.connect_timeout_ms : CONNECT_MS;
    const struct timespec until = clock_deadline(ms);
    pthread_mutex_lock(&f->lock);
    int late = 0;
    while (!f->open && !all_refused(f) && !late)
        late = pthread_cond_timedwait(&f->changed, &f->lock, &until);
    const bool open = f->open;
    const struct replica *p = all_refused(f);
    if (!open && p)
        *e = p->why;
    else if (!open)
        err_set(e, ERR_GENERATION, "no replica is ready: %.300s",
                f->n && f->v[0]->why.kind ? f->v[0]->why.msg : "none was found");
    pthread_mutex_unlock(&f->lock);
    return open ? 0 : -1;
}

static int start_several(struct fleet *f, struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; rc == 0 && i < f->c.n_targets; i++)
        rc = replica_add(f, f->c.targets[i], e);
    pthread_mutex_unlock(&f->lock);
    if (rc == 0)
        f->watching = pthread_create(&f->watch, NULL, fleet_watch, f) == 0;
    if (f->watching && f->c.discovery)
        rc = lookup_start(f, e);
    if (rc == 0 && !f->watching)
        rc = err_set(e, ERR_SYSTEM, "cannot start the thread of the replicas");
    if (rc == 0)
        rc = await_first(f, e);
    if (rc == 0 && f->uses.list && pthread_create(&f->adapt, NULL, fleet_adapt, f) != 0)
        rc = err_set(e, ERR_SYSTEM, "cannot start the thread of the adapters");
    f->adapts = rc == 0 && f->uses.list;
    return rc;
}

struct fleet *fleet_start(const struct fleet_config *c, struct err *e)
{
    struct fleet *f = calloc(1, sizeof(*f));
    if (!f)
        return err_nomem(e), NULL;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->adapting, NULL);
    cond_init(&f->changed);
    adapter_shelf_init(&f->adapters);
    f->c = *c;
    f->c.targets = (const char *const *)copy_targets(c);
    const bool one = c->n_targets == 1 && !c->discovery;
    int rc = !f->c.targets ? err_nomem(e)
             : one         ? start_one(f, e)
             : check(c, e) ? -1
                           : start_several(f, e);
    if (rc == 0)
        return f;
    fleet_stop(f);
    return NULL;
}

/* The threads of the others go through the list until they end, too. */
static void join_replicas(struct fleet *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->n > 0) {
        struct replica *p = f->v[--f->n];
        pthread_mutex_unlock(&f->lock);
        replica_join(p);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fleet_stop(struct fleet *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    pthread_cond_broadcast(&f->changed);
    for (uint32_t i = 0; i < f->n; i++)
        pthread_cond_signal(&f->v[i]->turn);
    struct fleet_entry *ended = fleet_fail_queue(f, "Request failed during generation: the router "
                                                    "is shutting down");
    struct fleet_texts *texts = fleet_fail_texts(f, "Request failed: the router is shutting down");
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
    fleet_settle_texts(texts);
    if (f->watching)
        pthread_join(f->watch, NULL);
    lookup_stop(f);
    if (f->adapts)
        pthread_join(f->adapt, NULL);
    join_replicas(f);
    infer_stop(f->only);
    if (f->c.infer.metrics)
        metrics_unshare(f->c.infer.metrics, &f->gauges);
    for (uint32_t i = 0; i < f->limits.n_labels; i++)
        free(f->limits.labels[i]);
    free((void *)(uintptr_t)f->limits.labels);
    free_targets((char **)(uintptr_t)f->c.targets, f->c.n_targets);
    fair_free(&f->fair);
    adapter_shelf_fini(&f->adapters);
    adapters_free(&f->uses);
    pthread_mutex_destroy(&f->adapting);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ---------------------------------------------------------------- other public functions */

const struct infer_limits *fleet_limits(const struct fleet *f)
{
    return f->only ? infer_limits(f->only) : &f->limits;
}

struct adapter_shelf *fleet_adapters(struct fleet *f)
{
    return f->only ? infer_adapters(f->only) : &f->adapters;
}

bool fleet_healthy(struct fleet *f)
{
    bool healthy = false;
    if (f->only)
        return infer_healthy(f->only);
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->n; i++) /* every one: the question triggers its health check */
        healthy |= replica_ready(f->v[i]) && infer_healthy(f->v[i]->infer);
    pthread_mutex_unlock(&f->lock);
    return healthy;
}

void fleet_on_lost(struct fleet *f, void (*fn)(void *arg, const char *why), void *arg)
{
    if (f->only) {
        infer_on_lost(f->only, fn, arg);
        return;
    }
    pthread_mutex_lock(&f->lock);
    f->on_lost = fn;
    f->on_lost_arg = arg;
    pthread_mutex_unlock(&f->lock);
}

void fleet_drain(struct fleet *f, const char *why)
{
    if (f->only) {
        infer_drain(f->only, why);
        return;
    }
    pthread_mutex_lock(&f->lock);
    f->draining = why; /* the watch thread notices when no replica is left */
    pthread_mutex_unlock(&f->lock);
}

void fleet_fail(struct fleet *f, const char *why)
{
    char text[200];
    if (f->only) {
        infer_fail(f->only, why);
        return;
    }
    snprintf(text, sizeof(text), "Request failed during generation: %s", why);
    pthread_mutex_lock(&f->lock);
    struct fleet_entry *ended = fleet_fail_queue(f, text);
    struct fleet_texts *texts = fleet_fail_texts(f, text);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->v[i]->infer)
            infer_fail(f->v[i]->infer, why);
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
    fleet_settle_texts(texts);
}
