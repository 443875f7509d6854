/* kv_miss.h - why a prompt's cached beginning ends where it does: for the access log.
 *
 * The content of full blocks that were evicted is remembered as hashes, the last KV_GHOSTS of them:
 * a prompt that would have gone on there is told from one that was never seen. Scheduler thread. */
#ifndef ROUTER_SCHEDULER_KV_MISS_H
#define ROUTER_SCHEDULER_KV_MISS_H
#include <stdint.h>

enum { KV_GHOSTS = 4096 };

enum kv_miss {
    KV_MISS_NONE,    /* all that may come from the cache did */
    KV_MISS_OFF,     /* the request shares no blocks */
    KV_MISS_NEW,     /* nothing in the cache goes on like it */
    KV_MISS_DIFFERS, /* what is in the cache differs from this token on */
    KV_MISS_EVICTED, /* it was there, and was evicted */
    KV_MISS_STATE,   /* its blocks are there, and no recurrent state or window behind them */
};

/* "evicted"; NULL for KV_MISS_NONE. */
const char *kv_miss_name(enum kv_miss m);
#endif
