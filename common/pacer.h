/* pacer.h - rests of a thread that works in the background.
 *
 * Such a thread cannot have a low priority. On a busy machine, a thread under SCHED_IDLE may not
 * run for seconds. Whoever needs a lock that it holds in the kernel (mmap() needs that of page
 * faults), or joins it, waits as long. So it keeps its priority and sleeps between short pieces of
 * work, in proportion to their time. A piece takes longer on a busy machine, and so does the rest
 * after it. */
#ifndef COMMON_PACER_H
#define COMMON_PACER_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { PACER_MOST_MS = 200 }; /* a rest is not longer, so that the work ends at some time */

struct pacer {
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;
    int64_t since; /* when the last rest ended, ns; 0: no rest yet */
};

void pacer_init(struct pacer *p);
void pacer_destroy(struct pacer *p); /* after its thread has been joined */

/* The thread calls this after each piece of work. Sleeps `share` times as long as the piece took;
 * 0: does not sleep. False: pacer_stop() was called, and the thread must return. */
bool pacer_rest(struct pacer *p, unsigned share);

/* Wakes the thread for good. Any thread. */
void pacer_stop(struct pacer *p);
#endif
