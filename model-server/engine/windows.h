/* windows.h - a sequence's blocks in the sliding-window cache.
 *
 * Sliding-window layers have a separate cache. The router reuses a block when it lies outside the
 * windows of all tokens of a sequence. A sequence has a run of its blocks, ending where it may
 * write next. Blocks behind the window are dropped, because other sequences write there. Block
 * numbers come from the wire and address memory, so each is checked. */
#ifndef MODEL_SERVER_ENGINE_WINDOWS_H
#define MODEL_SERVER_ENGINE_WINDOWS_H
#include "model-server/engine/seq.h"

/* Stores the block numbers of a request whose main blocks are placed. A request without any
 * blocks gets blocks from number 1 on. ERR_VALIDATION: too few, or outside the cache. Does
 * nothing without such a cache. */
int windows_place(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                  struct err *e);
/* Checks more of them, from block number `from` on; they may repeat existing ones. */
int windows_check(const struct seq *s, uint32_t from, const uint32_t *v, size_t n, uint32_t limit,
                  struct err *e);
void windows_put(struct seq *s, uint32_t from, const uint32_t *v, size_t n); /* after the check */
/* The sequence continues from `cached`: drops blocks behind the window. */
void windows_pass(struct seq *s, uint32_t window, uint32_t block_size);
#endif
