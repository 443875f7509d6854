/* cond.h - condition variables with deadlines on CLOCK_MONOTONIC, as clock_deadline() in
 * common/clock.h returns them, so that wall clock changes do not affect timeouts. */
#ifndef COMMON_COND_H
#define COMMON_COND_H
#include <pthread.h>
#include <time.h>

/* As pthread_cond_init(); free with pthread_cond_destroy(). */
static inline void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
#endif
