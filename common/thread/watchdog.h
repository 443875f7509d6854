/* watchdog.h - reports threads that make no progress, and ends processes that hang.
 *
 * A thread keeps a timestamp (clock_ns()) of when its current work began; 0 while it waits for
 * work. A timestamp unchanged for longer than the limit is a stall. Each stall is reported once,
 * with the thread, the state of the program, and the stacks of all threads.
 *
 * A thread may have a second limit, after which the process cannot recover: the stall is reported
 * again, and the watchdog calls the function that ends the process. That limit adapts to the
 * machine. It is at least WATCHDOG_TIMES the longest earlier pause of this timestamp. It
 * is WATCHDOG_BUSY_TIMES as long while the process uses CPU time and so may be computing. Only time
 * in which the watchdog itself ran is counted. */
#ifndef COMMON_WATCHDOG_H
#define COMMON_WATCHDOG_H
#include "common/clock.h"
#include "common/err.h"
#include <stdatomic.h>
#include <stdint.h>

struct watchdog;
enum { WATCHDOG_MOST = 128, WATCHDOG_TIMES = 10, WATCHDOG_BUSY_TIMES = 10 };

/* limit_ms 0: stalls are not reported. `state` logs the program's state on the watchdog thread: it
 * may read atomics, and must take no lock that a hung thread could hold. Call stacks_init() before.
 * Stop the watchdog before the timestamps are freed. */
struct watchdog *watchdog_new(uint32_t limit_ms, void (*state)(void *arg), void *arg,
                              struct err *e);
/* Any thread, also while it runs; `w` may be NULL. `name` is static. At most WATCHDOG_MOST
 * timestamps; more are ignored. After watchdog_remove() has returned the timestamp is not read any
 * more. */
void watchdog_add(struct watchdog *w, const char *name, const _Atomic int64_t *busy_ns);
/* After `limit_ms` without progress `end` is called once, on the watchdog thread. For an added
 * timestamp; call before watchdog_start(). */
void watchdog_end_stuck(struct watchdog *w, const _Atomic int64_t *busy_ns, uint32_t limit_ms,
                        void (*end)(void *arg), void *arg);
void watchdog_remove(struct watchdog *w, const _Atomic int64_t *busy_ns);
int watchdog_start(struct watchdog *w, struct err *e);
void watchdog_stop(struct watchdog *w); /* ends the thread; NULL is allowed */
void watchdog_free(struct watchdog *w); /* NULL is allowed */

/* For the watched thread: it begins or continues work; it waits for work. */
static inline void watch_busy(_Atomic int64_t *busy_ns)
{
    atomic_store_explicit(busy_ns, clock_ns(), memory_order_relaxed);
}
static inline void watch_idle(_Atomic int64_t *busy_ns)
{
    atomic_store_explicit(busy_ns, 0, memory_order_relaxed);
}
#endif
