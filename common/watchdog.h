/* watchdog.h - says in the log when a thread that serves makes no progress, and ends what is stuck.
 *
 * A thread keeps a timestamp (clock_ns()): since when it has been busy with one thing, 0 while it
 * waits for work. A stamp that stays the same for longer than the limit is a stall. Each stall is
 * reported once: which thread, the state of the program, the stacks of all threads.
 *
 * A thread may have a second limit, behind which the process cannot serve any more: it is reported
 * again, and the watchdog calls the function that ends the process. That limit follows the pace of
 * the machine. It is at least WATCHDOG_TIMES the longest time that this stamp stayed the same
 * before; while the process uses CPU time (it may still be computing) WATCHDOG_BUSY_TIMES as much;
 * and only time counts in which the watchdog itself ran. */
#ifndef COMMON_WATCHDOG_H
#define COMMON_WATCHDOG_H
#include "common/clock.h"
#include "common/err.h"
#include <stdatomic.h>
#include <stdint.h>

struct watchdog;
enum { WATCHDOG_MOST = 128, WATCHDOG_TIMES = 10, WATCHDOG_BUSY_TIMES = 10 };

/* limit_ms 0: no stall is reported. `state` logs what the program knows of itself, on the
 * watchdog's thread: it may read atomics, and must take no lock that a stuck thread could hold.
 * Call stacks_init() before. Stop it before what it watches goes. */
struct watchdog *watchdog_new(uint32_t limit_ms, void (*state)(void *arg), void *arg,
                              struct err *e);
/* Any thread, also while it runs; NULL: nothing is watched. `name` is static. Beyond WATCHDOG_MOST
 * stamps nothing is added. The stamp is not read any more once watchdog_remove() has returned. */
void watchdog_add(struct watchdog *w, const char *name, const _Atomic int64_t *busy_ns);
/* Behind `limit_ms` without progress `end` is called once, on the watchdog's thread. It is for one
 * that was added; call it before watchdog_start(). */
void watchdog_end_stuck(struct watchdog *w, const _Atomic int64_t *busy_ns, uint32_t limit_ms,
                        void (*end)(void *arg), void *arg);
void watchdog_remove(struct watchdog *w, const _Atomic int64_t *busy_ns);
int watchdog_start(struct watchdog *w, struct err *e);
void watchdog_stop(struct watchdog *w); /* nothing is looked at any more; NULL is fine */
void watchdog_free(struct watchdog *w); /* the same */

/* For the thread that is watched: it begins something, or goes on with it; it waits. */
static inline void watch_busy(_Atomic int64_t *busy_ns)
{
    atomic_store_explicit(busy_ns, clock_ns(), memory_order_relaxed);
}
static inline void watch_idle(_Atomic int64_t *busy_ns)
{
    atomic_store_explicit(busy_ns, 0, memory_order_relaxed);
}
#endif
