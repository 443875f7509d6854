/* swap.h - which slots of the shards' swap regions hold something. Pure; the scheduler's thread. */
#ifndef ROUTER_SCHEDULER_SWAP_H
#define ROUTER_SCHEDULER_SWAP_H
#include <stdbool.h>
#include <stdint.h>

struct swap {
    uint32_t *free; /* a stack of n_free slots */
    uint32_t n, n_free;
};
bool swap_init(struct swap *w, uint32_t n); /* false: no memory; n may be 0 */
void swap_fini(struct swap *w);
/* n slots, or false and none. */
bool swap_take(struct swap *w, uint32_t *slots, uint32_t n);
void swap_give(struct swap *w, const uint32_t *slots, uint32_t n);
static inline uint32_t swap_used(const struct swap *w) { return w->n - w->n_free; }
#endif
