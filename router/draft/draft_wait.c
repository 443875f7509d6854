#include "router/draft/draft_wait.h"
#include <assert.h>
#include <math.h>

enum {
    MOST_COUNT = 8, /* larger counts are never best, for up to sixteen drafts per step */
    LEAST_MS = 2,   /* timers count milliseconds */
    MOST_MS = 250,
    FIRST_REST = 64,
    MOST_DOUBLED = 8
};
/* ROW: cost of an additional row in a step. LONGEST: longest expected wait, in units of a step; the
 * deadline is twice the expected wait, at most MOST_PART. WORTH: minimum gain, above the noise.
 * IN_CALL: on average half a draft call for rejected tokens must finish first. */
static const double ROW = 0.03, LONGEST = 1.0 / 3, MOST_PART = 0.45, WORTH = 0.02, IN_CALL = 0.5;
#define BETWEEN_NS 3e5 /* two calls: the router and one rpc */
static const float AT_FIRST = 0.7f, LEARN_HITS = 1.0f / 32;
#define LEARN_NS (1.0 / 8)

void draft_duration_note(struct draft_duration *d, int64_t ns)
{
    double v = ns > 1 ? (double)ns : 1;
    if (d->ns == 0)
        d->ns = v;
    else
        d->ns += ((v < 2 * d->ns ? v : 2 * d->ns) - d->ns) * LEARN_NS;
}

struct draft_hits draft_hits_new(void) { return (struct draft_hits){AT_FIRST}; }

void draft_hits_note(struct draft_hits *h, bool right)
{
    h->rate += ((float)right - h->rate) * LEARN_HITS;
}

/* Expected wait until k drafts exist. */
static double wait_of(uint32_t k, double ratio) { return k ? (k + IN_CALL) / ratio : 0; }

/* Time between two rejections, without the duration of the first step and its wait. */
static double rest_of(uint32_t k, double a, uint32_t m)
{
    return ROW * k + pow(a, k + 1) * (1 + ROW * m) / (1 - pow(a, m + 1));
}

static double bounded(double acceptance)
{
    return acceptance < 0.01 ? 0.01 : acceptance > 0.99 ? 0.99 : acceptance;
}

/* Drafts generated during a step. */
static uint32_t made(const struct draft_wait_case *c)
{
    const double ratio = c->step_ns / c->draft_ns;
    return ratio >= c->most + 1.0 ? c->most : ratio > 1 ? (uint32_t)ratio - 1 : 0;
}

bool draft_runs_ahead(const struct draft_wait_case *c)
{
    if (c->step_ns <= 0 || c->draft_ns <= 0)
        return true;
    /* A longer chain than `most` is never verified, and a call in progress would delay the one that
     * a rejection needs. */
    if (c->step_ns >= (c->most + 1.0) * c->draft_ns)
        return false;
    /* `ends`: the probability that a step ends during a given call. `rejects`: the probability that
     * it then rejects a draft. */
    const double ends = c->draft_ns < c->step_ns ? c->draft_ns / c->step_ns : 1;
    const double rejects = 1 - pow(bounded(c->acceptance), made(c) + 1);
    return BETWEEN_NS > ends * rejects * c->draft_ns;
}

struct draft_wait draft_wait_choose(const struct draft_wait_case *c)
{
    struct draft_wait best = {0};
    assert(c->lacking <= c->running);
    if (c->step_ns <= 0 || c->draft_ns <= 0 || c->lacking == 0)
        return best;
    double ratio = c->step_ns / c->draft_ns, a = bounded(c->acceptance);
    uint32_t m = made(c);
    double least = c->lacking * rest_of(0, a, m) - WORTH * c->running;
    for (uint32_t k = 1; k <= c->most && k <= MOST_COUNT; k++) {
        double wait = wait_of(k, ratio), time = c->running * wait + c->lacking * rest_of(k, a, m);
        double part = 2 * wait < MOST_PART ? 2 * wait : MOST_PART;
        int64_t ms = (int64_t)(part * c->step_ns * 1e-6);
        if (wait > LONGEST || ms < LEAST_MS || time >= least)
            continue;
        least = time;
        best = (struct draft_wait){k, ms < MOST_MS ? ms : MOST_MS};
    }
    return best;
}

void draft_trust_answered(struct draft_trust *t)
{
    if (t->rest > 0)
        t->rest--;
}

void draft_trust_met(struct draft_trust *t) { t->misses = 0; }

void draft_trust_missed(struct draft_trust *t)
{
    t->rest = FIRST_REST << (t->misses < MOST_DOUBLED ? t->misses : MOST_DOUBLED);
    t->misses++;
}
