/* Hands requests to the owner, who has other shards, after this embedder has lost its own. */
#include "router/embed/state.h"
#include <assert.h>

/* Texts of a call that was lost count as not sent: the values of those before them have come. */
static void take_back(struct embedder *s)
{
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct embed_job *j = s->slots[i].job;
        j->next--;
        if (--j->in_flight > 0 || j->waiting)
            continue;
        j->waiting = true;
        fair_wait(&s->queue, &j->fair);
    }
    s->n_slots = 0;
    s->again = false;
}

void embedder_hand_over(struct embedder *s)
{
    if (!s->o.owner || s->link_state == LINK_CONNECTED || s->stopping)
        return;
    assert(!s->call.busy);
    take_back(s);
    for (struct fair_item *it; (it = fair_first(&s->queue));) {
        struct embed_job *j = CONTAINER_OF(it, struct embed_job, fair);
        fair_unwait(&s->queue, it);
        fair_leave(&s->queue, it);
        j->waiting = false;
        s->n_jobs--;
        s->o.owner->hand_over_texts(s->o.owner->arg, j);
    }
}
