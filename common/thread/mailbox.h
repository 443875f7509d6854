/* mailbox.h - a lock-free queue of messages to one thread.
 *
 * Many senders, one receiver, intrusive nodes, no allocation. The receiver takes the whole list in
 * arrival order. The sender that makes the list non-empty must wake the receiver (rpc_post,
 * eventfd). */
#ifndef COMMON_MAILBOX_H
#define COMMON_MAILBOX_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct mail {
    struct mail *next;
};
struct mailbox {
    _Atomic(struct mail *) top;
};

static inline bool mailbox_put(struct mailbox *b, struct mail *m) /* true: wake the receiver */
{
    struct mail *old = atomic_load_explicit(&b->top, memory_order_relaxed);
    do
        m->next = old;
    while (!atomic_compare_exchange_weak_explicit(&b->top, &old, m, memory_order_release,
                                                  memory_order_relaxed));
    return old == NULL;
}

static inline struct mail *mailbox_take(struct mailbox *b) /* oldest first; NULL: empty */
{
    struct mail *m = atomic_exchange_explicit(&b->top, NULL, memory_order_acquire), *out = NULL;
    while (m) {
        struct mail *next = m->next;
        m->next = out;
        out = m;
        m = next;
    }
    return out;
}
#endif
