#include "model-server/spec/gate.h"
#include <assert.h>

/* GAIN: minimum saving of a head. Steps that are measured while it is paused include the cost of
 * its rows, which is not paid when it is off. */
static const double GAIN = 0.03, LEARN = 0.5;
enum { FIRST_PATIENCE = 4, MOST_PATIENCE = 64 };

struct gate gate_new(void)
{
    struct gate g = {.at = 0};
    for (int i = 0; i < GATE_SIZES; i++)
        g.size[i] = (struct gate_size){.in_use = true, .patience = FIRST_PATIENCE, .mode = GATE_ON};
    return g;
}

void gate_enter(struct gate *g, uint32_t seqs)
{
    g->at = 0;
    while (g->at + 1 < GATE_SIZES && 1u << g->at < seqs)
        g->at++;
}

bool gate_note(struct gate *g, uint32_t tokens, int64_t ns, bool drafted)
{
    struct gate_size *s = &g->size[g->at];
    s->idle = drafted ? 0 : s->idle + 1;
    if (s->steps++ >= GATE_SETTLE) {
        s->tokens += tokens;
        s->ns += ns;
    }
    return s->steps >= GATE_SETTLE + GATE_STEPS || (s->mode == GATE_ON && s->idle >= GATE_IDLE);
}

uint32_t gate_period_ns(const struct gate *g)
{
    const struct gate_size *s = &g->size[g->at];
    const double each = s->tokens ? (double)s->ns / (double)s->tokens : 1;
    return each < 1 ? 1 : each < GATE_MOST_NS ? (uint32_t)each : GATE_MOST_NS;
}

static void begin(struct gate_size *s, enum gate_mode mode)
{
    s->mode = mode;
    s->steps = s->idle = 0;
    s->tokens = 0;
    s->ns = 0;
}

static void learn(double *known, double ns) { *known += (ns - *known) * (*known > 0 ? LEARN : 1); }

/* After a trial of the unused mode: `on`: the head is faster. */
static void compare(struct gate_size *s, bool on)
{
    if (on != s->in_use) {
        s->in_use = on;
        s->patience = FIRST_PATIENCE;
    } else {
        s->patience = s->patience < MOST_PATIENCE / 2 ? 2 * s->patience : MOST_PATIENCE;
    }
    s->rest = s->patience;
}

void gate_decide(struct gate *g, uint32_t ns)
{
    struct gate_size *s = &g->size[g->at];
    const bool on = s->mode == GATE_ON, idle = on && s->idle >= GATE_IDLE;
    assert(ns > 0);
    if (!idle)
        learn(on ? &s->with : &s->without, ns);
    if (on != s->in_use) {
        compare(s, !idle && s->with > 0 && s->with < (1 - GAIN) * s->without);
    } else if (idle) { /* given up */
        s->in_use = false;
        s->rest = s->patience;
    } else if (s->rest > 0) {
        s->rest--;
    }
    if (s->rest > 0)
        begin(s, s->in_use ? GATE_ON : GATE_OFF);
    else
        begin(s, s->in_use ? GATE_PAUSED : GATE_ON);
}
