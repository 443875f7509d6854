/* kv_blocks.h - paged KV cache bookkeeping: which block holds which tokens.
 *
 * Pure accounting on the host: no device memory, no clock, no lock, no log. The scheduler thread
 * owns the one instance. A block is `block_tokens` positions of KV; its number is the shard's.
 * Block 0 is never handed out: shards let padding rows write there.
 *
 * A block is in exactly one state:
 *   free      ref == 0, not indexed
 *   cached    ref == 0, indexed, on the LRU list
 *   in use    ref >= 1; indexed as far as its KV was computed
 *
 * The index is a prefix tree over blocks: a block is found under its parent block (the root: under
 * its space, an adapter and a salt) by the keys of its own tokens (kv_media.h). A hash finds the
 * candidate, the keys and the parent's number decide, so that a collision never hands one prompt
 * the KV of another. Blocks are evicted coldest first, and a parent is always warmer than its
 * children.
 *
 * Full blocks are shared. A block of which only the beginning is wanted (it is half full, or goes
 * on differently, or holds the last prompt token) is copied: the shards do that before the step
 * (kv_table.copy_from), so that its user goes on writing where no other sequence reads. A half-full
 * block that is not in use and that is wanted as far as it goes is taken as it is. No indexed block
 * holds just the beginning of another one.
 *
 * A model with recurrent state has cells as well (cells.h). A sequence needs two of them; it goes
 * on behind a prefix only where a snapshot holds the state. So a hit ends at the deepest block that
 * has one, and beginnings of blocks are no hits. The full blocks behind that are shared all the
 * same: the shards compute their tokens again for the state, and write the same bits.
 *
 * Where layers that see a window have a cache of their own (windows.h), a sequence has blocks there
 * for what its next step sees and writes, and no others. It goes on behind a prefix only where the
 * last window of that is there: so a hit ends at the deepest block for which it is, and the full
 * blocks behind that are shared all the same, as above.
 *
 * Reserve and commit are apart. kv_admit() only reserves; a block can be hit by others after
 * kv_commit() (or kv_release()) was told that its tokens went through the model. A prefill that
 * failed, was cut or never ran leaves nothing behind. */
#ifndef ROUTER_SCHEDULER_KV_BLOCKS_H
#define ROUTER_SCHEDULER_KV_BLOCKS_H
#include "router/scheduler/cells.h"
#include "router/scheduler/kv_media.h"
#include "router/scheduler/windows.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_blocks; /* opaque: layout lives in kv_blocks.c */

/* Whose KV it is. Equal keys share blocks as far as their tokens, and the pictures behind them, are
 * equal. */
struct kv_key {
    const uint32_t *tokens;
    uint32_t n;
    uint32_t adapter; /* 0: base model */
    uint32_t n_fresh; /* tokens at the end that are to be computed, in the cache or not; 0: one */
    uint64_t salt;    /* only requests with the same share blocks; 0: none, else bit 63 is set */
    struct kv_media media; /* pictures among the tokens; must last until kv_release() */
};

/* One sequence's page table: plain data, embedded in its owner, zero when empty. */
struct kv_table {
    uint32_t *ids;
    uint32_t len, cap; /* blocks */
    uint32_t n_cached; /* tokens whose KV was there already (behind the copy); at most prompt - 1 */
    uint32_t copy_from; /* 0: none; else copy this block to ids[n_cached / block_tokens] first. Held
                           until kv_copied() */
    uint32_t n_sealed;  /* leading blocks that are in the index, full */
    uint64_t space;     /* whose blocks it shares: see kv_key */
    uint32_t era;
    struct kv_media media; /* its key's */
    bool shares;           /* takes part in prefix sharing */
    bool local;            /* of an adapter, whose number is this process's */

    /* of models with recurrent state; else 0 */
    uint32_t cells[CELLS_EACH]; /* its own, where `stateful` */
    uint32_t state_from;        /* 1 + the snapshot with the state after n_cached tokens, held until
                                   kv_copied(); 0: none */
    uint32_t n_matched; /* tokens of full blocks that were in the index at admission; with windows
                           as well */
    uint32_t n_kept;    /* the last snapshot was taken, or found, behind so many tokens */
    uint32_t n_rolled;  /* its rolling snapshot stands there; 0: none */
    bool stateful;

    /* with a cache of windows; else 0 */
    uint32_t *windows; /* [cap] of blocks [windows_from, windows_to): those that it holds */
    uint32_t windows_from, windows_to;
    uint32_t window_copy; /* that of copy_from */
};

/* `n_blocks` counts block 0. `seed` keeps clients from choosing collisions. NULL: out of memory. */
struct kv_blocks *kv_new(uint32_t n_blocks, uint32_t block_tokens, uint64_t seed);
void kv_free(struct kv_blocks *kv);
/* The shards can copy blocks; off at first: then full blocks alone are hits. Before any use. */
void kv_copying(struct kv_blocks *kv, bool on);
/* The model has recurrent state: `n_cells` cells for it. With `snapshots` false none are taken. Not
 * together with kv_copying(). Before any use; false: out of memory. */
bool kv_stateful(struct kv_blocks *kv, uint32_t n_cells, bool snapshots);
struct cells *kv_cells(const struct kv_blocks *kv); /* NULL: the model has no state */
/* Layers that see `window` tokens have a cache of n_windows blocks, of which a step wants at most
 * `chunk` tokens more for each prompt. Before any use; false: out of memory. */
bool kv_windowed(struct kv_blocks *kv, uint32_t n_windows, uint32_t window, uint32_t chunk);
struct windows *kv_windows(const struct kv_blocks *kv); /* NULL: there is no such cache */
/* With one: blocks of it for the first `n` tokens, as long as more than `spare` are left. False:
 * not all; it has as many as there were. Its KV blocks are there. */
bool kv_window_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n, uint32_t spare);
/* With one: `n` tokens are computed, and what no later token sees is given back. */
void kv_window_pass(struct kv_blocks *kv, struct kv_table *t, uint32_t n);

/* Reserve room for `n_reserve` tokens (and two cells), of which the first key->n are known, and
 * share every full block that is resident, and the beginning of one more. With `share` false
 * nothing is taken from the cache and nothing goes in. All or nothing: on false `t` holds no block
 * and nothing was evicted. */
bool kv_admit(struct kv_blocks *kv, struct kv_table *t, const struct kv_key *key, bool share,
              uint32_t n_reserve);

/* The shards have made the copies that `t` asked for, if any. */
void kv_copied(struct kv_blocks *kv, struct kv_table *t);

/* From now on kv_admit() leaves `n` blocks free or cached, for those that run to grow into. */
void kv_keep_free(struct kv_blocks *kv, uint32_t n);

/* Room for `n` tokens in all; false: `t` is unchanged and the caller must preempt. */
bool kv_grow(struct kv_blocks *kv, struct kv_table *t, uint32_t n);

/* Leading blocks that others hold as well: they do not go when `t` does. */
uint32_t kv_shared(const struct kv_blocks *kv, const struct kv_table *t);

/* The KV of tokens[0..n) was computed: it becomes a hit for others at once. Idempotent and
 * incremental. A block that another sequence published first stays private until kv_release(). */
void kv_commit(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n);

/* `t` stands behind tokens[0..n), all computed, and others may go on from there: commit them, and
 * find a cell for the state. The caller makes the shards save it before the next step, then calls
 * cells_saved() or cells_unsaved(). NO_CELL: there is none to spare, another sequence has such a
 * snapshot or publishes these blocks, or n is not the end of a block. `rolls`: it takes the place
 * of the last one that rolled. */
uint32_t kv_snapshot(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n,
                     bool rolls);

/* Where a prompt of `n` tokens that was computed up to `from` stops next: where its blocks of
 * windows end, or so that a snapshot can be
 * taken: the smallest such position behind `from`, or n. Stops are every few thousand tokens, where
 * its blocks stopped being in the index, and where its last full block ends. A stop costs a step
 * more, so it must be so far behind the last snapshot that this pays: SNAPSHOT_GAIN blocks, and
 * what takes as long to compute as a step where others began alike, or as four steps where that is
 * not known yet. One block is enough if others wait for the same prompt (`awaited`). A stop is
 * never inside a picture that stays whole. */
enum { SNAPSHOT_GAIN = 4 };
void kv_step_tokens(struct kv_blocks *kv, uint32_t n); /* that take as long as a step; at first 0 */
uint32_t kv_stop(const struct kv_blocks *kv, const struct kv_table *t, uint32_t n, uint32_t from,
                 bool awaited);

/* Commit (n may be 0), then give everything back. Indexed blocks stay as cache until evicted. Only
 * when the shard writes them no more. */
void kv_release(struct kv_blocks *kv, struct kv_table *t, const uint32_t *tokens, uint32_t n);

/* Take back a kv_admit() that nothing came of: as kv_release() without tokens, but no room was made
 * that was not there before. */
void kv_undo(struct kv_blocks *kv, struct kv_table *t);

/* The device lost its memory: nothing is resident any more. Tables in use stay valid. */
void kv_forget(struct kv_blocks *kv);

/* Could `n` tokens ever fit, with the cache empty and no other sequence there? */
bool kv_could_fit(const struct kv_blocks *kv, uint32_t n);
/* Nor can pictures that stay whole be too large for a cache of windows. */
bool kv_pictures_could_fit(const struct kv_blocks *kv, const struct kv_media *m);
/* Cheaper than kv_admit(): false when even a full prefix hit would not be enough now. */
bool kv_may_fit(const struct kv_blocks *kv, uint32_t n_prompt, uint32_t n_reserve);

struct kv_stats {
    uint32_t total, free, cached, used; /* blocks; total = free + cached + used, without block 0 */
    uint64_t hits, misses;              /* blocks at admission */
    uint64_t begun;                     /* admissions that went on in the middle of a block */
    uint64_t evictions;
    uint64_t releases; /* grows when room was made: before that, who did not fit will not */
};
struct kv_stats kv_stats(const struct kv_blocks *kv);

/* Walks every block and aborts on a broken invariant: for tests, O(blocks). */
void kv_check(const struct kv_blocks *kv);
#endif
