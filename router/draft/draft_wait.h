/* draft_wait.h - how many drafts a step waits for after a rejection. Pure arithmetic.
 *
 * After a rejection there are no drafts, and the next step verifies none. A draft model that is
 * much faster than a step makes some in a fraction of it. Times below are in parts of a step.
 *
 * With acceptance a and k drafts waited for, 1 / (1 - a) tokens lie between two rejections; they
 * take (1 + wait + ROW k) + a^(k+1) (1 + ROW m) / (1 - a^(m+1)): the first step, then steps of m
 * drafts, which are made while a step runs, until one is rejected. The k with the least time wins.
 * docs/decisions/speculation.md has the derivation in words. */
#ifndef ROUTER_DRAFT_DRAFT_WAIT_H
#define ROUTER_DRAFT_DRAFT_WAIT_H
#include <stdbool.h>
#include <stdint.h>

/* A duration in ns, learnt; zero-initialise. One that is far longer than the rest moves it little.
 */
struct draft_duration {
    double ns; /* 0: not known */
};
void draft_duration_note(struct draft_duration *d, int64_t ns);

/* The share of drafts that are right. */
struct draft_hits {
    float rate;
};
struct draft_hits draft_hits_new(void);
void draft_hits_note(struct draft_hits *h, bool right);

struct draft_wait_case {
    double step_ns, draft_ns;  /* of a step; of a call of the draft model; 0: not known */
    double acceptance;         /* of those that lack drafts, [0, 1] */
    uint32_t running, lacking; /* sequences of the step; of which so many have no draft */
    uint32_t most;             /* drafts of a sequence that a step verifies */
};
struct draft_wait {
    uint32_t count; /* drafts to wait for; 0: the step does not wait */
    int64_t ms;     /* and at most so long: less than half a step */
};
struct draft_wait draft_wait_choose(const struct draft_wait_case *c);

/* Whether waits are worth trying; zero-initialise. A missed deadline turns them off until the draft
 * model has answered so many calls, twice as many after each further miss. A frozen one answers
 * none. */
struct draft_trust {
    uint32_t misses; /* in a row */
    uint32_t rest;   /* calls until the next wait */
};
static inline bool draft_trust_holds(const struct draft_trust *t) { return t->rest == 0; }
void draft_trust_answered(struct draft_trust *t); /* a call of the draft model came back */
void draft_trust_met(struct draft_trust *t);
void draft_trust_missed(struct draft_trust *t);
#endif
