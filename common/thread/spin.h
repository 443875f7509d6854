/* spin.h - short waits in a loop of pauses, before a thread sleeps.
 *
 * A wait of some microseconds costs less in a loop than by a futex. A loop that ends without the
 * event has used a core for nothing, and the awaited thread may need that very core: where threads
 * are more than cores, waits take as long as a time slice. So long sleeps make a loop shorter.
 * Short waits make a rank's loop some times as long as they were of late, and a thread's whole at
 * once: ranks that sleep let each other run, and a thread that sleeps in a step loses its core to
 * others.
 *
 * A pause takes 5 to 150 cycles, depending on the CPU: the length of the loop is measured once. */
#ifndef COMMON_SPIN_H
#define COMMON_SPIN_H
#include <stdbool.h>
#include <stdint.h>

enum { SPIN_NS = 30000 }; /* longer than the gap between two operations of a step */

/* Of one waiting thread. */
struct spin {
    uint32_t most, now; /* pauses: of the whole loop, and of the next one */
    bool whole;         /* after one short wait */
};

/* Measures a pause; takes less than 100 us. `whole`: see struct spin. */
struct spin spin_new(bool whole);
/* A loop saw the event after `n` pauses. */
void spin_gained(struct spin *s, uint32_t n);
/* A loop did not, and the sleep after it took so long. */
void spin_slept(struct spin *s, int64_t ns);

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif
