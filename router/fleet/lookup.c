/* The thread that discovers replicas. A look-up may take as long as a DNS server that does not
 * answer, up to half a minute: so nothing else waits for this thread. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/fleet/discover.h"
#include "router/fleet/impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MS = 250, DNS_MS = 2000 };

struct lookup {
    struct fleet *f;
    struct targets found; /* by the current look-up */
    struct sightings seen;
    char last_error[sizeof(((struct err *)0)->msg)]; /* the last logged error */
};

static void complain(struct lookup *w, const struct err *e)
{
    if (strcmp(w->last_error, e->msg) != 0)
        LOG(LOG_WARN, "discovery of replicas", LOGS("where", w->f->c.discovery),
            LOGS("why", e->msg));
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

/* With the lock. A draining replica that is discovered again stays. */
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
            complain(w, e);
    }
}

/* If discovery fails, the known replicas stay: their connections show which are reachable. */
static void look(struct lookup *w)
{
    struct fleet *f = w->f;
    struct err e = ERR_INIT;
    const struct cluster *of = f->c.infer.cluster;
    int rc = discover(f->c.discovery, of ? of->kind : CLUSTER_OPEN, &w->found, &e);
    if (rc != 0)
        complain(w, &e);
    else
        w->last_error[0] = 0;
    if (rc < 0)
        return;
    sightings_add(&w->seen, &w->found);
    pthread_mutex_lock(&f->lock);
    if (!f->stopping)
        merge(w, &e);
    pthread_mutex_unlock(&f->lock);
}

void *fleet_look(void *arg)
{
    struct fleet *f = arg;
    struct lookup *w = calloc(1, sizeof(*w));
    const int64_t ms = discover_is_file(f->c.discovery) ? FILE_MS : DNS_MS;
    bool stopping = false;
    if (w)
        w->f = f;
    while (!stopping) {
        if (w)
            look(w);
        pthread_mutex_lock(&f->lock);
        fleet_rest(f, ms);
        stopping = f->stopping;
        pthread_mutex_unlock(&f->lock);
    }
    free(w);
    return NULL;
}
