/* cells.h - accounting of recurrent-state cells: which sequence or snapshot holds which cell.
 *
 * Pure accounting on the host: no device memory, no clock, no lock, no log. The scheduler thread
 * owns the one instance, inside its kv_blocks. A cell holds the recurrent state of one sequence on
 * every rank, and its number is the same on all of them. A model without recurrent state has no
 * cells.
 *
 * A cell is in exactly one state:
 *   free
 *   owned      one of the two cells of a sequence that is in a batch or joins one
 *   snapshot   holds the state at the end of a block of the prefix tree. It is pending until the
 *              shards have answered the call that saves it; only then can others hit it.
 *
 * Snapshots are cache: if no cell is free, the coldest snapshot is evicted. A snapshot that a
 * joining sequence starts from is held, and so not evicted, until the shards have copied it.
 *
 * A sequence that is generating may have one rolling snapshot, which advances with it. All rolling
 * snapshots together take at most half of the cells that no sequence owns, so that they cannot
 * evict all prompt snapshots. */
#ifndef ROUTER_SCHEDULER_CELLS_H
#define ROUTER_SCHEDULER_CELLS_H
#include "router/shards/start.h"
#include <stdbool.h>
#include <stdint.h>

#define NO_CELL UINT32_MAX
enum { CELLS_EACH = SHARD_STATE_CELLS }; /* a step reads one cell and writes the other */

struct cells; /* opaque; defined in cells.c */

/* Cells 0 .. n_cells - 1, beside a prefix tree with block ids below n_blocks. NULL: out of
 * memory. */
struct cells *cells_new(uint32_t n_cells, uint32_t n_blocks);
void cells_free(struct cells *c);

/* Allocates two cells for a sequence. False: not available, and nothing has changed. */
bool cells_take(struct cells *c, uint32_t out[CELLS_EACH]);
/* Could cells_take() succeed without evicting `held` (a snapshot, or NO_CELL)? */
bool cells_room(const struct cells *c, uint32_t held);
/* Frees both cells of a sequence. */
void cells_give(struct cells *c, const uint32_t own[CELLS_EACH]);

/* Allocates a pending snapshot of the state at the end of `block`, which must have none. NO_CELL:
 * all cells are owned or held, or there are too many rolling snapshots. */
uint32_t cells_save(struct cells *c, uint32_t block, bool rolling);
/* Turns the cells of an ending sequence into a snapshot: own[0] holds the state at the end of
 * `block`, which must have no snapshot. own[1] is freed. */
void cells_adopt(struct cells *c, const uint32_t own[CELLS_EACH], uint32_t block);
bool cells_pending(const struct cells *c, uint32_t cell);
void cells_saved(struct cells *c); /* the shards have saved all pending snapshots */
/* drops all pending snapshots: the shards may not have saved them */
void cells_unsaved(struct cells *c);
/* The snapshot of `block` no longer rolls with a running sequence. */
void cells_settle(struct cells *c, uint32_t block);
/* The snapshot of `block`, pending or not; NO_CELL: none. */
uint32_t cells_of(const struct cells *c, uint32_t block);
/* Holds a snapshot that is not pending, and makes it the warmest. May be called several times. */
void cells_hold(struct cells *c, uint32_t cell);
void cells_release(struct cells *c, uint32_t cell); /* once per cells_hold() */
void cells_drop(struct cells *c, uint32_t block);   /* drops the snapshot of `block`, if any */
/* drops all snapshots; sequences keep their cells */
void cells_forget(struct cells *c);

struct cells_stats {
    uint32_t total, free, owned, snapshots; /* cells; total = free + owned + snapshots */
    uint64_t evictions;                     /* snapshots dropped to reuse their cell */
};
struct cells_stats cells_stats(const struct cells *c);

/* Checks every cell and aborts on a broken invariant. For tests; O(cells + blocks). */
void cells_check(const struct cells *c);
#endif
