#include "launcher/refused.h"
#include "common/log/log.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

void refused_init(struct refused *r, const struct cgroup_place *at)
{
    double limit;
    r->seen = cgroup_refused(at, &limit);
}

bool refused_look(struct refused *r, const struct cgroup_place *at)
{
    double limit;
    const uint64_t n = cgroup_refused(at, &limit);
    if (n <= r->seen)
        return false;
    LOG(LOG_ERROR,
        "The control group refused a process or thread (pids.max: --pids-limit, TasksMax); "
        "parts of the service may hang",
        LOGI("refused", n - r->seen), LOGI("limit", isinf(limit) ? -1 : (int64_t)limit));
    r->seen = n;
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
