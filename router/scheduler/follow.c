/* Several answers to one prompt (n, best_of): the prompt is computed once. The first request is the
 * leader. The others follow it outside the queue until its KV can be shared. If the leader fails or
 * is cancelled before, the oldest follower replaces it. */
#include "common/clock.h"
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>

void follow_enqueue(struct scheduler *s, struct seq *q)
{
    struct err e = ERR_INIT;
    assert(!q->leader && q->state != SEQ_RUNNING);
    q->state = SEQ_WAITING;
    if (policy_add(&s->policy, &q->waiter))
        return;
    err_nomem(&e);
    deliver_error(&s->deliver, q, &e, clock_ns());
    sched_drop(s, q);
}

bool follow(struct scheduler *s, struct seq *q)
{
    struct seq *leader = q->leads ? seq_table_find(&s->known, q->leads - 1) : NULL;
    while (leader && leader->state == SEQ_FOLLOWING)
        leader = leader->leader;
    if (!leader || !leader->req || !q->waiter.share || !leader->waiter.share ||
        (leader->state != SEQ_WAITING && leader->state != SEQ_JOINING && !seq_in_prompt(leader)))
        return false;
    q->state = SEQ_FOLLOWING;
    q->leader = leader;
    leader->waiter.awaited = true;
    q->next = leader->followers;
    leader->followers = q;
    sched_count(s, M_SHARED_PROMPTS, NULL, 1);
    return true;
}

/* Detaches `f` from its leader. */
static struct seq *first_follower(struct seq *q)
{
    struct seq *f = q->followers;
    assert(f && f->leader == q && f->state == SEQ_FOLLOWING);
    q->followers = f->next;
    f->leader = NULL;
    return f;
}

void follow_computed(struct scheduler *s, struct seq *q)
{
    while (q->followers)
        follow_enqueue(s, first_follower(q));
}

void follow_succeed(struct scheduler *s, struct seq *q)
{
    struct seq **at = &q->followers, *heir;
    if (!*at)
        return;
    while ((*at)->next)
        at = &(*at)->next;
    heir = *at;
    *at = NULL;
    heir->leader = NULL;
    heir->followers = q->followers;
    heir->waiter.awaited = heir->followers != NULL;
    q->followers = NULL;
    for (struct seq *f = heir->followers; f; f = f->next)
        f->leader = heir;
    follow_enqueue(s, heir); /* out of memory: it is dropped and the next follower becomes leader */
}

void follow_leave(struct seq *q)
{
    struct seq **at = &q->leader->followers;
    while (*at != q) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = q->next;
    q->leader = NULL;
}

void follow_fail_all(struct scheduler *s, const struct err *why)
{
    int64_t now = clock_ns();
    for (uint32_t i = 0; i < sizeof(s->known.bucket) / sizeof(s->known.bucket[0]); i++)
        for (struct seq *q = s->known.bucket[i]; q; q = q->chain)
            while (q->followers) {
                struct seq *f = first_follower(q);
                deliver_error(&s->deliver, f, why, now);
                sched_drop(s, f);
            }
}
