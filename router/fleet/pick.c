#include "router/fleet/pick.h"

static uint64_t price(const struct pick_candidate *c, uint32_t n_tokens)
{
    uint64_t fresh = n_tokens > c->shared ? n_tokens - c->shared : 0;
    return fresh + (c->has_adapter ? 0 : PICK_ADAPTER_TOKENS) + c->waiting +
           c->running / PICK_RUNNING_SHARE;
}

static bool cheaper(const struct pick_candidate *a, const struct pick_candidate *b,
                    uint32_t n_tokens)
{
    uint64_t of_a = price(a, n_tokens), of_b = price(b, n_tokens);
    if (of_a != of_b)
        return of_a < of_b;
    of_a = a->waiting + a->running;
    of_b = b->waiting + b->running;
    return of_a != of_b ? of_a < of_b : a->computed < b->computed;
}

int fleet_pick(enum fleet_policy policy, const struct pick_candidate *c, uint32_t n,
               uint32_t n_tokens, uint32_t turn)
{
    int best = -1;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = policy == FLEET_ROUND_ROBIN ? (turn + k) % n : k;
        if (!c[i].room)
            continue;
        if (policy == FLEET_ROUND_ROBIN)
            return (int)i;
        if (best < 0 || cheaper(&c[i], &c[best], n_tokens))
            best = (int)i;
    }
    return best;
}
