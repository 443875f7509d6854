/* The fleet's thread: unresponsive replicas, discovery, removed replicas, and the loss of the last
 * one. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/fleet/discover.h"
#include "router/fleet/impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SILENCE_MS: shards that leave a Health call unanswered this long are lost; a launcher, if there
 * is one, reacts faster. */
enum { TURN_MS = 250, DNS_MS = 2000, SILENCE_MS = 5000 };

struct watch { /* owned by the thread */
    struct fleet *f;
    int64_t next_ms;      /* time of the next discovery */
    struct targets found; /* by the current look-up */
    struct sightings seen;
    char last_error[sizeof(((struct err *)0)->msg)]; /* the last logged error */
};

/* ---------------------------------------------------------------- health */

/* Asking makes the schedulers check their shards. */
static void check_health(struct fleet *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        struct replica *p = f->v[i];
        if (!p->infer || !p->up)
            continue;
        infer_healthy(p->infer);
        if (p->silent || infer_silence_ms(p->infer) < SILENCE_MS)
            continue;
        LOG(LOG_WARN, "replica does not answer", LOGS("replica", p->target));
        p->silent = true;
        infer_abandon(p->infer, "Could not connect to Text Generation server: no answer");
    }
}

/* ---------------------------------------------------------------- discovery */

static void complain(struct watch *w, const struct err *e)
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
static void merge(struct watch *w, struct err *e)
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
static void look(struct watch *w)
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

/* ---------------------------------------------------------------- removed replicas */

static struct replica *take_gone(struct fleet *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->v[i]->gone) {
            struct replica *p = f->v[i];
            f->v[i] = f->v[--f->n];
            return p;
        }
    return NULL;
}

static void reap(struct fleet *f)
{
    struct replica *p;
    pthread_mutex_lock(&f->lock);
    while (!f->stopping && (p = take_gone(f))) {
        pthread_mutex_unlock(&f->lock);
        LOG(LOG_INFO, "Replica gone", LOGS("replica", p->target));
        replica_join(p);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Requests wait as long for a replica as for the shards of a single one. */
static void end_if_empty(struct fleet *f)
{
    struct fleet_entry *ended = NULL;
    struct fleet_texts *texts;
    void (*on_lost)(void *arg, const char *why) = NULL;
    char why[200];
    pthread_mutex_lock(&f->lock);
    const int64_t now = clock_ms();
    if (!f->open || fleet_ready(f) > 0)
        f->empty_since = 0;
    else if (!f->empty_since)
        f->empty_since = now;
    const bool patient = !f->draining && now - f->empty_since < (int64_t)f->c.infer.return_ms;
    if (f->empty_since && !patient && !f->lost && !f->stopping) {
        snprintf(why, sizeof(why), "Request failed during generation: no replica is left%s%s",
                 f->draining ? ", and " : "", f->draining ? f->draining : "");
        f->lost = f->on_lost != NULL;
        on_lost = f->on_lost;
        ended = fleet_fail_queue(f, why);
        texts = fleet_fail_texts(f, why);
    } else {
        texts = fleet_dispatch_texts(f); /* shards may answer again */
    }
    pthread_mutex_unlock(&f->lock);
    fleet_settle(ended);
    fleet_settle_texts(texts);
    if (on_lost)
        on_lost(f->on_lost_arg, "no replica is left");
}

/* ---------------------------------------------------------------- the thread */

/* With the lock. */
static void rest(struct fleet *f)
{
    const struct timespec until = clock_deadline(TURN_MS);
    while (!f->stopping && pthread_cond_timedwait(&f->changed, &f->lock, &until) == 0)
        ;
}

void *fleet_watch(void *arg)
{
    struct fleet *f = arg;
    struct watch *w = calloc(1, sizeof(*w));
    bool stopping = false;
    if (w)
        w->f = f;
    while (!stopping) {
        if (w && f->c.discovery && clock_ms() >= w->next_ms) {
            look(w);
            w->next_ms = clock_ms() + (discover_is_file(f->c.discovery) ? TURN_MS : DNS_MS);
        }
        reap(f);
        end_if_empty(f);
        pthread_mutex_lock(&f->lock);
        check_health(f);
        rest(f);
        stopping = f->stopping;
        pthread_mutex_unlock(&f->lock);
    }
    free(w);
    return NULL;
}
