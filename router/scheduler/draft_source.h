/* draft_source.h - the interface between the scheduler and a drafter (router/draft implements it).
 *
 * The scheduler calls every function on its own thread, and none may block. When wait() returns
 * true, the drafter later calls the `ready` function given to on_ready(), which sends the postponed
 * step. */
#ifndef ROUTER_SCHEDULER_DRAFT_SOURCE_H
#define ROUTER_SCHEDULER_DRAFT_SOURCE_H
#include <stdbool.h>
#include <stdint.h>

struct seq;
struct draft_source {
    void *self; /* first argument of every function below */
    /* A request started to run; it has new tokens; it no longer runs. */
    void (*follow)(void *self, struct seq *q);
    void (*on_tokens)(void *self, struct seq *q);
    void (*forget)(void *self, struct seq *q);
    /* Draft tokens for `q` that start at position q->n_tokens; their count goes to `n`. Valid until
     * the next call of any function here. NULL: no drafts. */
    const uint32_t *(*offer)(const void *self, const struct seq *q, uint32_t *n);
    bool (*active)(const void *self); /* drafts can be expected for some request */
    /* called at the end of each scheduler turn; sends the drafter's next call */
    void (*turn)(void *self);
    /* Called before a Decode of `running` sequences; the previous Decode took `step_ns`. True: the
     * step should wait. Then ready(arg) is called once, never from inside this call, after less
     * than half a step's time. */
    bool (*wait)(void *self, uint32_t running, int64_t step_ns);
    /* called once, before all others */
    void (*on_ready)(void *self, void (*ready)(void *arg), void *arg);
};
#endif
