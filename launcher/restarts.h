/* restarts.h - counts restarts of a group of shards, at most --max-shard-restarts per hour, and
 * spaces them. Zero: none so far. */
#ifndef LAUNCHER_RESTARTS_H
#define LAUNCHER_RESTARTS_H
#include "launcher/plan/plan.h"
#include <signal.h>
#include <sys/wait.h>

struct restarts {
    uint32_t n;        /* since `first` */
    int64_t first;     /* ms; at most an hour ago */
    uint32_t pause_ms; /* before the last one */
};

/* May the group be restarted at `now` (ms), under a router that waits for it? Does not count the
 * restart. */
static inline bool restarts_left(struct restarts *r, const struct plan *p, int64_t now)
{
    enum { HOUR_MS = 3600000 };
    if (r->n == 0 || now - r->first > HOUR_MS)
        *r = (struct restarts){.first = now};
    return plan_restarts(p) && r->n < p->cfg->max_shard_restarts;
}

/* Exponential back-off: the pause after one of `pause` ms; 0: the first one. */
static inline uint32_t restarts_pause(uint32_t pause, uint32_t first, uint32_t most)
{
    return !pause ? first : 2 * pause < most ? 2 * pause : most;
}

/* Counts a restart. Returns the pause before it, in ms: none after a loss, and an exponential
 * back-off after a load that failed by itself, because its files may be away for a moment (a
 * network file system, a volume that is replaced). `status`: of the child that ended; SIGKILL and
 * SIGTERM come from outside. */
static inline uint32_t restarts_count(struct restarts *r, bool loading, int status)
{
    enum { FIRST_PAUSE_MS = 2000, MOST_PAUSE_MS = 30000 };
    const int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const bool failed = loading && sig != SIGKILL && sig != SIGTERM;
    r->n++;
    return r->pause_ms = failed ? restarts_pause(r->pause_ms, FIRST_PAUSE_MS, MOST_PAUSE_MS) : 0;
}
#endif
