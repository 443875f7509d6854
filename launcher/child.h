/* child.h - one child process: its pipes, its last log lines, its exit status. Main thread only. */
#ifndef LAUNCHER_CHILD_H
#define LAUNCHER_CHILD_H
#include "launcher/liveness.h"
#include "launcher/plan.h"
#include "launcher/relog.h"
#include <sys/types.h>

struct child {
    const char *name; /* "shard-0": target of its log lines */
    pid_t pid;        /* 0: never started */
    bool alive;
    int status;         /* waitpid()'s status, once not alive */
    int fds[2];         /* stdout, stderr; -1: closed */
    int64_t started;    /* ms, monotonic */
    struct relog *logs; /* [2] */
    struct relog_last last;
    struct liveness liveness;
};

/* Starts `cmd` with output pipes and a heartbeat eventfd. `name` is not copied. */
int child_start(struct child *c, const char *name, const struct command *cmd, struct err *e);
void child_read(struct child *c, int which); /* forwards available output; does not block */
/* it was reaped: reads the rest and closes the pipes */
void child_ended(struct child *c, int status);
void child_stopped(struct child *c, bool stopped); /* wait(2) reported a stop, or its end */
void child_signal(struct child *c, int sig); /* signals its process group; nothing if not alive */
void child_free(struct child *c);
/* Kills it if it is frozen (liveness.h). `turn_ms`: ms since the last call. */
void child_watch(struct child *c, uint32_t turn_ms, uint32_t timeout_ms);

/* "exited with code 3: cannot open model.safetensors", "was killed by signal 9 (Killed)". */
void child_cause(const struct child *c, char *out, size_t max);
#endif
