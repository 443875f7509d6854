/* kv_impl.h - what kv_blocks.c and kv_state.c alone share. */
#ifndef ROUTER_SCHEDULER_KV_IMPL_H
#define ROUTER_SCHEDULER_KV_IMPL_H
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/kv_offload.h"
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
    bool local;     /* has no key: an adapter's */
    bool told;      /* the watcher was told of it */
    bool queued;    /* in `spill` */
    uint8_t stored; /* parts that lie below the cache (kv_offload.h) */
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
    /* kv_offload.c */
    uint8_t (*chains)[KV_CHAIN]; /* [n] keys of full indexed blocks; NULL: none are wanted */
    struct kv_watcher watcher;
    uint32_t *spill; /* [n] a ring of n_spill blocks that are to be stored; NULL: none are */
    uint32_t spill_head, n_spill;
    uint64_t n_spill_lost;
    uint32_t era; /* grows when the device forgets: older tables publish nothing */
    struct kv_stats st;
};

/* Salts have bit 63 set, so that none is an adapter's number alone. */
static inline uint64_t kv_space_of(const struct kv_key *key) { return key->salt + key->adapter; }

/* kv_blocks.c. Blocks that `tokens` take. */
uint32_t kv_blocks_of(const struct kv_blocks *kv, uint32_t tokens);
/* The indexed block behind `parent` with these keys; KV_NO_BLOCK: there is none. */
uint32_t kv_index_find(const struct kv_blocks *kv, uint32_t parent, uint64_t space,
                       const uint64_t *keys);
void kv_block_hold(struct kv_blocks *kv, uint32_t id);
void kv_block_let_go(struct kv_blocks *kv, uint32_t id);
uint32_t
kv_block_take(struct kv_blocks *kv); /* a free one, or the least recently used cached one */
/* Memory for the numbers of so many blocks. */
bool kv_table_room(const struct kv_blocks *kv, struct kv_table *t, uint32_t blocks);

/* kv_offload.c. With kv->chains: a full block got its content, and has it no more. */
void kv_chain_block(struct kv_blocks *kv, uint32_t id);
void kv_chain_drop(struct kv_blocks *kv, uint32_t id);
void kv_chain_drop_all(struct kv_blocks *kv); /* all of them; before each is dropped */
/* With kv->spill: it became cache. */
void kv_spill_note(struct kv_blocks *kv, uint32_t id);

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
/* Nothing of it is computed, and it goes on behind n tokens: it holds what is seen from there, and
 * nothing else. False: there is no room. */
bool kv_window_jump(struct kv_blocks *kv, struct kv_table *t, uint32_t n);
void kv_window_copied(struct kv_blocks *kv, struct kv_table *t);
void kv_window_release(struct kv_blocks *kv, struct kv_table *t);
void kv_window_check(const struct kv_blocks *kv);
#endif
