#include "router/draft/step_wait.h"
#include "router/metrics.h"
#include <assert.h>

void step_wait_init(struct step_wait *w, const struct step_wait_options *o)
{
    *w = (struct step_wait){.o = *o};
}

void step_wait_on_ready(struct step_wait *w, void (*ready)(void *arg), void *arg)
{
    w->ready = ready;
    w->ready_arg = arg;
}

void step_wait_new_shards(struct step_wait *w)
{
    w->call = (struct draft_duration){0};
    w->trust = (struct draft_trust){0};
}

bool step_wait_allowed(const struct step_wait *w)
{
    return !w->pending && draft_trust_holds(&w->trust);
}

/* The step continues with the drafts that are available. */
static void end(struct step_wait *w, const char *outcome)
{
    assert(w->count > 0);
    w->count = 0;
    if (w->o.metrics)
        metrics_add(w->o.metrics, M_DRAFT_WAITS, outcome, 1);
    w->ready(w->ready_arg);
}

static void on_timer(struct rpc_op *op, bool ok)
{
    struct step_wait *w = CONTAINER_OF(op, struct step_wait, timer);
    (void)ok;
    w->pending = false;
    if (w->count) {
        draft_trust_missed(&w->trust);
        end(w, "missed");
    } else {
        w->o.idle(w->o.arg);
    }
}

bool step_wait_begin(struct step_wait *w, struct draft_wait_case *c)
{
    assert(step_wait_allowed(w) && w->count == 0);
    c->step_ns = w->step.ns;
    c->draft_ns = w->call.ns;
    const struct draft_wait chosen = draft_wait_choose(c);
    if (chosen.count == 0)
        return false;
    w->count = chosen.count;
    w->timer = (struct rpc_op){on_timer, "drafts are awaited"};
    w->pending = true;
    rpc_after(w->o.loop, chosen.ms, &w->timer);
    return true;
}

void step_wait_answered(struct step_wait *w, int64_t ns)
{
    if (ns)
        draft_duration_note(&w->call, ns);
    draft_trust_answered(&w->trust);
}

void step_wait_met(struct step_wait *w)
{
    draft_trust_met(&w->trust);
    end(w, "met");
}

void step_wait_lost(struct step_wait *w) { end(w, "lost"); }
