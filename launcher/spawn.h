/* spawn.h - start one child so that it cannot outlive us.
 *
 * The child leads its own process group (a Ctrl-C at the terminal reaches the launcher alone, which
 * then stops things in order), has the kernel kill it when the launcher dies in whatever way, reads
 * from /dev/null, and writes to two pipes. To be called from the main thread only: the death signal
 * is tied to the thread that forks. */
#ifndef LAUNCHER_SPAWN_H
#define LAUNCHER_SPAWN_H
#include "common/err.h"
#include <sched.h>
#include <sys/types.h>

struct spawned {
    pid_t pid;
    int out, err; /* read ends, non-blocking, close-on-exec; the caller closes */
};

/* Where `program` is: a name with a slash is itself; else in $LAUNCHER_BIN_DIR if that is set, else
 * beside our own executable, else left to $PATH. */
void spawn_find(const char *program, char *path, size_t max);

/* `keep`: three descriptors that the child inherits under their numbers; 0: none. `cores`: those
 * that it may use; NULL: ours. Errors name the file that could not be run. */
int spawn(const char *path, char *const *argv, char *const *env, const int keep[3],
          const cpu_set_t *cores, struct spawned *out, struct err *e);
#endif
