/* refused.h - says when the control groups refuse processes and threads (pids.max: `--pids-limit`
 * of docker, `TasksMax` of systemd). Libraries do not report a thread that could not be started:
 * what it should have done just never happens. */
#ifndef LAUNCHER_REFUSED_H
#define LAUNCHER_REFUSED_H
#include "common/cgroup.h"
#include <stdint.h>

struct refused {
    uint64_t seen;
};

/* Counts what was refused before this launch, which is not reported. */
void refused_init(struct refused *r, const struct cgroup_place *at);
/* Logs an error if more was refused since the last call. True: it did. */
bool refused_look(struct refused *r, const struct cgroup_place *at);
/* Starts a thread that does nothing, and logs an error if that fails (`ulimit -u` is not counted
 * anywhere). True: it failed. */
bool refused_try(void);
#endif
