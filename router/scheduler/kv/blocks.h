/* blocks.h - block accounting of the paged KV cache, with prefix sharing. Paging follows
 * PagedAttention (arXiv 2309.06180), the prefix tree follows RadixAttention (arXiv 2312.07104).
 *
 * Pure accounting on the host: no device memory, no clock, no lock, no log. The scheduler thread
 * owns the one instance. A block holds `block_tokens` positions of KV; its id is the shards' block
 * id. Block 0 is never handed out: padding rows write there.
 *
 * A block is in exactly one state:
 *   free      ref == 0, not indexed
 *   cached    ref == 0, indexed, on the LRU list
 *   in use    ref >= 1; indexed up to the tokens whose KV was computed
 *
 * The index is a prefix tree over blocks. A block is found under its parent block by the keys of
 * its own tokens (media.h); root blocks are found under their space, an adapter and a salt. A
 * hash selects candidates, and the keys and the parent id are compared, so a hash collision never
 * shares KV. The LRU evicts the coldest block first, and a parent is always warmer than its
 * children.
 *
 * Full blocks are shared. If only the beginning of a block matches, the shards copy it before the
 * step (kv_table.copy_from), so the new owner can write to it. Such a block is partly filled,
 * continues differently, or holds the last prompt token. A partly filled block that is not in use
 * and matches completely is taken over without a copy. No indexed block holds a prefix of another
 * one's content.
 *
 * A model with recurrent state also has cells (cells.h); each sequence needs two. A sequence can
 * resume after a prefix only where a snapshot holds the state. So a hit ends at the deepest block
 * with a snapshot, and partial blocks are never hits. Full blocks after that point are still
 * shared: the shards recompute their tokens for the state, and write identical bits.
 *
 * Layers with sliding-window attention may have a separate cache (windows.h). A sequence holds
 * window blocks only for tokens its next step reads or writes. It can resume after a prefix only
 * where the last window is cached. So a hit ends at the deepest such block; full blocks after it
 * are shared as above.
 *
 * Reserving and committing are separate. kv_admit() only reserves. Others can hit a block after
 * kv_commit() or kv_release() reports its tokens as computed. A prefill that failed, was cut or
 * never ran leaves nothing in the index. */
#ifndef ROUTER_SCHEDULER_KV_BLOCKS_H
#define ROUTER_SCHEDULER_KV_BLOCKS_H
#include "router/scheduler/cells.h"
#include "router/scheduler/kv/media.h"
#include "router/scheduler/kv/miss.h"
#include "router/scheduler/windows.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_blocks; /* opaque; defined in impl.h */

/* Identifies the KV of a prompt. Equal keys share blocks as far as their tokens and images are
 * equal. */
struct kv_key {
    const uint32_t *tokens;
    uint32_t n;
    uint32_t adapter; /* 0: base model */
    uint32_t n_fresh; /* tokens at the end to compute even if cached; 0: one */
    /* only requests with equal salts share blocks; 0: none, otherwise bit 63 is set */
    uint64_t salt;
    /* images among the tokens; must stay valid until kv_release() */
    struct kv_media media;
};

/* The block table of one sequence: plain data, embedded in its owner, zero when empty. */
struct kv_table {
    uint32_t *ids;
    uint32_t len, cap; /* blocks */
    /* tokens whose KV was cached at admission (including the copy); at most prompt - 1 */
    uint32_t n_cached;
    /* why there are no more, and the first token of the prompt that was not cached */
    enum kv_miss miss;
    uint32_t miss_at;
    /* 0: none; otherwise copy this block to ids[n_cached / block_tokens] first. Held until
     * kv_copied() */
    uint32_t copy_from;
    uint32_t n_sealed; /* leading blocks that are full and indexed */
    uint64_t space;    /* adapter and salt; see kv_key */
    /* kv_blocks.era at admission; a table of an older era publishes nothing */
    uint32_t era;
    struct kv_media media; /* the key's */
    bool shares;           /* takes part in prefix sharing */
    bool local;            /* of an adapter, whose number is local to this process */

    /* models with recurrent state; otherwise 0 */
    uint32_t cells[CELLS_EACH]; /* its own, if `stateful` */
    /* 1 + the snapshot of the state after n_cached tokens, held until kv_copied(); 0: none */
    uint32_t state_from;
    /* tokens of full blocks that were indexed at admission; also with windows */
    uint32_t n_matched;
    uint32_t n_kept;   /* the last snapshot was taken, or found, after this many tokens */
    uint32_t n_rolled; /* position of its rolling snapshot in tokens; 0: none */
    bool stateful;

    /* with a window cache; otherwise 0 */
    uint32_t *windows; /* [cap] window blocks of blocks [windows_from, windows_to), held by it */
    uint32_t windows_from, windows_to;
    uint32_t window_copy; /* the window block of copy_from */
};

/* `n_blocks` includes block 0. `seed` keys the hash, so that clients cannot construct collisions.
 * NULL: out of memory. */
struct kv_blocks *kv_new(uint32_t n_blocks, uint32_t block_tokens, uint64_t seed);
void kv_free(struct kv_blocks *kv);
/* Declares whether the shards can copy blocks. Off by default: only full blocks are hits. Call
 * before any use. */
void kv_copying(struct kv_blocks *kv, bool on);
/* Declares recurrent state with `n_cells` cells. With `snapshots` false none are taken. Excludes
 * kv_copying(). Call before any use. False: out of memory. */
bool kv_stateful(struct kv_blocks *kv, uint32_t n_cells, bool snapshots);
struct cells *kv_cells(const struct kv_blocks *kv); /* NULL: no recurrent state */
/* Declares layers that attend to `window` tokens, with a cache of n_windows blocks. A step computes
 * at most `chunk` tokens of a prompt. Call before any use. False: out of memory. */
bool kv_windowed(struct kv_blocks *kv, uint32_t n_windows, uint32_t window, uint32_t chunk);
struct windows *kv_windows(const struct kv_blocks *kv); /* NULL: no window cache */
/* With a window cache: allocates window blocks for the first `n` tokens while more than `spare` are
 * left. Its KV blocks must exist. False: not all were allocated; those allocated stay. */
bool kv_window_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n, uint32_t spare);
/* With a window cache: `n` tokens are computed. Window blocks that no later token attends to are
 * released. */
void kv_window_pass(struct kv_blocks *kv, struct kv_table *t, uint32_t n);

/* Reserves blocks for `n_reserve` tokens (and two cells), of which the first key->n are known. It
 * shares every cached full block and the beginning of one more. With `share` false the cache is
 * neither read nor filled. False: `t` holds no block and nothing was evicted. */
bool kv_admit(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool share,
              uint32_t n_reserve);

/* The shards have made the copies that `t` asked for. */
void kv_copied(struct kv_blocks *kv, struct kv_table *t);

/* From now on kv_admit() leaves `n` free or cached blocks for running sequences to grow into. */
void kv_keep_free(struct kv_blocks *kv, uint32_t n);

/* Grows `t` to `n` tokens in all. False: `t` is unchanged and the caller must preempt. */
bool kv_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n);

/* Leading blocks that other tables hold too: releasing `t` does not free them. */
uint32_t kv_shared(const struct kv_blocks *kv, const struct kv_table *t);

/* The KV of tokens[0..n) is computed: others can hit it at once. Idempotent and incremental. A
 * block whose content another sequence published first stays private until kv_release(). */
void kv_commit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n);

/* Reserves a cell for a snapshot of `t` after tokens[0..n), all computed, and commits them. The
 * caller makes the shards save the state before the next step, then calls cells_saved() or
 * cells_unsaved(). NO_CELL: no cell is available, an equal snapshot or equal blocks of another
 * sequence exist, or n is not a multiple of the block size. `rolls`: replaces its previous rolling
 * snapshot. */
uint32_t kv_snapshot(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n,
                     bool rolls);

/* Where a prompt of `n` tokens, computed up to `from`, stops next: where its window blocks end, or
 * where a snapshot is useful. Returns the smallest such position after `from`, or n.
 *
 * Snapshot stops are every few thousand tokens, where its blocks stop being indexed, and at the end
 * of its last full block. A stop costs one more step, so it must be far enough after the last
 * snapshot: SNAPSHOT_GAIN blocks, and as many tokens as take as long as one step where other
 * prompts diverged, or as four steps where none did yet. One block suffices if others wait for the
 * same prompt (`awaited`). A stop is never inside an image that must stay whole. */
enum { SNAPSHOT_GAIN = 4 };
/* prompt tokens that take as long as one step; initially 0 */
void kv_step_tokens(struct kv_blocks *kv, uint32_t n);
uint32_t kv_stop(const struct kv_blocks *kv, const struct kv_table *t, uint32_t n, uint32_t from,
                 bool awaited);

/* Commits tokens[0..n) (n may be 0), then releases everything. Indexed blocks stay cached until
 * evicted. Call only when no step on the shards writes them any more. */
void kv_release(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n);

/* Reverts an unused kv_admit(): as kv_release() without tokens, but does not count as a release in
 * kv_stats. */
void kv_undo(struct kv_blocks *kv, struct kv_table *t);

/* The device lost its memory: nothing is cached any more. Tables in use stay valid. */
void kv_forget(struct kv_blocks *kv);

/* Could `n` tokens fit into an empty cache? */
bool kv_could_fit(const struct kv_blocks *kv, uint32_t n);
/* Could images that stay whole fit into the window cache? */
bool kv_pictures_could_fit(const struct kv_blocks *kv, const struct kv_media *m);
/* Cheaper than kv_admit(). False: even a full prefix hit would not be enough now. */
bool kv_may_fit(const struct kv_blocks *kv, uint32_t n_prompt, uint32_t n_reserve);

struct kv_stats {
    uint32_t total, free, cached, used; /* blocks; total = free + cached + used, without block 0 */
    uint64_t hits, misses;              /* blocks at admission */
    uint64_t begun;                     /* admissions that resumed in the middle of a block */
    uint64_t evictions;
    /* grows when blocks are released; a failed admission cannot succeed before that */
    uint64_t releases;
};
struct kv_stats kv_stats(const struct kv_blocks *kv);

/* Checks every block and aborts on a broken invariant. For tests; O(blocks). */
void kv_check(const struct kv_blocks *kv);
#endif
