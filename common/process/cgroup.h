/* cgroup.h - the control groups that limit this process, of version 1 and 2 (Linux's
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/). A container usually sees its own group
 * as the root; a service of systemd is some levels below it. */
#ifndef COMMON_CGROUP_H
#define COMMON_CGROUP_H
#include <stdbool.h>
#include <stdint.h>

/* Where to look: a file as /proc/self/cgroup, and a folder as /sys/fs/cgroup. */
struct cgroup_place {
    const char *list, *root;
};
extern const struct cgroup_place cgroup_self;

/* Calls `visit` with the folder of each group that has `controller` ("memory", "cpu"), from the
 * innermost one to the root: each of them limits the process. The folder need not exist. */
void cgroup_each(const struct cgroup_place *at, const char *controller,
                 void (*visit)(void *arg, const char *folder, bool v2), void *arg);

/* Cores that may be used in the mean, as the quotas allow; INFINITY without a quota. */
double cgroup_cores(const struct cgroup_place *at);

/* How many processes and threads the groups have refused so far (pids.events); *limit: the smallest
 * limit of the groups that did, INFINITY if none did. A group above this process may have refused
 * those of others. */
uint64_t cgroup_refused(const struct cgroup_place *at, double *limit);

/* How many processes of the innermost group the kernel has killed so far because memory ran out
 * (oom_kill of memory.events, in version 1 of memory.oom_control); 0 also if that cannot be read.
 * *limit: the smallest limit in bytes of all groups, INFINITY without one. */
uint64_t cgroup_killed(const struct cgroup_place *at, double *limit);
#endif
