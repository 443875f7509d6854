/* fair.h - who is next: fairness between keys, priorities within one, without starvation.
 *
 * A key is the account that requests are counted for. Each has an account of the tokens it was
 * served (a generated token counts twice a prompt token); the one with the smallest account is
 * next. A key that comes back from a pause owes what it owed, but is owed nothing: its account is
 * raised to the smallest of those that are there, so that a pause saves up no claim. One key alone
 * has everything.
 *
 * Within a key the lowest `priority` runs first, then the oldest; every eighth that joins is the
 * key's oldest, whatever its priority: a request waits for at most eight times those before it.
 *
 * Pure. */
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
    uint64_t order;                  /* unique, grows with arrival */
    struct fair_item *prev, *next;   /* in the key's line: by priority, then by order */
    struct fair_item *older, *newer; /* in the key's line by order */
    uint64_t offered;                /* the scan that has seen it */
};

struct fair_key {
    uint64_t name;
    uint64_t served;  /* its account */
    uint32_t n_items; /* waiting or running: 0 for one that pauses */
    uint32_t since_oldest;
    struct fair_item *head, *tail, *oldest, *newest;
    struct fair_item *cursor;     /* the scan's */
    bool oldest_due;              /* in this scan: the oldest comes first */
    struct fair_key *chain;       /* in its bucket */
    struct fair_key *prev, *next; /* of those that are there */
};

struct fair {
    struct fair_key *bucket[256];
    struct fair_key *present; /* n_items > 0 */
    uint32_t n_keys, n_waiting;
    uint64_t floor; /* the smallest account of those that are there; never falls */
    uint64_t scan;
};

void fair_free(struct fair *f); /* no request waits any more; accounts are forgotten */
/* `it` belongs to key `name` from now on. False: no memory. */
bool fair_enter(struct fair *f, struct fair_item *it, uint64_t name);
void fair_leave(struct fair *f, struct fair_item *it);  /* does not wait; nothing if not entered */
void fair_wait(struct fair *f, struct fair_item *it);   /* into its key's line */
void fair_unwait(struct fair *f, struct fair_item *it); /* out of it */

/* All who wait, next first: fair_first(), then fair_next() until NULL. In between none may enter
 * or leave a line; fair_charge() is heeded at once, which makes the keys take turns. */
struct fair_item *fair_first(struct fair *f);
struct fair_item *fair_next(struct fair *f);

void fair_charge(struct fair_item *it, int64_t tokens); /* negative: taken back */
void fair_joins(struct fair_item *it);                  /* it will run; before fair_unwait() */
uint32_t fair_present(const struct fair *f);            /* keys with a request waiting or running */
#endif
