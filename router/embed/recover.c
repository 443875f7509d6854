/* Health checks, and lost shards: a final loss, or until others are connected
 * (router/shards/link.h). The call in flight is sent again, since shards keep no state of a
 * text. */
#include "common/clock.h"
#include "common/log/log.h"
#include "router/embed/state.h"
#include "router/metrics.h"
#include "router/shards/restore_adapters.h"
#include <stdio.h>
#include <string.h>

enum { HEALTH_TIMEOUT_MS = 5000 };

void embedder_answered(struct embedder *s) { atomic_store(&s->o.status->answered_ns, clock_ns()); }

/* ---------------------------------------------------------------- a loss */

static void end(struct embedder *s, const char *why)
{
    if (s->lost)
        return;
    s->lost = true;
    LOG(LOG_ERROR, "shard lost", LOGS("error", why));
    embedder_fail(s, why);
    if (s->on_lost && !s->stopping)
        s->on_lost(s->on_lost_arg, why);
}

void embedder_broken(struct embedder *s, const char *why)
{
    char text[400];
    if (s->lost || s->link_state != LINK_CONNECTED)
        return;
    snprintf(text, sizeof(text), "%s", why);
    s->why_lost[0] = 0;
    if (!s->link || s->draining || s->stopping) {
        end(s, text);
        return;
    }
    LOG(LOG_WARN, "shards lost; waiting for them to return", LOGS("error", text),
        LOGI("texts", s->n_slots));
    s->link_state = LINK_BROKEN;
    s->lost_ns = clock_ns();
    fan_cancel(&s->health);
    if (s->o.owner)
        s->o.owner->lost(s->o.owner->arg);
}

/* The call in flight ends first: it fails, or has succeeded in time. */
static void suspect(struct embedder *s, const char *why)
{
    if (s->link_state != LINK_CONNECTED || s->lost || s->stopping)
        return;
    if (!s->call.busy) {
        embedder_broken(s, why);
        return;
    }
    snprintf(s->why_lost, sizeof(s->why_lost), "%s", why);
    fan_cancel(&s->call);
}

static void on_health(struct fan *f)
{
    struct embedder *s = f->arg;
    struct err e = ERR_INIT;
    if (s->link_state != LINK_CONNECTED) {
        /* the answer is of lost shards */
    } else if (fan_error(f, &e) == 0) {
        embedder_answered(s);
    } else if (!s->stopping) {
        LOG(LOG_WARN, "health check failed", LOGS("error", e.msg));
        if (fan_lost_rank(f) >= 0)
            suspect(s, e.msg);
    }
    embedder_turn(s);
}

void embedder_probe(struct embedder *s)
{
    Generate__V3__HealthRequest ask = GENERATE__V3__HEALTH_REQUEST__INIT;
    if (!s->health.busy && !s->lost && !s->stopping && s->link_state == LINK_CONNECTED)
        fan_call(&s->health, SHARD_HEALTH, &ask.base, HEALTH_TIMEOUT_MS, false);
    embedder_turn(s);
}

static void on_break(void *arg, const char *why)
{
    struct embedder *s = arg;
    LOG(LOG_WARN, "the connection to a shard broke", LOGS("error", why));
    suspect(s, why);
    embedder_turn(s);
}

void embedder_watch(struct embedder *s)
{
    s->watched = true;
    shards_watch(s->o.shards, on_break, s);
}

/* ---------------------------------------------------------------- releasing shards */

static void on_gone(struct embedder *s) { shards_link_end(s->link, s->gone, s->gone_arg); }

static void on_unwatched(void *arg)
{
    struct embedder *s = arg;
    struct shards *old = s->o.shards;
    s->watched = false;
    if (s->stopping) {
        on_gone(s);
        return;
    }
    s->o.shards = NULL;
    s->link_state = LINK_DISCONNECTED;
    fan_free(&s->call);
    fan_free(&s->health);
    shards_link_lost(s->link, old);
    embedder_turn(s);
}

void embedder_recover_turn(struct embedder *s)
{
    const bool idle = !s->call.busy && !s->health.busy;
    if (s->link_state == LINK_BROKEN && idle && !s->stopping) {
        s->link_state = LINK_CLOSING;
        shards_unwatch(s->o.shards, on_unwatched, s);
    } else if (s->stopping && idle && !s->ending && s->link_state != LINK_CLOSING) {
        s->ending = true;
        if (s->o.shards && s->watched)
            shards_unwatch(s->o.shards, on_unwatched, s);
        else
            on_gone(s);
    }
}

/* ---------------------------------------------------------------- reconnecting */

/* Link thread. */
static const char *unfit(void *arg, const struct shard_model *m)
{
    return shard_model_unfit(&((const struct embedder *)arg)->o.model, m);
}

/* Link thread. Shards that started again have read the adapters' files again. */
static int prepare(void *arg, struct shards *of, const struct shard_model *m, struct err *e)
{
    struct embedder *s = arg;
    struct served_adapters *list = adapter_shelf_hold(&s->shelf);
    served_adapters_release(s->restored);
    s->restored = NULL;
    int rc = list ? restore_adapters(list, m->adapters, true, of, &s->restored, e) : 0;
    served_adapters_release(list);
    return rc;
}

/* Requests of the lost call may name an adapter that is not there any more. */
static void take_adapters(struct embedder *s)
{
    if (s->restored)
        adapter_shelf_put(&s->shelf, s->restored);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct embed_job *j = s->slots[i].job;
        struct err e = ERR_INIT;
        if (j->err.kind == ERR_NONE && !embedder_has_adapter(s, j, &e))
            j->err = e;
    }
    embedder_drop_failed(s);
}

static void on_found(void *arg, struct shards *of, const struct shard_model *m)
{
    struct embedder *s = arg;
    struct err e = ERR_INIT;
    void (*done)(struct fan *) = s->call.done;
    (void)m;
    if (s->stopping || s->lost) {
        shards_link_lost(s->link, of);
        return;
    }
    if (fan_init(&s->call, of, done, s, &e) || fan_init(&s->health, of, on_health, s, &e)) {
        fan_free(&s->call);
        shards_link_lost(s->link, of);
        end(s, "out of memory");
        embedder_turn(s);
        return;
    }
    s->o.shards = of;
    s->link_state = LINK_CONNECTED;
    take_adapters(s);
    embedder_answered(s);
    embedder_watch(s);
    if (s->o.metrics)
        metrics_add(s->o.metrics, M_SHARD_RETURNS, NULL, 1);
    LOG(LOG_INFO, "shards are back", LOGD("seconds", (double)(clock_ns() - s->lost_ns) * 1e-9));
    embedder_turn(s);
    if (s->o.owner)
        s->o.owner->back(s->o.owner->arg);
}

static void on_missed(void *arg, const char *why)
{
    struct embedder *s = arg;
    end(s, why);
    embedder_turn(s);
}

int embedder_recover_init(struct embedder *s, struct err *e)
{
    const struct embedder_options *o = &s->o;
    if (fan_init(&s->health, s->call.s, on_health, s, e))
        return -1;
    if (!o->return_ms)
        return 0;
    struct shards_link_options l = {.loop = o->loop,
                                    .name = "the model",
                                    .target = o->target,
                                    .ask = o->model,
                                    .unfit = unfit,
                                    .prepare = prepare,
                                    .found = on_found,
                                    .missed = on_missed,
                                    .arg = s,
                                    .patience_ms = o->return_ms};
    return shards_link_open(&s->link, &l, false, e);
}

void embedder_on_lost(struct embedder *s, void (*fn)(void *arg, const char *why), void *arg)
{
    s->on_lost = fn;
    s->on_lost_arg = arg;
    if (s->lost)
        fn(arg, "a shard was lost");
}

void embedder_abandon(struct embedder *s, const char *why)
{
    if (s->link && !s->draining)
        suspect(s, why);
    embedder_turn(s);
}

void embedder_drain(struct embedder *s, const char *why)
{
    char text[200];
    s->draining = true;
    if (s->link_state == LINK_CONNECTED)
        return;
    snprintf(text, sizeof(text), "the shards were lost, and %s", why);
    end(s, text);
    embedder_turn(s);
}

void embedder_halt(struct embedder *s) { shards_link_halt(s->link); }
