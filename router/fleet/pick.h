/* pick.h - chooses the replica for a request, by prefix affinity and load. Pure.
 *
 * Each replica with free capacity has a cost in prompt tokens, and the cheapest one is chosen:
 *   - prompt tokens to compute, because its cache may not have them;
 *   - PICK_ADAPTER_TOKENS, if it has not used the request's adapter recently;
 *   - prompt tokens queued there;
 *   - an eighth of the tokens that run there, for the steps that they slow down.
 * So a request goes to the replica with its prefix until the queue there costs more than
 * recomputing it; then another replica gets the prefix as well. Equal costs are decided by load,
 * then by the fewest prompt tokens computed so far, so that an idle fleet fills all its caches;
 * then by index. */
#ifndef ROUTER_FLEET_PICK_H
#define ROUTER_FLEET_PICK_H
#include <stdbool.h>
#include <stdint.h>

enum { PICK_ADAPTER_TOKENS = 256, PICK_RUNNING_SHARE = 8 };

enum fleet_policy { FLEET_PREFIX, FLEET_ROUND_ROBIN };

struct pick_candidate {
    bool room;                 /* it is ready and has free capacity for this request */
    bool has_adapter;          /* the request's adapter; true if it names none */
    uint32_t shared;           /* prompt tokens that its cache may have */
    uint64_t waiting, running; /* tokens: prompts not computed yet; prompts and answers that run */
    uint64_t computed;         /* prompt tokens, since the set of replicas last changed */
};

/* Index in c[0..n) for a prompt of `n_tokens`; -1: no free capacity. `turn`: for FLEET_ROUND_ROBIN,
 * the index after the last choice. */
int fleet_pick(enum fleet_policy policy, const struct pick_candidate *c, uint32_t n,
               uint32_t n_tokens, uint32_t turn);
#endif
