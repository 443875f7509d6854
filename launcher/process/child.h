/* child.h - one child process: its pipes, its last log lines, its exit status. Main thread only. */
#ifndef LAUNCHER_CHILD_H
#define LAUNCHER_CHILD_H
#include "launcher/plan/plan.h"
#include "launcher/process/liveness.h"
#include "launcher/process/relog.h"
#include <sys/types.h>

enum { CHILD_PROBES = 16 };

struct child {
    const char *name; /* "shard-0": target of its log lines */
    pid_t pid;        /* 0: never started */
    bool alive;
    int status;         /* waitpid()'s status, once not alive */
    bool killed;        /* by child_signal() */
    bool vital;         /* set by its owner: the service ends with it */
    bool no_memory;     /* killed by the kernel for lack of memory (refused.h) */
    int fds[2];         /* stdout, stderr; -1: closed */
    int64_t started;    /* ms, monotonic */
    struct relog *logs; /* [2] */
    struct relog_last last;
    struct liveness liveness;
};

/* Starts `cmd` with output pipes and a heartbeat eventfd. `name` is not copied. -1: it
 * is not alive; child_free() it all the same. */
int child_start(struct child *c, const char *name, const struct command *cmd, struct err *e);
/* Forwards the available output of fds[which] to the log; does not block. */
void child_read(struct child *c, int which);
/* Records that the process was reaped with `status`; forwards the rest of its output and closes the
 * pipes. */
void child_ended(struct child *c, int status);
/* Records what wait(2) reported: that the process was stopped by a signal, or continued. */
void child_stopped(struct child *c, bool stopped);
void child_signal(struct child *c, int sig); /* signals its process group; nothing if not alive */
void child_free(struct child *c);            /* it must have ended; a zeroed one is allowed */
/* Was it a health probe that a signal ended? That says nothing about its shard: *n, the number of
 * such probes of a load, is counted, and another one is to be started. False after CHILD_PROBES. */
bool child_probe_again(const struct child *c, uint32_t *n);
/* Kills it if it is frozen (liveness.h); a vital one that was stopped by a signal is continued
 * instead. `turn_ms`: ms since the last call; timeout_ms 0: never. */
void child_watch(struct child *c, uint32_t turn_ms, uint32_t timeout_ms);

/* Writes how it ended, with its last error message: "exited with code 3: cannot open
 * model.safetensors", "was killed by signal 9 (Killed)". */
void child_cause(const struct child *c, char *out, size_t max);
#endif
