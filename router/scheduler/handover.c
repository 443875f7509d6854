/* Hands requests to the owner, who has other shards, after this scheduler has lost its own.
 *
 * By then, requests that ran are queued again with their generated tokens (rejoin.c). This runs at
 * the end of a turn: all events of these tokens have been sent. */
#include "router/scheduler/state.h"
#include <assert.h>

static void hand_over(struct scheduler *s, struct seq *q)
{
    struct gen_request *r = q->req;
    const struct gen_resume g = {.ids = q->tokens + q->n_prompt,
                                 .n = seq_generated(q),
                                 .n_lost = q->n_lost,
                                 .begun = q->n_preempted > 0};
    assert(r); /* a request is removed from the queue with its last event */
    q->req = NULL;
    s->o.owner->hand_over(s->o.owner->arg, r, &g);
    sched_drop(s, q); /* its followers are queued, or follow another leader */
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
