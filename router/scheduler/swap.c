#include "router/scheduler/swap.h"
#include <assert.h>
#include <stdlib.h>

bool swap_init(struct swap *w, uint32_t n)
{
    *w = (struct swap){.free = malloc((n + 1) * sizeof(*w->free))};
    if (!w->free)
        return false;
    w->n = w->n_free = n;
    for (uint32_t i = 0; i < n; i++) /* low numbers first: host memory is touched only when used */
        w->free[i] = n - 1 - i;
    return true;
}

void swap_fini(struct swap *w)
{
    free(w->free);
    *w = (struct swap){0};
}

bool swap_take(struct swap *w, uint32_t *slots, uint32_t n)
{
    if (n > w->n_free)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        slots[i] = w->free[--w->n_free];
        assert(slots[i] < w->n);
    }
    return true;
}

void swap_give(struct swap *w, const uint32_t *slots, uint32_t n)
{
    assert(n <= swap_used(w));
    for (uint32_t i = 0; i < n; i++) {
        assert(slots[i] < w->n);
        w->free[w->n_free++] = slots[i];
    }
}
