/* kv_impl.h - what kv_blocks.c and kv_state.c share, and nobody else. */
#ifndef ROUTER_SCHEDULER_KV_IMPL_H
#define ROUTER_SCHEDULER_KV_IMPL_H
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/kv_order.h"

struct block {
    uint64_t warm;       /* when it was put on the LRU list; larger is warmer */
    uint32_t ref;        /* tables that hold it */
    uint32_t prev, next; /* LRU list when cached, free list (next only) when free */
    uint32_t chain;      /* next block in the same hash bucket */
    uint32_t parent;     /* KV_NO_BLOCK: first block of a prompt */
    uint32_t bucket;
    uint64_t space;
    uint32_t fill; /* tokens that others may find in it: block_tokens, or less in a last block */
    bool indexed;
};

struct kv_blocks {
    struct block *b;
    uint32_t *bucket;      /* [n_buckets] heads, KV_NO_BLOCK when empty */
    uint64_t *keys;        /* [n][block_tokens]: what an indexed block holds */
    uint64_t *wanted;      /* [block_tokens]: the keys that are looked for, or published */
    struct kv_order order; /* all indexed blocks */
    struct cells *cells;   /* NULL: no recurrent state */
    bool snapshots;
    uint32_t step_tokens; /* see kv_step_tokens() */
    bool copies;          /* the shards copy blocks: beginnings of blocks are hits, too */
    uint32_t n, n_buckets, block_tokens;
    uint32_t keep_free; /* see kv_keep_free() */
    uint32_t free_head;
    uint32_t lru_head, lru_tail; /* head = coldest */
    uint64_t seed, clock;
    uint32_t era; /* grows when the device forgets: older tables publish nothing */
    struct kv_stats st;
};
#endif
