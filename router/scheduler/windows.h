/* windows.h - accounting of window blocks: the KV blocks of layers with sliding-window attention.
 *
 * These layers have a separate cache on the shards, with fewer blocks. A KV block has a window
 * block as long as a sequence attends to its tokens. It then keeps it until another needs the
 * memory, so that a prompt can continue after it. Pure accounting on the host: no device memory,
 * no clock, no lock, no log. The scheduler thread owns the one instance, inside its kv_blocks.
 * Block 0 is never handed out.
 *
 * A window block is in exactly one state:
 *   free
 *   held    by every sequence that attends to its tokens or will write them
 *   cached  not held; on the LRU list */
#ifndef ROUTER_SCHEDULER_WINDOWS_H
#define ROUTER_SCHEDULER_WINDOWS_H
#include <stdbool.h>
#include <stdint.h>

struct windows; /* opaque; defined in windows.c */

/* Window blocks 1 .. n - 1, for KV blocks below n_blocks. NULL: out of memory. */
struct windows *windows_new(uint32_t n, uint32_t n_blocks);
void windows_free(struct windows *w);

/* The window block of a KV block; 0: none. */
uint32_t windows_of(const struct windows *w, uint32_t block);
/* Tokens of it that were computed there. */
uint32_t windows_filled(const struct windows *w, uint32_t block);
/* At least `tokens` of them are computed. */
void windows_fill(struct windows *w, uint32_t block, uint32_t tokens);
/* has a window block that is not held */
bool windows_cached(const struct windows *w, uint32_t block);
uint32_t windows_holds(const struct windows *w, uint32_t block); /* number of holders */

/* Free and cached blocks: windows_take() succeeds this many times. */
uint32_t windows_room(const struct windows *w);
/* Gives a window block to a KV block without one; the caller holds it. Evicts if none is free. */
uint32_t windows_take(struct windows *w, uint32_t block);
/* The caller holds the existing window block of `block`, too. */
uint32_t windows_hold(struct windows *w, uint32_t block);
/* What happens when the last holder releases it: freed, or cached at the cold or warm end of the
 * LRU list. */
enum windows_end { WINDOWS_FREE, WINDOWS_COLD, WINDOWS_WARM };
void windows_release(struct windows *w, uint32_t block, enum windows_end end);
/* Moves the window block of `from` to `to`, which must have none. */
void windows_move(struct windows *w, uint32_t from, uint32_t to);
/* A KV block can no longer be hit: its window block is freed unless held. */
void windows_drop(struct windows *w, uint32_t block);

struct windows_stats {
    uint32_t total, free, cached, used; /* blocks; total = free + cached + used, without block 0 */
    uint64_t evictions;
};
struct windows_stats windows_stats(const struct windows *w);
/* Checks every block and aborts on a broken invariant. For tests; O(blocks). */
void windows_check(const struct windows *w);
#endif
