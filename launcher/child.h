/* child.h - one child process: its pipes, its last words, how it ended. Main thread only. */
#ifndef LAUNCHER_CHILD_H
#define LAUNCHER_CHILD_H
#include "launcher/liveness.h"
#include "launcher/plan.h"
#include "launcher/relog.h"
#include <sys/types.h>

struct child {
    const char *name; /* "shard-0": the log lines' target */
    pid_t pid;        /* 0: never started */
    bool alive;
    int status;         /* waitpid()'s, once not alive */
    int fds[2];         /* stdout, stderr; -1: closed */
    int64_t started;    /* ms, monotonic */
    struct relog *logs; /* [2] */
    struct relog_last last;
    struct liveness liveness;
};

int child_start(struct child *c, const char *name, const struct command *cmd, struct err *e);
void child_read(struct child *c, int which);   /* pass on what is there, without waiting */
void child_ended(struct child *c, int status); /* it was reaped: read the rest, close */
void child_signal(struct child *c, int sig);   /* its whole process group; nothing if not alive */
void child_free(struct child *c);
/* Kills it if it is frozen (liveness.h). `turn_ms` have passed since the last call. */
void child_watch(struct child *c, uint32_t turn_ms, uint32_t timeout_ms);

/* "exited with code 3: cannot open model.safetensors", "was killed by signal 9 (Killed)". */
void child_cause(const struct child *c, char *out, size_t max);
#endif
