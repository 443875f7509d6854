/* The thread that discovers replicas. A look-up may take as long as a DNS server that does not
 * answer, up to half a minute, and cannot be ended: so nothing waits for this thread, the end of
 * the fleet neither. What it needs is therefore its own; it frees that when it ends. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/cond.h"
#include "router/fleet/discover.h"
#include "router/fleet/impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MS = 250, DNS_MS = 2000 };

struct lookup {
    pthread_mutex_t lock; /* taken before the fleet's; guards `f` */
    pthread_cond_t ended;
    struct fleet *f; /* NULL: it has stopped */
    char *where;
    enum cluster_kind kind;
    struct targets found; /* by the current look-up */
    struct sightings seen;
    char last_error[sizeof(((struct err *)0)->msg)]; /* the last logged error */
};

static void complain(struct lookup *w, const struct err *e)
{
    if (strcmp(w->last_error, e->msg) != 0)
        LOG(LOG_WARN, "discovery of replicas", LOGS("where", w->where), LOGS("why", e->msg));
    snprintf(w->last_error, sizeof(w->last_error), "%s", e->msg);
}

static bool is_fixed(const struct fleet *f, const char *target)
{
    for (uint32_t i = 0; i < f->c.n_targets; i++)
        if (strcmp(f->c.targets[i], target) == 0)
            return true;
    return false;
}

static struct replica *replica_of(const struct fleet *f, const char *target)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i]->target, target) == 0)
            return f->v[i];
    return NULL;
}

/* With the lock. A draining replica that is discovered again stays. `e` is set if there are too
 * many. */
static void merge(struct lookup *w, struct err *e)
{
    struct fleet *f = w->f;
    for (uint32_t i = 0; i < f->n; i++) {
        struct replica *p = f->v[i];
        const bool wanted =
            is_fixed(f, p->target) || (p->wanted ? !sightings_deny(&w->seen, p->target)
                                                 : sightings_confirm(&w->seen, p->target));
        if (p->wanted && !wanted)
            LOG(LOG_INFO, "Draining replica", LOGS("replica", p->target),
                LOGI("requests", p->n_waiting + p->n_running));
        p->wanted = wanted;
        pthread_cond_signal(&p->turn);
    }
    for (uint32_t i = 0; i < w->found.n; i++) {
        if (replica_of(f, w->found.v[i]) || !sightings_confirm(&w->seen, w->found.v[i]))
            continue;
        LOG(LOG_INFO, "Replica found", LOGS("replica", w->found.v[i]));
        if (replica_add(f, w->found.v[i], e) != 0)
            break;
    }
}

/* With w->lock. If discovery fails, the known replicas stay: their connections show which are
 * reachable. */
static void use(struct lookup *w, int rc, struct err *e)
{
    if (rc >= 0) {
        sightings_add(&w->seen, &w->found);
        pthread_mutex_lock(&w->f->lock);
        if (!w->f->stopping)
            merge(w, e);
        pthread_mutex_unlock(&w->f->lock);
    }
    if (e->kind != ERR_NONE)
        complain(w, e);
    else
        w->last_error[0] = 0;
}

static void lookup_free(struct lookup *w)
{
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w->where);
    free(w);
}

static void *look(void *arg)
{
    struct lookup *w = arg;
    const int64_t ms = discover_is_file(w->where) ? FILE_MS : DNS_MS;
    bool stopped = false;
    while (!stopped) {
        struct err e = ERR_INIT;
        const int rc = discover(w->where, w->kind, &w->found, &e);
        const struct timespec until = clock_deadline(ms);
        pthread_mutex_lock(&w->lock);
        if (w->f)
            use(w, rc, &e);
        while (w->f && pthread_cond_timedwait(&w->ended, &w->lock, &until) == 0)
            ;
        stopped = !w->f;
        pthread_mutex_unlock(&w->lock);
    }
    lookup_free(w);
    return NULL;
}

int lookup_start(struct fleet *f, struct err *e)
{
    pthread_t thread;
    const struct cluster *of = f->c.infer.cluster;
    struct lookup *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->ended);
    w->f = f;
    w->kind = of ? of->kind : CLUSTER_OPEN;
    w->where = strdup(f->c.discovery);
    if (!w->where || pthread_create(&thread, NULL, look, w) != 0) {
        lookup_free(w);
        return err_set(e, ERR_SYSTEM, "cannot start the thread that discovers replicas");
    }
    pthread_detach(thread);
    f->lookup = w;
    return 0;
}

void lookup_stop(struct fleet *f)
{
    struct lookup *w = f->lookup;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->f = NULL;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    f->lookup = NULL;
}
