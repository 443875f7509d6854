/* stacks.h - logs the stacks of this process' threads, after a crash or for a watchdog.
 *
 * Each thread records its own stack in a signal handler. Addresses are resolved by the symbol table
 * of the executable, which includes static functions, and by the exported symbols of libraries.
 * These functions use no heap and none of our locks, which other threads may hold. */
#ifndef COMMON_LOG_STACKS_H
#define COMMON_LOG_STACKS_H
#include <signal.h>

/* Signal that requests a thread's stack; a thread that blocks it cannot answer. */
#define STACKS_SIGNAL (SIGRTMIN + 9)

/* Call once from main, after log_init(). Then a fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
 * SIGABRT) flushes the log, writes the stack of its thread to standard error as log lines, and ends
 * the process as usual. SIGBUS also names the mapped file that cannot be read. Disabled with
 * sanitizers, which do this themselves. */
void stacks_init(void);
/* Logs each frame of each thread at level ERROR. One caller at a time. Takes milliseconds, plus a
 * second for each thread that does not answer. */
void stacks_log(void);
#endif
