/* miss.h - why a prompt's cached prefix ends where it does: for the access log.
 *
 * Hashes of the last KV_GHOSTS evicted blocks are kept. They distinguish a prefix that was evicted
 * from one that was never cached. Scheduler thread. */
#ifndef ROUTER_SCHEDULER_KV_MISS_H
#define ROUTER_SCHEDULER_KV_MISS_H
#include <stdint.h>

enum { KV_GHOSTS = 4096 };

enum kv_miss {
    KV_MISS_NONE,    /* as much as possible came from the cache */
    KV_MISS_OFF,     /* the request shares no blocks */
    KV_MISS_NEW,     /* no cached prompt continues like this one */
    KV_MISS_DIFFERS, /* a cached prompt differs from this token on */
    KV_MISS_EVICTED, /* the next block was cached, and was evicted */
    KV_MISS_STATE,   /* its blocks are cached, but no recurrent state or window at their end */
};

/* "evicted"; NULL for KV_MISS_NONE. */
const char *kv_miss_name(enum kv_miss m);
#endif
