/* windows.h - where a sequence's blocks lie in the cache of windows.
 *
 * Layers that see a window have a cache of their own, whose blocks the router gives to others once
 * no token of a sequence sees them. A sequence knows those of a run of its blocks that ends where
 * it may write next: those behind the window are dropped, because other sequences
 * write there now. Numbers from the wire address memory, so each is checked. */
#ifndef MODEL_SERVER_ENGINE_WINDOWS_H
#define MODEL_SERVER_ENGINE_WINDOWS_H
#include "model-server/engine/seq.h"

/* What comes with a request, whose blocks are placed; a request that brings no blocks at all gets
 * some from number 1 on. ERR_VALIDATION: too few, or outside the cache. Nothing to do where there
 * is no such cache. */
int windows_place(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                  struct err *e);
/* More of them, from block number `from` on; those it has may be said again. */
int windows_check(const struct seq *s, uint32_t from, const uint32_t *v, size_t n, uint32_t limit,
                  struct err *e);
void windows_put(struct seq *s, uint32_t from, const uint32_t *v, size_t n); /* after the check */
/* It goes on from `cached`: what is behind the window is forgotten. */
void windows_pass(struct seq *s, uint32_t window, uint32_t block_size);
#endif
