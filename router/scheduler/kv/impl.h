/* impl.h - private to the kv_*.c files: the layout of kv_blocks, and functions they share. */
#ifndef ROUTER_SCHEDULER_KV_IMPL_H
#define ROUTER_SCHEDULER_KV_IMPL_H
#include "router/scheduler/kv/blocks.h"
#include "router/scheduler/kv/offload.h"
#include "router/scheduler/kv/order.h"

struct block {
    uint64_t warm;       /* clock value when it entered the LRU list; larger is warmer */
    uint32_t ref;        /* number of tables that hold it */
    uint32_t prev, next; /* LRU list if cached, free list (next only) if free */
    uint32_t chain;      /* next block in the hash bucket */
    uint32_t parent;     /* KV_NO_BLOCK: first block of a prompt */
    uint32_t bucket;
    uint64_t space;
    uint32_t fill; /* tokens that others can hit: block_tokens, or fewer in a last block */
    bool indexed;
    bool local;     /* an adapter's: it has no process-independent key */
    bool reported;  /* the watcher was notified of it */
    bool queued;    /* it is in `spill` */
    uint8_t stored; /* parts stored in a lower tier (offload.h) */
};

struct kv_blocks {
    struct block *b;
    uint32_t *bucket;              /* [n_buckets] first block, KV_NO_BLOCK if empty */
    uint64_t *keys;                /* [n][block_tokens] keys of the tokens of an indexed block */
    uint64_t *wanted;              /* [block_tokens] scratch: keys to look up or publish */
    struct kv_order order;         /* all indexed blocks */
    struct cells *cells;           /* NULL: no recurrent state */
    struct windows *windows;       /* NULL: no window cache */
    uint32_t window, window_chunk; /* tokens; see kv_windowed() */
    bool window_short;             /* an admission failed for lack of window blocks */
    bool snapshots;
    uint32_t step_tokens; /* see kv_step_tokens() */
    bool copies;          /* the shards copy blocks: partial blocks are hits too */
    uint32_t n, n_buckets, block_tokens;
    uint32_t keep_free; /* see kv_keep_free() */
    uint32_t free_head;
    uint32_t lru_head, lru_tail; /* head: coldest */
    uint64_t seed, clock;
    uint32_t ghosts[KV_GHOSTS]; /* miss.c */
    /* offload.c */
    /* [n] chained keys of full indexed blocks; NULL: not computed */
    uint8_t (*chains)[KV_CHAIN];
    struct kv_watcher watcher;
    /* [n] ring of n_spill blocks to store; NULL: no offloading */
    uint32_t *spill;
    uint32_t spill_head, n_spill;
    uint64_t n_spill_lost;
    uint32_t era; /* grows when the device loses its memory: tables of older eras publish nothing */
    struct kv_stats st;
};

/* Salts have bit 63 set, so no salt equals an adapter number. */
static inline uint64_t kv_space_of(const struct kv_key *key) { return key->salt + key->adapter; }

/* blocks.c. Blocks needed for `tokens` tokens. */
uint32_t kv_blocks_of(const struct kv_blocks *kv, uint32_t tokens);
/* The indexed child of `parent` with these keys. KV_NO_BLOCK: none. */
uint32_t kv_index_find(const struct kv_blocks *kv, uint32_t parent, uint64_t space,
                       const uint64_t *keys);
/* Of a full block with these keys behind `parent`. */
uint64_t kv_hash(const struct kv_blocks *kv, uint32_t parent, uint64_t space, const uint64_t *keys);
void kv_block_hold(struct kv_blocks *kv, uint32_t id);
void kv_block_release(struct kv_blocks *kv, uint32_t id);
/* a free block, or the evicted least recently used one */
uint32_t kv_block_take(struct kv_blocks *kv);
/* Grows ids and windows to `blocks` entries. False: out of memory. */
bool kv_table_room(const struct kv_blocks *kv, struct kv_table *t, uint32_t blocks);

/* miss.c. Block `id` is about to be evicted. */
void kv_miss_evict(struct kv_blocks *kv, uint32_t id);
/* Why the cached prefix of a prompt ends behind its `full` leading blocks (the last is `parent`),
 * although `most` of its tokens could be cached. *at: the first token that is not. */
enum kv_miss kv_miss_find(const struct kv_blocks *kv, const struct kv_key *key, uint32_t parent,
                          uint32_t full, uint32_t most, uint32_t *at);

/* offload.c, with kv->chains: a full block was indexed; it is no longer indexed. */
void kv_chain_block(struct kv_blocks *kv, uint32_t id);
void kv_chain_drop(struct kv_blocks *kv, uint32_t id);
/* as kv_chain_drop() for all blocks, before they are dropped */
void kv_chain_drop_all(struct kv_blocks *kv);
/* With kv->spill: the block became cache. */
void kv_spill_note(struct kv_blocks *kv, uint32_t id);

/* windows.c; only with kv->windows.
 *
 * True if all tokens of an indexed block are in the window cache as well. */
bool kv_window_there(const struct kv_blocks *kv, uint32_t id);
/* May a prompt resume after `full` blocks and `n` tokens more, if the last `run` of the blocks
 * have their windows? */
bool kv_window_whole(const struct kv_blocks *kv, uint32_t run, uint32_t full, uint32_t n);
bool kv_window_could_fit(const struct kv_blocks *kv, uint32_t n); /* as kv_could_fit() */
struct window_range {                                             /* block indices of a sequence */
    uint32_t from, to;
};
struct window_need {
    uint32_t n_cached; /* tokens after which it resumes */
    uint32_t known;    /* its leading blocks that are in ids */
    uint32_t need;     /* blocks it needs in all */
    uint32_t copied;   /* block whose beginning is copied; 0: none */
    const struct kv_media *media;
};
/* Are enough window blocks available? Cached ones that its own hit revives do not count as
 * available. */
bool kv_window_room_for(const struct kv_blocks *kv, const struct kv_table *t,
                        const struct window_need *x);
/* Allocates the window of a table that has its blocks, n_cached and copy_from set. Also allocates,
 * as far as available, for more of its n_known tokens. */
void kv_window_admit(struct kv_blocks *kv, struct kv_table *t, uint32_t n_known);
/* n of its tokens are computed. */
void kv_window_note(struct kv_blocks *kv, const struct kv_table *t, uint32_t n);
/* Replaces its block i by the equal block `same`. Only while it is released, right before
 * kv_window_release(). */
void kv_window_replace(struct kv_blocks *kv, struct kv_table *t, uint32_t i, uint32_t same);
/* Nothing of it is computed and it resumes after n tokens: it holds exactly the window of that
 * position. False: not enough window blocks. */
bool kv_window_jump(struct kv_blocks *kv, struct kv_table *t, uint32_t n);
void kv_window_copied(struct kv_blocks *kv, struct kv_table *t);
void kv_window_release(struct kv_blocks *kv, struct kv_table *t);
void kv_window_check(const struct kv_blocks *kv);
#endif
