#include "common/thread/pacer.h"
#include "common/clock.h"
#include "common/thread/cond.h"
#include <errno.h>

void pacer_init(struct pacer *p)
{
    *p = (struct pacer){.lock = PTHREAD_MUTEX_INITIALIZER};
    cond_init(&p->stopped);
}

void pacer_destroy(struct pacer *p)
{
    pthread_cond_destroy(&p->stopped);
    pthread_mutex_destroy(&p->lock);
}

bool pacer_rest(struct pacer *p, unsigned share)
{
    const int64_t now = clock_ns(), most = (int64_t)PACER_MOST_MS * 1000000;
    int64_t rest = p->since ? (now - p->since) * share : 0;
    rest = rest < most ? rest : most;
    const struct timespec until = clock_timespec(now + rest);
    pthread_mutex_lock(&p->lock);
    while (rest && !p->stop && pthread_cond_timedwait(&p->stopped, &p->lock, &until) != ETIMEDOUT)
        ;
    const bool go_on = !p->stop;
    pthread_mutex_unlock(&p->lock);
    p->since = rest ? clock_ns() : now;
    return go_on;
}

void pacer_stop(struct pacer *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->stopped);
    pthread_mutex_unlock(&p->lock);
}
