#include "common/watchdog.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/stacks.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { LOOK_MS = 1000 };

struct watch {
    const char *name;
    const _Atomic int64_t *busy_ns;
    int64_t told; /* the stamp of the last stall that was reported */
};

struct watchdog {
    struct watch watch[WATCHDOG_MOST];
    uint32_t n, limit_ms;
    void (*state)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool running, ending;
};

static bool look(struct watch *v, int64_t now, uint32_t limit_ms)
{
    int64_t since = atomic_load_explicit(v->busy_ns, memory_order_relaxed);
    if (!since || since == v->told || now - since < (int64_t)limit_ms * 1000000)
        return false;
    v->told = since;
    LOG(LOG_ERROR, "No progress", LOGS("of", v->name),
        LOGD("seconds", (double)(now - since) / 1e9));
    return true;
}

static bool look_at_all(struct watchdog *w)
{
    bool stalled = false;
    for (uint32_t i = 0; i < w->n; i++)
        stalled |= look(&w->watch[i], clock_ns(), w->limit_ms);
    return stalled;
}

static void report(struct watchdog *w)
{
    if (w->state)
        w->state(w->arg);
    stacks_log();
}

static void *run(void *arg)
{
    struct watchdog *w = arg;
    int64_t nap = w->limit_ms / 4 < LOOK_MS ? w->limit_ms / 4 : LOOK_MS;
    pthread_mutex_lock(&w->lock);
    while (!w->ending) {
        int64_t at = clock_ns() + nap * 1000000 + 1000000;
        struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        pthread_cond_timedwait(&w->end, &w->lock, &until);
        if (w->ending || !look_at_all(w))
            continue;
        pthread_mutex_unlock(&w->lock);
        report(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct watchdog *watchdog_new(uint32_t limit_ms, void (*state)(void *arg), void *arg, struct err *e)
{
    struct watchdog *w = calloc(1, sizeof(*w));
    pthread_condattr_t clock;
    if (!w) {
        err_nomem(e);
        return NULL;
    }
    w->limit_ms = limit_ms;
    w->state = state;
    w->arg = arg;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->end, &clock);
    pthread_condattr_destroy(&clock);
    return w;
}

void watchdog_add(struct watchdog *w, const char *name, const _Atomic int64_t *busy_ns)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    if (w->n < WATCHDOG_MOST)
        w->watch[w->n++] = (struct watch){.name = name, .busy_ns = busy_ns};
    pthread_mutex_unlock(&w->lock);
}

void watchdog_remove(struct watchdog *w, const _Atomic int64_t *busy_ns)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = w->n; i-- > 0;)
        if (w->watch[i].busy_ns == busy_ns)
            w->watch[i] = w->watch[--w->n];
    pthread_mutex_unlock(&w->lock);
}

/* Signals are for other threads. */
int watchdog_start(struct watchdog *w, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->running = pthread_create(&w->thread, NULL, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->running ? 0 : err_set(e, ERR_SYSTEM, "cannot start the watchdog's thread");
}

void watchdog_stop(struct watchdog *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_signal(&w->end);
    pthread_mutex_unlock(&w->lock);
    if (w->running)
        pthread_join(w->thread, NULL);
    w->running = false;
}

void watchdog_free(struct watchdog *w)
{
    if (!w)
        return;
    watchdog_stop(w);
    pthread_cond_destroy(&w->end);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
