#include "common/thread/watchdog.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/log/stacks.h"
#include "common/thread/cond.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

/* Where no thread is busy, the next look comes IDLE_TIMES later than it would. */
enum { LOOK_MS = 1000, IDLE_TIMES = 4 };

struct watch {
    const char *name;
    const _Atomic int64_t *busy_ns;
    int64_t reported; /* timestamp of the last reported stall */
    /* for watchdog_end_stuck(): */
    uint32_t end_ms; /* 0: never */
    void (*end)(void *arg);
    void *arg;
    int64_t last;             /* timestamp at the last check */
    int64_t still_ms, cpu_ms; /* counted time it has been unchanged; CPU time at that start */
    int64_t longest_ms;       /* longest such time so far */
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
    int64_t looked; /* clock_ns() of the last check */
};

static bool look(struct watch *v, int64_t now, uint32_t limit_ms)
{
    int64_t since = atomic_load_explicit(v->busy_ns, memory_order_relaxed);
    if (!limit_ms || !since || since == v->reported || now - since < (int64_t)limit_ms * 1000000)
        return false;
    v->reported = since;
    LOG(LOG_ERROR, "No progress", LOGS("of", v->name),
        LOGD("seconds", (double)(now - since) / 1e9));
    return true;
}

static int64_t cpu_ms(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* `turn_ms`: counted time since the last check. */
static bool stuck(struct watch *v, int64_t turn_ms)
{
    const int64_t since = atomic_load_explicit(v->busy_ns, memory_order_relaxed);
    if (!v->end_ms || !since || since != v->last) {
        v->longest_ms = v->still_ms > v->longest_ms ? v->still_ms : v->longest_ms;
        v->still_ms = 0;
        v->last = since;
        v->cpu_ms = v->end_ms ? cpu_ms() : 0;
        return false;
    }
    v->still_ms += turn_ms;
    int64_t limit = WATCHDOG_TIMES * v->longest_ms;
    limit = limit > v->end_ms ? limit : v->end_ms;
    if (v->still_ms < limit)
        return false;
    const bool computing = cpu_ms() - v->cpu_ms > v->still_ms / 20;
    return !computing || v->still_ms >= WATCHDOG_BUSY_TIMES * limit;
}

/* A watched thread whose process must end; NULL: none. */
static struct watch *find_stuck(struct watchdog *w, int64_t nap_ms)
{
    const int64_t now = clock_ns(), passed = (now - w->looked) / 1000000;
    struct watch *found = NULL;
    for (uint32_t i = 0; i < w->n; i++)
        if (stuck(&w->watch[i], passed < 2 * nap_ms ? passed : nap_ms))
            found = &w->watch[i];
    w->looked = now;
    return found;
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

static void end_it(struct watchdog *w, const struct watch *v)
{
    LOG(LOG_ERROR, "stuck: this process cannot serve any more", LOGS("thread", v->name),
        LOGD("seconds", (double)v->still_ms / 1e3));
    report(w);
    v->end(v->arg);
}

/* Interval until the next check. A stall that begins in an idle interval is found that much later.
 */
static int64_t nap_of(const struct watchdog *w)
{
    int64_t nap = LOOK_MS;
    bool idle = true;
    if (w->limit_ms && w->limit_ms / 4 < nap)
        nap = w->limit_ms / 4;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->watch[i].end_ms && w->watch[i].end_ms / 4 < nap)
            nap = w->watch[i].end_ms / 4;
        idle = idle && !atomic_load_explicit(w->watch[i].busy_ns, memory_order_relaxed);
    }
    return idle ? IDLE_TIMES * nap : nap;
}

static void *run(void *arg)
{
    struct watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    w->looked = clock_ns();
    while (!w->ending) {
        const int64_t nap = nap_of(w);
        const struct timespec until = clock_deadline(nap + 1);
        pthread_cond_timedwait(&w->end, &w->lock, &until);
        if (w->ending)
            break;
        struct watch *found = find_stuck(w, nap);
        const struct watch over = found ? *found : (struct watch){0};
        const bool stalled = look_at_all(w);
        if (found)
            found->end_ms = 0; /* once */
        if (!found && !stalled)
            continue;
        pthread_mutex_unlock(&w->lock);
        if (over.end)
            end_it(w, &over);
        else
            report(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct watchdog *watchdog_new(uint32_t limit_ms, void (*state)(void *arg), void *arg, struct err *e)
{
    struct watchdog *w = calloc(1, sizeof(*w));
    if (!w) {
        err_nomem(e);
        return NULL;
    }
    w->limit_ms = limit_ms;
    w->state = state;
    w->arg = arg;
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->end);
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

void watchdog_end_stuck(struct watchdog *w, const _Atomic int64_t *busy_ns, uint32_t limit_ms,
                        void (*end)(void *arg), void *arg)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->watch[i].busy_ns == busy_ns) {
            w->watch[i].end_ms = limit_ms;
            w->watch[i].end = end;
            w->watch[i].arg = arg;
        }
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

/* Blocks all signals in the watchdog thread. */
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
