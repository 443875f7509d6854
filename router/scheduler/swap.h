/* swap.h - allocator of the slots in the shards' swap regions. Pure; scheduler thread. */
#ifndef ROUTER_SCHEDULER_SWAP_H
#define ROUTER_SCHEDULER_SWAP_H
#include <stdbool.h>
#include <stdint.h>

struct swap {
    uint32_t *free; /* a stack of n_free free slots */
    uint32_t n, n_free;
};
bool swap_init(struct swap *w, uint32_t n); /* false: out of memory; n may be 0 */
void swap_fini(struct swap *w);
/* Allocates n slots, or none and returns false. */
bool swap_take(struct swap *w, uint32_t *slots, uint32_t n);
/* Frees n slots. */
void swap_give(struct swap *w, const uint32_t *slots, uint32_t n);
static inline uint32_t swap_used(const struct swap *w) { return w->n - w->n_free; }
#endif
