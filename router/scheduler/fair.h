/* fair.h - fair queueing between keys, with priorities within a key and without starvation.
 *
 * A key is the account that a request is charged to: a tenant. Each key accumulates the tokens it
 * was served; a generated token counts twice as much as a prompt token. The active key with the
 * smallest account is next. This is the virtual token counter of fair serving (Sheng et al., arXiv
 * 2401.00588). A key that resumes after idling keeps its debt but gains no credit: its account is
 * raised to the minimum over the active keys. Of equal accounts, one that runs nothing goes first.
 * A single active key gets the whole capacity.
 *
 * Within a key, the lowest `priority` runs first, then the oldest. Every eighth request that joins
 * is the key's oldest, whatever its priority, so that no request starves.
 *
 * Pure: no I/O, no clock, no lock. */
#ifndef ROUTER_SCHEDULER_FAIR_H
#define ROUTER_SCHEDULER_FAIR_H
#include <stdbool.h>
#include <stdint.h>

enum { FAIR_KEYS = 1024, FAIR_OLDEST_EVERY = 8, FAIR_PROMPT_TOKEN = 1, FAIR_NEW_TOKEN = 2 };

struct fair_key;
/* Embedded in a request, from before it waits until it is freed. */
struct fair_item {
    struct fair_key *key;
    int32_t priority;                /* lower runs first */
    uint64_t order;                  /* unique; grows with arrival */
    struct fair_item *prev, *next;   /* the key's queue, by priority, then by order */
    struct fair_item *older, *newer; /* the key's queue, by order */
    uint64_t offered;                /* the last scan that returned it */
};

struct fair_key {
    uint64_t name;
    uint64_t served;  /* its account, in weighted tokens */
    uint32_t n_items; /* waiting or running requests; 0: the key is idle */
    uint32_t n_waiting;
    /* joins since the oldest request was last taken */
    uint32_t since_oldest;
    struct fair_item *head, *tail, *oldest, *newest;
    struct fair_item *cursor;     /* position of the current scan */
    bool oldest_due;              /* this scan takes the oldest request first */
    struct fair_key *chain;       /* hash bucket list */
    struct fair_key *prev, *next; /* list of active keys */
};

struct fair {
    struct fair_key *bucket[256];
    struct fair_key *present; /* active keys: n_items > 0 */
    uint32_t n_keys, n_waiting;
    uint64_t floor; /* the minimum account over active keys; never falls */
    uint64_t scan;
};

void fair_free(struct fair *f); /* No request may wait any more. All accounts are freed. */
/* Charges `it` to key `name` from now on. False: out of memory. */
bool fair_enter(struct fair *f, struct fair_item *it, uint64_t name);
/* does nothing if it never entered; the item must not be waiting */
void fair_leave(struct fair *f, struct fair_item *it);
void fair_wait(struct fair *f, struct fair_item *it);   /* insert into its key's queue */
void fair_unwait(struct fair *f, struct fair_item *it); /* remove from its key's queue */

/* Iterates over all waiting items, next first: fair_first(), then fair_next() until NULL. No item
 * may be inserted or removed in between. fair_charge() takes effect at once, which makes the keys
 * alternate. */
struct fair_item *fair_first(struct fair *f);
struct fair_item *fair_next(struct fair *f);
/* The next item of a key without running requests; NULL: none is left. It belongs to the same scan
 * as fair_next(). */
struct fair_item *fair_next_newcomer(struct fair *f);

void fair_charge(struct fair_item *it, int64_t tokens); /* weighted tokens; negative: a refund */
/* it is about to run; call before fair_unwait() */
void fair_joins(struct fair_item *it);
uint32_t fair_present(const struct fair *f); /* number of active keys */
/* The key of a waiting item has no running request. */
bool fair_newcomer(const struct fair_item *it);
#endif
