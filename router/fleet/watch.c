/* The fleet's thread: unresponsive replicas, removed replicas, and the loss of the last one. It
 * waits for nothing but time. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/fleet/impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SILENCE_MS: shards that leave a Health call unanswered this long are lost; a launcher, if there
 * is one, reacts faster. */
enum { TURN_MS = 250, SILENCE_MS = 5000 };

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

void fleet_rest(struct fleet *f, int64_t ms)
{
    const struct timespec until = clock_deadline(ms);
    while (!f->stopping && pthread_cond_timedwait(&f->changed, &f->lock, &until) == 0)
        ;
}

void *fleet_watch(void *arg)
{
    struct fleet *f = arg;
    bool stopping = false;
    while (!stopping) {
        reap(f);
        end_if_empty(f);
        pthread_mutex_lock(&f->lock);
        check_health(f);
        fleet_rest(f, TURN_MS);
        stopping = f->stopping;
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}
