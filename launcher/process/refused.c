#include "launcher/process/refused.h"
#include "common/log/log.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

void refused_init(struct refused *r, const struct cgroup_place *at)
{
    double limit;
    *r = (struct refused){0};
    r->seen = cgroup_refused(at, &limit);
    r->killed = cgroup_killed(at, &limit);
}

static bool look_at_memory(struct refused *r, const struct cgroup_place *at, int64_t now)
{
    double limit;
    const uint64_t n = cgroup_killed(at, &limit);
    if (now >= r->claim_until)
        r->unclaimed = 0;
    if (n <= r->killed)
        return false;
    LOG(LOG_ERROR,
        "Memory ran out: the kernel killed processes of this control group (memory.max: --memory "
        "of "
        "docker, limits of a pod, MemoryMax)",
        LOGI("killed", n - r->killed), LOGI("limit_bytes", isinf(limit) ? -1 : (int64_t)limit));
    r->unclaimed += n - r->killed;
    r->claim_until = now + REFUSED_CLAIM_MS;
    r->killed = n;
    return true;
}

bool refused_look(struct refused *r, const struct cgroup_place *at, int64_t now)
{
    double limit;
    const bool killed = look_at_memory(r, at, now);
    const uint64_t n = cgroup_refused(at, &limit);
    if (n <= r->seen)
        return killed;
    LOG(LOG_ERROR,
        "The control group refused a process or thread (pids.max: --pids-limit, TasksMax); "
        "parts of the service may hang",
        LOGI("refused", n - r->seen), LOGI("limit", isinf(limit) ? -1 : (int64_t)limit));
    r->seen = n;
    return true;
}

bool refused_memory(struct refused *r, const struct cgroup_place *at, int64_t now)
{
    look_at_memory(r, at, now);
    if (!r->unclaimed)
        return false;
    r->unclaimed--;
    return true;
}

static void *do_nothing(void *arg) { return arg; }

bool refused_try(void)
{
    char why[64];
    pthread_t t;
    const int rc = pthread_create(&t, NULL, do_nothing, NULL);
    if (rc == 0)
        return pthread_join(t, NULL) != 0;
    LOG(LOG_ERROR, "No more threads can be started here (ulimit -u, pids.max, threads-max)",
        LOGS("error", strerror_r(rc, why, sizeof(why))));
    return true;
}
