/* kv_impl.h - what kv_blocks.c and kv_state.c alone share. */
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
    uint32_t *bucket;              /* [n_buckets] heads, KV_NO_BLOCK when empty */
    uint64_t *keys;                /* [n][block_tokens]: what an indexed block holds */
    uint64_t *wanted;              /* [block_tokens]: the keys that are looked for, or published */
    struct kv_order order;         /* all indexed blocks */
    struct cells *cells;           /* NULL: no recurrent state */
    struct windows *windows;       /* NULL: there is no cache of windows */
    uint32_t window, window_chunk; /* tokens: see kv_windowed() */
    bool window_short;             /* a request did not fit for want of blocks of windows */
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

/* kv_windows.c; all of it only with kv->windows.
 *
 * An indexed block has all its tokens in the cache of windows as well. */
bool kv_window_there(const struct kv_blocks *kv, uint32_t id);
/* May a prompt go on behind `full` blocks, the last `run` of which are there, and `n` tokens more?
 */
bool kv_window_whole(const struct kv_blocks *kv, uint32_t run, uint32_t full, uint32_t n);
bool kv_window_could_fit(const struct kv_blocks *kv, uint32_t n); /* as kv_could_fit() */
struct window_range {                                             /* blocks of a sequence */
    uint32_t from, to;
};
struct window_wish {
    uint32_t n_cached; /* tokens behind which it goes on */
    uint32_t known;    /* its leading blocks that are in ids */
    uint32_t need;     /* blocks that it gets in all */
    uint32_t copied;   /* of which the beginning is copied; 0: none */
    const struct kv_media *media;
};
/* Would it get a window? What its hit revives is no room. */
bool kv_window_room_for(const struct kv_blocks *kv, const struct kv_table *t,
                        const struct window_wish *x);
/* The window of a table that has its blocks, n_cached and copy_from; and more of its n_known tokens
 * for the first step, as far as there is room. */
void kv_window_admit(struct kv_blocks *kv, struct kv_table *t, uint32_t n_known);
/* n of its tokens are computed. */
void kv_window_note(struct kv_blocks *kv, const struct kv_table *t, uint32_t n);
/* Its block i gives way to `same`: on its way out, the last thing before kv_window_release(). */
void kv_window_replace(struct kv_blocks *kv, struct kv_table *t, uint32_t i, uint32_t same);
void kv_window_copied(struct kv_blocks *kv, struct kv_table *t);
void kv_window_release(struct kv_blocks *kv, struct kv_table *t);
void kv_window_check(const struct kv_blocks *kv);
#endif
