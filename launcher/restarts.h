/* restarts.h - counts restarts of a group of shards: at most --max-shard-restarts per hour. Zero:
 * none so far. */
#ifndef LAUNCHER_RESTARTS_H
#define LAUNCHER_RESTARTS_H
#include "launcher/plan/plan.h"

struct restarts {
    uint32_t n;    /* since `first` */
    int64_t first; /* ms; at most an hour ago */
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
#endif
