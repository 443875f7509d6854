#include "common/rpc/timers.h"
#include "common/clock.h"
#include "common/thread/cond.h"
#include <assert.h>
#include <stddef.h>

void rpc_timers_init(struct rpc_timers *t, void (*fire)(void *arg, struct rpc_op *op), void *arg)
{
    *t = (struct rpc_timers){.fire = fire, .arg = arg};
    pthread_mutex_init(&t->lock, NULL);
    cond_init(&t->turn);
}

static void *run(void *arg)
{
    struct rpc_timers *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct rpc_op *op = t->first;
        if (!op) {
            pthread_cond_wait(&t->turn, &t->lock);
        } else if (op->due_ns > clock_ns()) {
            const struct timespec until = clock_timespec(op->due_ns);
            pthread_cond_timedwait(&t->turn, &t->lock, &until);
        } else {
            t->first = op->next;
            pthread_mutex_unlock(&t->lock);
            t->fire(t->arg, op);
            pthread_mutex_lock(&t->lock);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int rpc_timers_add(struct rpc_timers *t, int64_t ms, struct rpc_op *op)
{
    op->due_ns = clock_ns() + ms * 1000000;
    pthread_mutex_lock(&t->lock);
    if (!t->runs)
        t->runs = pthread_create(&t->thread, NULL, run, t) == 0;
    const bool runs = t->runs;
    if (runs) {
        struct rpc_op **at = &t->first;
        while (*at && (*at)->due_ns <= op->due_ns)
            at = &(*at)->next;
        op->next = *at;
        *at = op;
        if (t->first == op)
            pthread_cond_signal(&t->turn);
    }
    pthread_mutex_unlock(&t->lock);
    return runs ? 0 : -1;
}

void rpc_timers_fini(struct rpc_timers *t)
{
    pthread_mutex_lock(&t->lock);
    assert(!t->first);
    t->stop = true;
    pthread_cond_signal(&t->turn);
    pthread_mutex_unlock(&t->lock);
    if (t->runs)
        pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->turn);
    pthread_mutex_destroy(&t->lock);
}
