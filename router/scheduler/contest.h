/* contest.h - bounds of a step while accounts compete. So an account with few requests is answered
 * nearly as fast as alone, whatever the others have queued.
 *
 * Accounts compete if requests of an account that ran nothing have joined beside running requests
 * of others within the last CONTEST_NS. The first token of such a newcomer waits for three things:
 * the running step, the forward pass that the shards run ahead (docs/decisions/run-ahead.md), and a
 * step with its own prompt. So steps are bounded by the time that a newcomer's prompt takes alone:
 * a step to two fifths of it, and its decoding rows to half of that. But a step is never bounded to
 * less than five times its fixed cost, nor its rows to less than twice. So at least half of the
 * machine's time is spent on rows and prompts.
 *
 * The fixed cost and the cost of a row come from steps with few and with many rows. pace.h keeps
 * the last steps only, which under load have nearly the same number of rows. While no steps with
 * fewer rows, or none without prompts, were seen, half of the rows are the bound, which yields such
 * steps.
 *
 * Pure: no clock, no I/O. */
#ifndef ROUTER_SCHEDULER_CONTEST_H
#define ROUTER_SCHEDULER_CONTEST_H
#include "router/scheduler/pace.h"
#include "router/scheduler/policy.h"

#define CONTEST_NS INT64_C(10000000000)
enum { CONTEST_SIZES = 16 };

struct contest {      /* zero-initialise */
    int64_t until_ns; /* clock_ns(); accounts compete until then */
    double tokens;    /* prompt tokens of a newcomer, a moving average */
    /* moving averages over steps without prompts of 2^i to 2^(i+1) - 1 rows; 0 rows: none yet */
    struct {
        double rows, seconds;
    } seen[CONTEST_SIZES];
};

/* A newcomer joins with `tokens` prompt tokens to compute. */
void contest_note(struct contest *c, uint32_t tokens, int64_t now_ns);
/* A step with `rows` decoding requests and `tokens` prompt tokens took `seconds`. */
void contest_step(struct contest *c, uint32_t rows, uint32_t tokens, double seconds);
/* Sets the bounds of `l`, whose other fields are set. Without a contest, or while the pace is
 * unknown, it changes nothing. */
void contest_bound(const struct contest *c, const struct pace *p, int64_t now_ns, struct load *l);
#endif
