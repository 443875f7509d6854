/* clock.h - monotonic time in ns and ms. Pure modules take the time as an argument instead. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t clock_ms(void) { return clock_ns() / 1000000; }
static inline struct timespec clock_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}
/* The time `ms` from now, for pthread_cond_timedwait() on a condition of cond.h
 * (CLOCK_MONOTONIC). */
static inline struct timespec clock_deadline(int64_t ms)
{
    return clock_timespec(clock_ns() + ms * 1000000);
}
#endif
