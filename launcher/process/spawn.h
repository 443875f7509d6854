/* spawn.h - starts a child that cannot outlive the launcher.
 *
 * The child leads its own process group, so a Ctrl-C at the terminal reaches only the launcher,
 * which then stops the children in order. The kernel kills the child if the launcher ends in any
 * way. It reads from /dev/null and writes to two pipes. Call from the main thread only: the death
 * signal is tied to the thread that forks. */
#ifndef LAUNCHER_SPAWN_H
#define LAUNCHER_SPAWN_H
#include "common/err.h"
#include <sched.h>
#include <sys/types.h>

struct spawned {
    pid_t pid;
    int out, err; /* read ends, non-blocking, close-on-exec; the caller closes them */
};

/* Finds `program`: a name with a slash is used as it is. Otherwise in $LAUNCHER_BIN_DIR if set,
 * else beside our own executable, else in $PATH. */
void spawn_find(const char *program, char *path, size_t max);

/* `keep`: three descriptors inherited under their numbers; 0: none. `cores`: allowed cores; NULL:
 * ours. Errors name the file that could not be executed. */
int spawn(const char *path, char *const *argv, char *const *env, const int keep[3],
          const cpu_set_t *cores, struct spawned *out, struct err *e);
#endif
