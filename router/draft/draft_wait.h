/* draft_wait.h - how many drafts a step waits for after a rejection. Pure arithmetic.
 *
 * After a rejection there are no drafts, and the next step verifies none. A draft model that is
 * much faster than a step generates some in a fraction of it. Times below are in units of a step.
 *
 * With acceptance rate a and k awaited drafts, 1 / (1 - a) tokens lie between two rejections. They
 * take (1 + wait + ROW k) + a^(k+1) (1 + ROW m) / (1 - a^(m+1)): the first step, then steps of m
 * drafts each, generated while a step runs, until one is rejected. The k with the least time is
 * chosen. docs/decisions/speculation.md has the derivation. */
#ifndef ROUTER_DRAFT_DRAFT_WAIT_H
#define ROUTER_DRAFT_DRAFT_WAIT_H
#include <stdbool.h>
#include <stdint.h>

/* A learnt duration in ns; zero-initialise. Outliers change it little. */
struct draft_duration {
    double ns; /* 0: unknown */
};
/* Adds a measurement. */
void draft_duration_note(struct draft_duration *d, int64_t ns);

/* Acceptance rate of drafts, as a moving average. */
struct draft_hits {
    float rate;
};
struct draft_hits draft_hits_new(void); /* with an initial guess */
/* Adds the verification of one draft; `right`: it was accepted. */
void draft_hits_note(struct draft_hits *h, bool right);

struct draft_wait_case {
    double step_ns, draft_ns;  /* duration of a step, and of a draft model call; 0: unknown */
    double acceptance;         /* rate for sequences without drafts, [0, 1] */
    uint32_t running, lacking; /* sequences in the step; those of them without drafts */
    uint32_t most;             /* most drafts per sequence that a step verifies */
};
struct draft_wait {
    uint32_t count; /* drafts to wait for; 0: the step does not wait */
    int64_t ms;     /* deadline in ms: less than half a step */
};
/* The number of drafts to wait for; 0 while durations are unknown, or if waiting does not pay. */
struct draft_wait draft_wait_choose(const struct draft_wait_case *c);

/* Should the draft shards start their next call before they receive it
 * (docs/decisions/run-ahead.md)? That saves the time between two calls. But a draft sequence whose
 * token was rejected meanwhile rejoins only after the call that was started for the wrong token.
 * `lacking` is not used. True while durations are unknown. */
bool draft_runs_ahead(const struct draft_wait_case *c);

/* Decides whether waits are worth trying; zero-initialise. A missed deadline disables waits until
 * the draft model has answered some calls; each further miss doubles that number. A draft model
 * that hangs answers none. */
struct draft_trust {
    uint32_t misses; /* consecutive misses */
    uint32_t rest;   /* calls until the next wait */
};
static inline bool draft_trust_holds(const struct draft_trust *t) { return t->rest == 0; }
void draft_trust_answered(struct draft_trust *t); /* a call of the draft model returned */
void draft_trust_met(struct draft_trust *t);      /* drafts came before the deadline */
void draft_trust_missed(struct draft_trust *t);   /* they did not */
#endif
