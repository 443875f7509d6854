/* Requests of a scheduler that has lost its shards, handed to its owner, who has other ones.
 *
 * What ran waits again by then (rejoin.c), with the tokens that it has generated. This is the end
 * of a turn: the clients have been told of every one of them. */
#include "router/scheduler/state.h"
#include <assert.h>

static void hand_over(struct scheduler *s, struct seq *q)
{
    struct gen_request *r = q->req;
    const struct gen_resume g = {.ids = q->tokens + q->n_prompt,
                                 .n = seq_generated(q),
                                 .n_lost = q->n_lost,
                                 .begun = q->n_preempted > 0};
    assert(r); /* the last event takes a request out of the queue */
    q->req = NULL;
    s->o.owner->hand_over(s->o.owner->arg, r, &g);
    sched_drop(s, q); /* who followed it waits now, or follows another one */
}

void hand_over_waiting(struct scheduler *s)
{
    if (!s->o.owner || s->link_state == LINK_CONNECTED || s->stopping)
        return;
    for (struct waiter *w; (w = policy_any(&s->policy));) {
        struct seq *q = CONTAINER_OF(w, struct seq, waiter);
        policy_remove(&s->policy, w);
        hand_over(s, q);
    }
}
