/* process.h - the begin and the end of a program: what it must not take over from the one that
 * started it, and what it must not wait for. */
#ifndef COMMON_PROCESS_H
#define COMMON_PROCESS_H
#include <stdbool.h>

/* To be called first in main(), before anything is opened. Opens /dev/null for each of the
 * descriptors 0 to 2 that is closed: otherwise the next file or socket gets its number, and log
 * lines are written into it. SIGCHLD gets its default action: where it is ignored, the kernel reaps
 * children itself, and waitpid() never returns one.
 * SIGXFSZ is ignored: a file that may not grow (ulimit -f) is an error of write(), as a full disk.
 * SIGUSR1 and SIGUSR2 are ignored: tools that rotate logs send them to any daemon.
 * Threads get stacks of at least 8 MiB, as with the usual `ulimit -s`: where it is unlimited, glibc
 * gives them 2 MiB, which a constraint of many levels may exceed. */
void process_begin(void);
/* Ends the process after so many seconds with exit code 0 (`well`) or 1; 0 seconds: does not, any
 * more. To be called when nothing is left to do but freeing memory: gRPC 1.51 waits for ever for a
 * thread that it could not start. */
void process_close_within(unsigned seconds, bool well);
#endif
