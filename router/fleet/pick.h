/* pick.h - which replica a request goes to. Pure.
 *
 * Each replica that has room has a price in prompt tokens, and the cheapest one is taken:
 *   - tokens of the prompt that it would have to compute, because its cache may not have them;
 *   - PICK_ADAPTER_TOKENS, if it has not used the request's adapter lately;
 *   - the prompt tokens that wait there to be computed first;
 *   - an eighth of the tokens that run there, for the steps that they slow down.
 * So a request goes where its prefix is until the queue there costs more than computing it again:
 * then another replica gets the prefix, too. Of equal prices the least load decides, then which
 * has computed the least so far, so that an idle fleet fills all its caches; then order. */
#ifndef ROUTER_FLEET_PICK_H
#define ROUTER_FLEET_PICK_H
#include <stdbool.h>
#include <stdint.h>

enum { PICK_ADAPTER_TOKENS = 256, PICK_RUNNING_SHARE = 8 };

enum fleet_policy { FLEET_PREFIX, FLEET_ROUND_ROBIN };

struct pick_candidate {
    bool room;                 /* it is ready, may hold the request, and takes one now */
    bool has_adapter;          /* of the request; true where it names none */
    uint32_t shared;           /* prompt tokens that its cache may have */
    uint64_t waiting, running; /* tokens: prompts not computed yet; prompts and answers that run */
    uint64_t computed;         /* prompt tokens, since the fleet last changed */
};

/* The place in c[0..n) for a prompt of `n_tokens`; -1: none has room. `turn`: for
 * FLEET_ROUND_ROBIN, the place after the last one. */
int fleet_pick(enum fleet_policy policy, const struct pick_candidate *c, uint32_t n,
               uint32_t n_tokens, uint32_t turn);
#endif
