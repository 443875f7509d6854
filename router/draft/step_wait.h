/* step_wait.h - the wait of a step for drafts: learnt durations, its deadline, and how it ended.
 *
 * draft_wait.h decides how many drafts are worth a wait; this file carries the decision out. A
 * wait begins with step_wait_begin() and ends exactly once: met, lost, or missed by its deadline.
 * Then the function of step_wait_on_ready() is called, so that the step continues. A timer cannot
 * be cancelled: it may be pending after its wait has ended, and no other wait begins until then.
 *
 * Runs on the loop's thread. */
#ifndef ROUTER_DRAFT_STEP_WAIT_H
#define ROUTER_DRAFT_STEP_WAIT_H
#include "common/metrics.h"
#include "common/rpc/loop.h"
#include "router/draft/draft_wait.h"

struct step_wait_options {
    struct rpc_loop *loop;
    struct metrics *metrics; /* NULL: no metrics */
    /* The timer of an ended wait has passed: nothing is pending any more. */
    void (*idle)(void *arg);
    void *arg;
};

struct step_wait {
    struct step_wait_options o;
    struct draft_duration call, step; /* of a draft model's Decode, and of a step */
    struct draft_trust trust;
    uint32_t count;      /* drafts for each awaited sequence; 0: no step waits */
    struct rpc_op timer; /* private */
    bool pending;        /* the timer has not passed; *w must not be freed */
    void (*ready)(void *arg);
    void *ready_arg;
};

/* Copies the options. */
void step_wait_init(struct step_wait *w, const struct step_wait_options *o);
/* Called when a wait has ended, with the drafts that are available. */
void step_wait_on_ready(struct step_wait *w, void (*ready)(void *arg), void *arg);
/* Discards what was measured of the draft shards: the next ones may run on another machine. */
void step_wait_new_shards(struct step_wait *w);
/* May a wait begin? False while a timer is pending, or after missed deadlines. */
bool step_wait_allowed(const struct step_wait *w);
/* Begins a wait if it pays. Sets the durations of *c; the caller sets the rest. False: none. */
bool step_wait_begin(struct step_wait *w, struct draft_wait_case *c);
/* A call of the draft shards has returned after `ns`; 0: one whose duration is of no interest. */
void step_wait_answered(struct step_wait *w, int64_t ns);
/* End a wait: it got its drafts, or the draft shards are lost. w->count must be positive. */
void step_wait_met(struct step_wait *w);
void step_wait_lost(struct step_wait *w);
#endif
