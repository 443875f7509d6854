#include "router/shards/link.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/cond.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Times in ms. LOOK: timeout of one attempt, and so of a halt; PAUSE: between attempts. A socket
 * without a listener fails at once. A peer that accepts but does not finish the handshake within
 * 100 ms (rpc/client.c) is silent. */
enum { LOOK_MS = 1000, SILENT_MS = 50, PAUSE_MS = 100, REFUSED_MS = 5000, SILENCE_MOST_MS = 15000 };
enum { LOOKS_MS = 4 * LOOK_MS }; /* the calls of one attempt */

struct shards_link {
    struct shards_link_options o;
    char *target; /* owned */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    bool wanted, stop;  /* under the lock */
    struct shards *old; /* under the lock: shards to be freed */
    /* shards found, owned by the loop thread once `bell` has rung. NULL then: missed */
    struct shards *shards;
    struct shard_model model;
    char why[512]; /* missed */
    struct rpc_op bell;
    atomic_bool rings;
    void (*gone)(void *arg); /* loop thread */
    void *gone_arg;
};

/* ---------------------------------------------------------------- loop thread */

static void on_bell(struct rpc_op *op, bool ok)
{
    struct shards_link *l = CONTAINER_OF(op, struct shards_link, bell);
    (void)ok;
    atomic_store(&l->rings, false);
    if (l->gone) {
        l->gone(l->gone_arg);
        return;
    }
    struct shards *s = l->shards;
    l->shards = NULL;
    if (s)
        l->o.found(l->o.arg, s, &l->model);
    else
        l->o.missed(l->o.arg, l->why);
}

void shards_link_lost(struct shards_link *l, struct shards *s)
{
    pthread_mutex_lock(&l->lock);
    l->old = s;
    l->wanted = true;
    pthread_cond_signal(&l->turn);
    pthread_mutex_unlock(&l->lock);
}

void shards_link_end(struct shards_link *l, void (*gone)(void *arg), void *arg)
{
    if (l) {
        l->gone = gone;
        l->gone_arg = arg;
    }
    if (!l || !atomic_load(&l->rings))
        gone(arg);
}

/* ---------------------------------------------------------------- link thread */

/* Waits until shards are wanted, or for `ms`. False: the thread must stop. */
static bool await(struct shards_link *l, bool wanted, int64_t ms)
{
    const struct timespec end = clock_deadline(ms);
    pthread_mutex_lock(&l->lock);
    while (!l->stop && (wanted ? !l->wanted : true))
        if (wanted)
            pthread_cond_wait(&l->turn, &l->lock);
        else if (pthread_cond_timedwait(&l->turn, &l->lock, &end) != 0)
            break;
    bool go = !l->stop;
    struct shards *old = l->old;
    l->old = NULL;
    pthread_mutex_unlock(&l->lock);
    shards_free(old);
    return go;
}

struct link_search {
    int64_t last; /* ms: the end of the last attempt */
    /* ms. Time in which this process stood still (a paused container) counts as one attempt: the
     * shards stood still as well. silent 0: nothing listens, or the peer answers. */
    int64_t searched, silent;
    int64_t pause_ms;
    bool over; /* found or missed */
};

static void miss(struct shards_link *l, struct link_search *f, const char *why)
{
    if (l->o.patience_ms == 0)
        return;
    snprintf(l->why, sizeof(l->why), "%s", why);
    f->over = true;
}

/* Adds the time since the last attempt, but at most `most`, to `searched`. Returns it. */
static int64_t pass(struct link_search *f, int64_t most)
{
    const int64_t now = clock_ms();
    const int64_t took = now - f->last < most ? now - f->last : most;
    f->last = now;
    f->searched += took;
    return took;
}

static void not_there(struct shards_link *l, struct link_search *f, int64_t asked, const char *why)
{
    const int64_t took = pass(f, f->pause_ms + LOOKS_MS);
    f->silent = f->last - asked >= SILENT_MS ? f->silent + took : 0;
    f->pause_ms = PAUSE_MS;
    if (f->silent >= SILENCE_MOST_MS)
        miss(l, f, "a shard listens, but does not answer");
    else if (f->searched >= l->o.patience_ms)
        miss(l, f, why);
}

static void look(struct shards_link *l, struct link_search *f)
{
    struct err e = ERR_INIT;
    struct shard_model m = l->o.ask;
    int64_t asked = clock_ms();
    struct shards *s = shards_connect(l->o.loop, l->target, LOOK_MS, false, &e);
    if (!s) {
        not_there(l, f, asked, e.msg);
        return;
    }
    int rc = shards_warmup(s, &m, &e);
    const char *why = rc ? e.msg : l->o.unfit(l->o.arg, &m);
    if (!why && l->o.prepare && (rc = l->o.prepare(l->o.arg, s, &m, &e)) != 0)
        why = e.msg;
    served_adapters_release(m.adapters);
    m.adapters = NULL;
    f->silent = 0;
    if (!why) {
        l->shards = s;
        l->model = m;
        f->over = true;
        return;
    }
    const bool lost = rc && shards_lost(&e);
    LOG(lost ? LOG_WARN : LOG_ERROR, lost ? "shards were lost again" : "incompatible shards",
        LOGS("of", l->o.name), LOGS("why", why));
    shards_free(s);
    f->pause_ms = lost ? PAUSE_MS : REFUSED_MS;
    pass(f, INT64_MAX); /* a warm-up may take minutes */
    if (rc == 0 || f->searched >= l->o.patience_ms)
        miss(l, f, why);
}

static void *run(void *arg)
{
    struct shards_link *l = arg;
    while (await(l, true, 0)) {
        struct link_search f = {.last = clock_ms()};
        do
            look(l, &f);
        while (!f.over && await(l, false, f.pause_ms));
        if (!f.over)
            break;
        pthread_mutex_lock(&l->lock);
        l->wanted = false;
        pthread_mutex_unlock(&l->lock);
        atomic_store(&l->rings, true);
        rpc_post(l->o.loop, &l->bell);
    }
    return NULL;
}

/* ---------------------------------------------------------------- life */

int shards_link_open(struct shards_link **out, const struct shards_link_options *o, bool look,
                     struct err *e)
{
    struct shards_link *l = *out = calloc(1, sizeof(*l));
    if (!l || !(l->target = strdup(o->target))) {
        free(l);
        *out = NULL;
        return err_nomem(e);
    }
    l->o = *o;
    l->o.ask.adapters = NULL;
    l->o.ask.wants_labels = false;
    l->o.ask.labels = NULL;
    l->o.ask.n_labels = 0;
    l->wanted = look;
    l->bell = (struct rpc_op){on_bell, "shards found"};
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->turn);
    if (pthread_create(&l->thread, NULL, run, l) == 0)
        return 0;
    shards_link_free(l);
    *out = NULL;
    return err_set(e, ERR_SYSTEM, "cannot start a thread");
}

void shards_link_halt(struct shards_link *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->turn);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
}

void shards_link_free(struct shards_link *l)
{
    if (!l)
        return;
    shards_free(l->old);
    shards_free(l->shards);
    pthread_cond_destroy(&l->turn);
    pthread_mutex_destroy(&l->lock);
    free(l->target);
    free(l);
}
