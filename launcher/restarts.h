/* restarts.h - how often the shards of a model were started again: --max-shard-restarts within an
 * hour. One struct for each group of shards; zero: never. */
#ifndef LAUNCHER_RESTARTS_H
#define LAUNCHER_RESTARTS_H
#include "launcher/plan.h"

struct restarts {
    uint32_t n;    /* since `first` */
    int64_t first; /* ms; at most an hour ago */
};

/* Are they started again at `now` (ms), under a router that waits for them? Does not count it. */
static inline bool restarts_left(struct restarts *r, const struct plan *p, int64_t now)
{
    enum { HOUR_MS = 3600000 };
    if (r->n == 0 || now - r->first > HOUR_MS)
        *r = (struct restarts){.first = now};
    return plan_restarts(p) && r->n < p->cfg->max_shard_restarts;
}
#endif
