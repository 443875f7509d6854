/* Life cycle of one replica: it connects, serves, is lost for good and reconnects, until it is
 * removed or the fleet stops. Temporary losses are handled by its scheduler
 * (router/scheduler/rejoin.c). */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/cond.h"
#include "router/fleet/impl.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 2000, AGAIN_MS = 500, DAY_MS = 86400000 };

const char *replica_state(const struct replica *p)
{
    return !p->infer ? "starting" : !p->up ? "lost" : p->wanted ? "ready" : "draining";
}

uint32_t fleet_ready(const struct fleet *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        n += replica_ready(f->v[i]);
    return n;
}

void fleet_reset_computed(struct fleet *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        f->v[i]->computed = 0;
}

/* ---------------------------------------------------------------- compatibility */

static bool same_adapters(struct adapter_shelf *a, struct adapter_shelf *b)
{
    struct served_adapters *x = adapter_shelf_hold(a), *y = adapter_shelf_hold(b);
    bool same = (x ? x->n : 0) == (y ? y->n : 0);
    for (uint32_t i = 0; same && x && i < x->n; i++)
        same = served_adapters_find(y, x->v[i].name) && served_adapters_same(y, &x->v[i]);
    served_adapters_release(x);
    served_adapters_release(y);
    return same;
}

/* Why the replica cannot serve; NULL: it can. The capacity may differ. */
static const char *unfit(struct fleet *f, const struct infer *i)
{
    const struct infer_limits *a = &f->limits, *b = infer_limits(i);
    if (a->vocab_hash != b->vocab_hash || a->vocab_size != b->vocab_size || a->task != b->task ||
        a->embed_width != b->embed_width || a->sparse != b->sparse ||
        a->first_row != b->first_row || a->hidden_size != b->hidden_size ||
        strcmp(a->dtype, b->dtype) || strcmp(a->quantize, b->quantize) ||
        strcmp(a->activations, b->activations))
        return "it serves another model, or in another type";
    if (other_files(a->checkpoint_hash, b->checkpoint_hash))
        return "its files of weights or configuration differ";
    if (a->n_shards != b->n_shards || strcmp(a->device, b->device))
        return "its shards are not as many, or on other devices: its sums would differ";
    if (a->block_size != b->block_size || a->takes_input_ids != b->takes_input_ids ||
        a->takes_bias != b->takes_bias || a->takes_reasoning != b->takes_reasoning ||
        a->takes_grammars != b->takes_grammars || a->takes_images != b->takes_images ||
        a->has_encoder != b->has_encoder || a->decoder_start != b->decoder_start ||
        a->sampling_fields != b->sampling_fields)
        return "its shards are of another version";
    if (a->has_windows != b->has_windows)
        return "it has a cache of windows and the others have none, or the other way round";
    if (a->takes_images && b->max_batch_prefill_tokens < a->max_batch_prefill_tokens)
        return "its steps are smaller: a picture that a step computes whole may not fit";
    if (!a->runtime_adapters != !b->runtime_adapters)
        return "it has another --max-runtime-adapters";
    if (!a->runtime_adapters && !same_adapters(&f->adapters, infer_adapters(i)))
        return "it serves other adapters";
    return NULL;
}

/* -1: the replica cannot serve. A stream may resume there at any time, so results and features must
 * be equal. Another version of the program is expected to have the same results: otherwise no
 * replica could be updated under its router. */
static int check_fit(struct fleet *f, const struct replica *p, const struct infer *i, struct err *e)
{
    const struct infer_limits *a = &f->limits, *b = infer_limits(i);
    const char *why = unfit(f, i);
    if (why)
        return err_set(e, ERR_VALIDATION, "%s", why);
    if (other_words(a->options, b->options))
        return err_set(e, ERR_VALIDATION, "its options are `%s`, and those of the others `%s`",
                       b->options, a->options);
    if (strcmp(a->products, b->products) != 0)
        return err_set(e, ERR_VALIDATION,
                       "its device computes otherwise: `%s`, and the others `%s` (empty: exact "
                       "products without matrix units; see --activations)",
                       b->products, a->products);
    if (other_words(a->program, b->program))
        LOG(LOG_WARN, "replica of another version: a stream that moves may change",
            LOGS("replica", p->target), LOGS("version", b->program), LOGS("others", a->program));
    return 0;
}

static bool has_adapter(const struct replica *p, const char *adapter)
{
    return replica_ready(p) && adapter_shelf_has(infer_adapters(p->infer), adapter);
}

bool replica_serves(const struct replica *p, const char *adapter)
{
    const struct fleet *f = p->fleet;
    if (!adapter || !*adapter || has_adapter(p, adapter))
        return true;
    for (uint32_t i = 0; i < f->n; i++)
        if (has_adapter(f->v[i], adapter))
            return false;
    return true;
}

static bool copy_labels(struct infer_limits *l)
{
    char **v = l->n_labels ? calloc(l->n_labels, sizeof(*v)) : NULL;
    uint32_t n = 0;
    while (v && n < l->n_labels && (v[n] = strdup(l->labels[n])))
        n++;
    if (n == l->n_labels) {
        l->labels = v;
        return true;
    }
    while (n-- > 0)
        free(v[n]);
    free(v);
    return false;
}

/* The first replica determines the fleet's limits. */
static bool settle(struct fleet *f, const struct infer *i)
{
    struct infer_limits l = *infer_limits(i);
    if (!copy_labels(&l))
        return false;
    f->limits = l;
    struct served_adapters *list = adapter_shelf_hold(infer_adapters(i));
    const bool counts = list && l.runtime_adapters; /* else they stay as they are */
    if (list) /* texts of a model without adapters have none */
        adapter_shelf_put(&f->adapters, list);
    f->open = !counts || adapters_init(&f->uses, list, 0);
    served_adapters_release(list);
    return f->open;
}

/* ---------------------------------------------------------------- replica thread */

static bool goes_on(const struct replica *p)
{
    return !p->fleet->stopping && (p->wanted || p->n_waiting + p->n_running > 0);
}

/* With the lock, which is released meanwhile. */
static void pause_ms(struct replica *p, int64_t ms)
{
    const struct timespec until = clock_deadline(ms);
    while (goes_on(p) && pthread_cond_timedwait(&p->turn, &p->fleet->lock, &until) == 0)
        ;
}

/* Logs each cause once: a replica may be searched for days. Shards of another router are not
 * unsuitable: that router may end. */
static void note_failure(struct replica *p, const struct err *e, bool connected)
{
    const bool held = e->sys == EBUSY;
    const enum log_level level = held ? LOG_WARN : connected ? LOG_ERROR : LOG_DEBUG;
    if (strcmp(p->why.msg, e->msg) != 0)
        LOG(level, "replica not ready", LOGS("replica", p->target), LOGS("why", e->msg));
    p->why = *e;
    p->refused = connected && !held;
    pthread_cond_broadcast(&p->fleet->changed);
}

static void on_lost_for_good(void *arg, const char *why)
{
    struct replica *p = arg;
    LOG(LOG_WARN, "replica lost; reconnecting", LOGS("replica", p->target), LOGS("why", why));
    pthread_mutex_lock(&p->fleet->lock);
    p->up = false;
    p->over = true;
    pthread_cond_signal(&p->turn);
    pthread_cond_broadcast(&p->fleet->changed);
    pthread_mutex_unlock(&p->fleet->lock);
}

static struct infer *connect(struct replica *p, bool *connected, struct err *e)
{
    struct infer_config c = p->fleet->c.infer;
    c.shard_target = p->target;
    c.connect_timeout_ms = LOOK_MS;
    c.return_ms = DAY_MS;
    c.owner = &p->owner;
    c.connected = connected;
    c.events_rank = p->number;
    *connected = false;
    return infer_start(&c, e);
}

static int publish(struct replica *p, struct infer *i, struct err *e)
{
    struct fleet *f = p->fleet;
    prefixes_free(&p->prefixes);
    if ((!f->open && !settle(f, i)) || !prefixes_init(&p->prefixes, infer_stats(i).blocks_total))
        return err_nomem(e);
    p->infer = i;
    fleet_reset_computed(f);
    p->refused = p->silent = p->stale = false;
    p->why = (struct err)ERR_INIT;
    pthread_cond_broadcast(&f->changed);
    LOG(LOG_INFO, "Replica ready", LOGS("replica", p->target), LOGI("ready", fleet_ready(f)),
        LOGI("replicas", f->n));
    return 0;
}

/* With the lock, which may be released meanwhile: it serves from now on. -1: it is incompatible. */
static int open_replica(struct replica *p, struct infer *i, struct err *e)
{
    struct fleet *f = p->fleet;
    if (f->open && check_fit(f, p, i, e) != 0)
        return -1;
    if (!f->open || !f->uses.list)
        return publish(p, i, e);
    fleet_lock_adapters(f);
    int rc = fleet_adapt_replica(p, i, e);
    if (rc == 0)
        rc = publish(p, i, e);
    fleet_unlock_adapters(f);
    return rc;
}

/* With the lock, which is released meanwhile: shards that came back get the fleet's adapters. */
static void refresh(struct replica *p, struct infer *i)
{
    struct fleet *f = p->fleet;
    struct err e = ERR_INIT;
    fleet_lock_adapters(f);
    const bool same = fleet_adapt_replica(p, i, &e) == 0;
    fleet_unlock_adapters(f);
    if (same) {
        p->stale = false;
        fleet_send_waiting(f);
    } else if (p->up && !p->over) {
        note_failure(p, &e, true);
        if (p->n_waiting + p->n_running == 0)
            p->over = true;
        else
            pause_ms(p, AGAIN_MS);
    }
}

/* With the lock, which is released meanwhile. Returns when its scheduler cannot serve any more, or
 * it is removed. */
static void serve(struct replica *p, struct infer *i)
{
    struct fleet *f = p->fleet;
    fleet_send_waiting(f);
    infer_on_lost(i, on_lost_for_good, p);
    while (!p->over && goes_on(p))
        if (p->stale && p->up)
            refresh(p, i);
        else
            pthread_cond_wait(&p->turn, &f->lock);
    p->infer = NULL;
    while (p->users > 0)
        pthread_cond_wait(&p->turn, &f->lock);
}

static void live(struct replica *p)
{
    struct fleet *f = p->fleet;
    struct err e = ERR_INIT;
    bool connected;
    p->up = true; /* callbacks may clear it */
    p->over = false;
    pthread_mutex_unlock(&f->lock);
    struct infer *i = connect(p, &connected, &e);
    pthread_mutex_lock(&f->lock);
    if (i && open_replica(p, i, &e) == 0)
        serve(p, i);
    else
        note_failure(p, &e, connected);
    pthread_mutex_unlock(&f->lock);
    infer_stop(i);
    pthread_mutex_lock(&f->lock);
    if (p->why.kind != ERR_NONE)
        pause_ms(p, AGAIN_MS);
}

static void *run(void *arg)
{
    struct replica *p = arg;
    struct fleet *f = p->fleet;
    pthread_mutex_lock(&f->lock);
    while (goes_on(p))
        live(p);
    p->gone = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---------------------------------------------------------------- life */

static void replica_free(struct replica *p)
{
    prefixes_free(&p->prefixes);
    pthread_cond_destroy(&p->turn);
    free(p->target);
    free(p);
}

/* The smallest number that no replica has: their count may be the number of one that stayed when
 * another was removed, and then events of both would have the same rank. */
static uint32_t free_number(const struct fleet *f)
{
    uint64_t taken = 0;
    _Static_assert(REPLICAS_MAX <= 64, "a bit for each");
    for (uint32_t i = 0; i < f->n; i++)
        taken |= UINT64_C(1) << f->v[i]->number;
    assert(~taken); /* f->n < REPLICAS_MAX */
    return (uint32_t)__builtin_ctzll(~taken);
}

int replica_add(struct fleet *f, const char *target, struct err *e)
{
    struct replica *p = f->n < REPLICAS_MAX ? calloc(1, sizeof(*p)) : NULL;
    if (!p || !(p->target = strdup(target))) {
        free(p);
        return f->n < REPLICAS_MAX
                   ? err_nomem(e)
                   : err_set(e, ERR_VALIDATION, "more than %d replicas", REPLICAS_MAX);
    }
    p->fleet = f;
    p->wanted = true;
    p->number = free_number(f);
    p->role = REPLICA_BOTH;
    p->owner = (struct sched_owner){p, replica_lost, replica_back, replica_hand_over,
                                    replica_hand_over_texts};
    cond_init(&p->turn);
    if (pthread_create(&p->thread, NULL, run, p) != 0) {
        replica_free(p);
        return err_set(e, ERR_SYSTEM, "cannot start the thread of a replica");
    }
    f->v[f->n++] = p;
    return 0;
}

void replica_join(struct replica *p)
{
    pthread_join(p->thread, NULL);
    replica_free(p);
}
