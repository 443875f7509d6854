/* refused.h - says when the control groups refuse processes and threads (pids.max: `--pids-limit`
 * of docker, `TasksMax` of systemd), and when memory ran out in them (memory.max). Libraries do not
 * report a thread that could not be started: what it should have done just never happens. Nor does
 * SIGKILL say who sent it. */
#ifndef LAUNCHER_REFUSED_H
#define LAUNCHER_REFUSED_H
#include "common/process/cgroup.h"
#include <stdint.h>

enum { REFUSED_CLAIM_MS = 30000 };

struct refused {
    uint64_t seen;
    uint64_t killed;     /* for lack of memory, since the system was started */
    uint64_t unclaimed;  /* of these: which process it was is not known yet */
    int64_t claim_until; /* ms */
};

/* Counts what was refused before this launch, which is not reported. */
void refused_init(struct refused *r, const struct cgroup_place *at);
/* Logs an error if more was refused, or killed for lack of memory, since the last call; `now` in
 * ms. True: it did. */
bool refused_look(struct refused *r, const struct cgroup_place *at, int64_t now);
/* A process that ended by SIGKILL, which was not the launcher's: was it the kernel's, for lack of
 * memory? Each kill that was counted is one process, which ends at most REFUSED_CLAIM_MS later. */
bool refused_memory(struct refused *r, const struct cgroup_place *at, int64_t now);
/* Starts a thread that does nothing, and logs an error if that fails (`ulimit -u` is not counted
 * anywhere). True: it failed. */
bool refused_try(void);
#endif
