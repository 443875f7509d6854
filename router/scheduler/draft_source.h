/* draft_source.h - where the scheduler's drafts come from: the one interface between the scheduler
 * and a drafter (router/draft is one). The scheduler calls, on its own thread, and is never held
 * up: a step that waits for drafts is sent by what on_ready() calls. */
#ifndef ROUTER_SCHEDULER_DRAFT_SOURCE_H
#define ROUTER_SCHEDULER_DRAFT_SOURCE_H
#include <stdbool.h>
#include <stdint.h>

struct seq;
struct draft_source {
    void *self; /* the first argument of every function below */
    /* A request runs; it has new tokens; it runs no more. */
    void (*follow)(void *self, struct seq *q);
    void (*on_tokens)(void *self, struct seq *q);
    void (*forget)(void *self, struct seq *q);
    /* Drafts for q from q->n_tokens on, `n` of them; valid until the next call of any function
     * here. NULL: none. */
    const uint32_t *(*offer)(const void *self, const struct seq *q, uint32_t *n);
    bool (*active)(const void *self); /* drafts are to be expected for some request */
    void (*turn)(void *self);         /* at the end of each turn of the scheduler: next call */
    /* Before a Decode of `running` sequences, the last of which took `step_ns`. True: it waits, and
     * ready(arg) will be called once, not from here, after less than half a step's time. */
    bool (*wait)(void *self, uint32_t running, int64_t step_ns);
    void (*on_ready)(void *self, void (*ready)(void *arg), void *arg); /* once, before the rest */
};
#endif
