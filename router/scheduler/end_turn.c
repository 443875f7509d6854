/* End of a scheduler turn: publishes status and gauges, sends queue positions, flushes sinks, frees
 * ended requests. */
#include "router/metrics.h"
#include "router/scheduler/state.h"
#include <assert.h>

static void publish_cells(struct scheduler *s)
{
    struct cells_stats c = cells_stats(kv_cells(s->kv));
    atomic_store_explicit(&s->o.status->cells_used, c.owned, memory_order_relaxed);
    sched_gauge(s, M_STATE_CELLS, "used", c.owned);
    sched_gauge(s, M_STATE_CELLS, "snapshot", c.snapshots);
    sched_gauge(s, M_STATE_CELLS, "free", c.free);
}

static void publish_windows(struct scheduler *s)
{
    struct windows_stats w = windows_stats(kv_windows(s->kv));
    sched_gauge(s, M_WINDOW_BLOCKS, "used", w.used);
    sched_gauge(s, M_WINDOW_BLOCKS, "cached", w.cached);
    sched_gauge(s, M_WINDOW_BLOCKS, "free", w.free);
}

void sched_publish(struct scheduler *s)
{
    struct sched_status *t = s->o.status;
    struct kv_stats kv = kv_stats(s->kv);
    uint32_t n_waiting = s->known.n - s->n_running - s->n_joining; /* includes followers */
    for (const struct seq *q = s->dropped; q; q = q->next)
        n_waiting--;
    atomic_store_explicit(&t->blocks_total, kv.total, memory_order_relaxed);
    atomic_store_explicit(&t->blocks_used, kv.used, memory_order_relaxed);
    atomic_store_explicit(&t->blocks_cached, kv.cached, memory_order_relaxed);
    atomic_store_explicit(&t->healthy, !s->suspect && !s->lost && s->link_state == LINK_CONNECTED,
                          memory_order_relaxed);
    sched_gauge(s, M_QUEUE_SIZE, NULL, n_waiting);
    assert(s->policy.fair.n_waiting <= n_waiting);
    sched_gauge(s, M_QUEUE_REASONS, "capacity", s->policy.fair.n_waiting);
    sched_gauge(s, M_QUEUE_REASONS, "deferred", n_waiting - s->policy.fair.n_waiting);
    sched_gauge(s, M_QUEUE_KEYS, NULL, fair_present(&s->policy.fair));
    sched_gauge(s, M_BATCH_CURRENT_SIZE, NULL, s->n_running + s->n_joining);
    sched_gauge(s, M_BATCH_CURRENT_MAX_TOKENS, NULL, (double)kv.used * s->peer.block_size);
    sched_gauge(s, M_KV_BLOCKS, "used", kv.used);
    sched_gauge(s, M_KV_BLOCKS, "cached", kv.cached);
    sched_gauge(s, M_KV_BLOCKS, "free", kv.free);
    if (kv_cells(s->kv))
        publish_cells(s);
    if (kv_windows(s->kv))
        publish_windows(s);
    if (s->adapters.list->n > 0)
        adapter_shelf_note(&s->shelf, s->adapters.use);
    sched_gauge(s, M_SWAP_USED, NULL, swap_used(&s->swap));
    atomic_store_explicit(&t->swap_used, swap_used(&s->swap), memory_order_relaxed);
    /* last: a reader of zero also reads the counts above of that moment */
    atomic_store_explicit(&t->queued, n_waiting, memory_order_release);
    atomic_store_explicit(&t->running, s->n_running + s->n_joining, memory_order_release);
}

/* Sends queue positions to requests that ask for them. The estimate ignores future changes of the
 * accounts. */
static void send_places(struct scheduler *s)
{
    uint32_t place = 0;
    if (s->n_placed == 0)
        return;
    for (struct fair_item *it = fair_first(&s->policy.fair); it; it = fair_next(&s->policy.fair)) {
        const struct seq *q = CONTAINER_OF(it, struct seq, waiter.fair);
        place++;
        if (q->req && q->req->wants_place)
            atomic_store_explicit(&q->req->place, place, memory_order_relaxed);
    }
}

void sched_end_turn(struct scheduler *s)
{
    if (s->o.check)
        kv_check(s->kv);
    kv_events_flush(s);
    hand_over_waiting(s);
    if (s->drafts)
        s->drafts->turn(s->drafts->self);
    send_places(s);
    sched_publish(s); /* before the sinks wake a reader */
    deliver_flush(&s->deliver);
    while (s->dropped) {
        struct seq *q = s->dropped;
        s->dropped = q->next;
        assert(!q->req); /* every request has had its last event */
        seq_table_remove(&s->known, q);
        s->n_placed -= q->placed;
        seq_free(q);
    }
}
