/* stacks.h - what the threads of this process are doing, in its log: after a crash, and when a
 * watchdog wants to know.
 *
 * Each thread takes its own stack in a signal handler. Addresses become names by the symbol table
 * of the executable file, which also knows static functions; of libraries by what they export. The
 * paths below use no heap and no lock of ours: other threads may hold those for ever. */
#ifndef COMMON_STACKS_H
#define COMMON_STACKS_H
#include <signal.h>

/* The signal that asks a thread for its stack; a thread that blocks it cannot answer. */
#define STACKS_SIGNAL (SIGRTMIN + 9)

/* Once, from main, after log_init(). A fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) from
 * then on flushes the log, writes the stack of its thread to standard error, as lines of the log,
 * and ends the process as without us. Sanitizers do that themselves and are left alone. */
void stacks_init(void);
/* A line for each frame of each thread, at level ERROR. One caller at a time; milliseconds, and a
 * second for each thread that does not answer. */
void stacks_log(void);
#endif
