/* cond.h - condition variables with a deadline: they count CLOCK_MONOTONIC, as clock_deadline() of
 * common/clock.h does, so that a change of the wall clock moves no deadline. */
#ifndef COMMON_COND_H
#define COMMON_COND_H
#include <pthread.h>
#include <time.h>

/* As pthread_cond_init(); freed with pthread_cond_destroy(). */
static inline void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
#endif
