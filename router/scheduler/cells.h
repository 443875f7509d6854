/* cells.h - cells of recurrent state: which sequence or which snapshot has which cell.
 *
 * Pure accounting on the host: no device memory, no clock, no lock, no log. The scheduler thread
 * owns the one instance, as a part of its kv_blocks. A cell holds the recurrent state of one
 * sequence on every rank; its number is the shards'. A model without such state has no cells.
 *
 * A cell is in exactly one state:
 *   free
 *   owned      one of the two cells of a sequence that is in a batch, or joins one
 *   snapshot   holds the state at the end of a block of the prefix tree. It is pending until the
 *              shards have answered the call that saves it; only then it is a hit for others.
 *
 * Snapshots are cache: a request for a cell gets the coldest snapshot's when none is free. A
 * snapshot that a joining sequence starts from is held until the shards have copied it: no request
 * gets it meanwhile.
 *
 * A sequence in the middle of its answer may have one rolling snapshot, which follows it. All of
 * them together take at most half of the cells that no sequence owns, so that they do not drive out
 * the snapshots of prompts. */
#ifndef ROUTER_SCHEDULER_CELLS_H
#define ROUTER_SCHEDULER_CELLS_H
#include "router/shards/start.h"
#include <stdbool.h>
#include <stdint.h>

#define NO_CELL UINT32_MAX
enum { CELLS_EACH = SHARD_STATE_CELLS }; /* a step reads one and writes the other */

struct cells; /* opaque: layout lives in cells.c */

/* Cells 0 .. n_cells - 1, beside a prefix tree with block numbers below n_blocks. NULL: no memory.
 */
struct cells *cells_new(uint32_t n_cells, uint32_t n_blocks);
void cells_free(struct cells *c);

/* Two cells for a sequence; false: there are none, and nothing has changed. */
bool cells_take(struct cells *c, uint32_t out[CELLS_EACH]);
/* Could cells_take() succeed while `held` (a snapshot, or NO_CELL) stays where it is? */
bool cells_room(const struct cells *c, uint32_t held);
void cells_give(struct cells *c, const uint32_t own[CELLS_EACH]);

/* A cell for the state at the end of `block`, which has no snapshot; pending. NO_CELL: all cells
 * are owned or held, or it would be one rolling snapshot too many. */
uint32_t cells_save(struct cells *c, uint32_t block, bool rolling);
/* The two of a sequence that ends: own[0] has the state at the end of `block`, which has no
 * snapshot, and becomes one; own[1] is given back. */
void cells_adopt(struct cells *c, const uint32_t own[CELLS_EACH], uint32_t block);
bool cells_pending(const struct cells *c, uint32_t cell);
void cells_saved(struct cells *c);   /* all pending ones: the shards have saved them */
void cells_unsaved(struct cells *c); /* or it is not known whether they did */
/* The snapshot of `block` belongs to a running sequence no more. */
void cells_settle(struct cells *c, uint32_t block);
/* Of a block: its snapshot, pending or not; NO_CELL: none. */
uint32_t cells_of(const struct cells *c, uint32_t block);
void cells_hold(struct cells *c, uint32_t cell);   /* a snapshot that is not pending; may be held
                                                      several times; it is warm now */
void cells_let_go(struct cells *c, uint32_t cell); /* as often as it was held */
void cells_drop(struct cells *c, uint32_t block); /* its snapshot, if any, is not wanted any more */
void cells_forget(struct cells *c);               /* all snapshots; sequences keep their cells */

struct cells_stats {
    uint32_t total, free, owned, snapshots; /* total = free + owned + snapshots */
    uint64_t evictions;                     /* snapshots whose cell was needed */
};
struct cells_stats cells_stats(const struct cells *c);

/* Walks every cell and aborts on a broken invariant: for tests, O(cells + blocks). */
void cells_check(const struct cells *c);
#endif
