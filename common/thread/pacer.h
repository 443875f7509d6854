/* pacer.h - a background thread that sleeps between pieces of work.
 *
 * Such a thread must not have a low priority. On a busy machine, the kernel may not run a thread
 * under SCHED_IDLE for seconds. Other threads wait as long for the locks that it holds (page faults
 * hold one that mmap() needs), and so does the thread that joins it. So it keeps its priority and
 * sleeps after each short piece, in proportion to the time of the piece. A piece takes longer on a
 * busy machine, and so does the sleep after it. */
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
