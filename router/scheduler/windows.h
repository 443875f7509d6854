/* windows.h - blocks of the cache of windows: which KV block has which of them.
 *
 * Layers that see a window have a cache of their own on the shards, with fewer blocks. A KV block
 * has a block there as long as a sequence sees its tokens, and then until another needs that
 * memory: so that a prompt can go on behind it. Pure accounting on the host: no device memory, no
 * clock, no lock, no log. The scheduler thread owns the one instance, as a part of its kv_blocks.
 * Block 0 is never handed out.
 *
 * A block of windows is in exactly one state:
 *   free
 *   held    by as many sequences as see its tokens, or will write them
 *   cached  not held; on the list of those that may be taken, coldest first */
#ifndef ROUTER_SCHEDULER_WINDOWS_H
#define ROUTER_SCHEDULER_WINDOWS_H
#include <stdbool.h>
#include <stdint.h>

struct windows; /* opaque: layout lives in windows.c */

/* Blocks 1 .. n - 1, for KV blocks below n_blocks. NULL: no memory. */
struct windows *windows_new(uint32_t n, uint32_t n_blocks);
void windows_free(struct windows *w);

/* Of a KV block: its block of windows; 0: it has none. */
uint32_t windows_of(const struct windows *w, uint32_t block);
/* How many of its tokens were computed there. */
uint32_t windows_filled(const struct windows *w, uint32_t block);
/* They are at least so many. */
void windows_fill(struct windows *w, uint32_t block, uint32_t tokens);
bool windows_cached(const struct windows *w, uint32_t block);    /* has one that is not held */
uint32_t windows_holds(const struct windows *w, uint32_t block); /* how many hold it */

/* Blocks that are free or cached: windows_take() succeeds so often. */
uint32_t windows_room(const struct windows *w);
/* A KV block that has none gets one, and the caller holds it. */
uint32_t windows_take(struct windows *w, uint32_t block);
/* One that has one: the caller holds it, too. */
uint32_t windows_hold(struct windows *w, uint32_t block);
/* When it is not held any more it is free, or cached. */
enum windows_end { WINDOWS_FREE, WINDOWS_COLD, WINDOWS_WARM };
void windows_let_go(struct windows *w, uint32_t block, enum windows_end end);
/* What `from` has becomes `to`'s, which has none. */
void windows_move(struct windows *w, uint32_t from, uint32_t to);
/* A KV block can be found no more: if its block of windows is not held, that is free. */
void windows_drop(struct windows *w, uint32_t block);

struct windows_stats {
    uint32_t total, free, cached, used; /* total = free + cached + used, without block 0 */
    uint64_t evictions;
};
struct windows_stats windows_stats(const struct windows *w);
/* Walks every block and aborts on a broken invariant: for tests, O(blocks). */
void windows_check(const struct windows *w);
#endif
