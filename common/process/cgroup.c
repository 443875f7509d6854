#include "common/process/cgroup.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct cgroup_place cgroup_self = {"/proc/self/cgroup", "/sys/fs/cgroup"};

/* True if the comma separated list `names`, of n bytes, contains `name`. */
static bool listed(const char *names, size_t n, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = names, *end = names + n; at < end;) {
        const size_t one = strcspn(at, ",:");
        if (one == len && !strncmp(at, name, len))
            return true;
        at += one + 1;
    }
    return false;
}

/* A line is "number:controllers:path". Version 2 has number 0 and no controllers. NULL: it is about
 * others. */
static char *path_of(char *line, const char *controller, bool *v2)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path)
        return NULL;
    *v2 = !strncmp(line, "0::", 3);
    path++;
    path[strcspn(path, "\n")] = '\0';
    return *v2 || listed(names + 1, (size_t)(path - 1 - (names + 1)), controller) ? path : NULL;
}

/* Of the group at `path` and of all groups above it. */
static void each_up(const char *mount, char *path, bool v2,
                    void (*visit)(void *arg, const char *folder, bool v2), void *arg)
{
    char folder[4600];
    for (bool more = true; more;) {
        char *const slash = strrchr(path, '/');
        snprintf(folder, sizeof(folder), "%s%s", mount, path);
        visit(arg, folder, v2);
        if ((more = slash))
            *slash = '\0';
    }
}

void cgroup_each(const struct cgroup_place *at, const char *controller,
                 void (*visit)(void *arg, const char *folder, bool v2), void *arg)
{
    char line[4200], mount[320];
    bool v2;
    FILE *f = fopen(at->list, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *path = path_of(line, controller, &v2);
        if (!path)
            continue;
        snprintf(mount, sizeof(mount), "%s%s%s", at->root, v2 ? "" : "/", v2 ? "" : controller);
        each_up(mount, strcmp(path, "/") ? path : path + 1, v2, visit, arg);
    }
    if (f)
        fclose(f);
}

/* The numbers at the beginning of a file; how many there are. */
static int numbers(const char *folder, const char *name, double *a, double *b)
{
    char path[4700];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    const int n = f ? fscanf(f, "%lf %lf", a, b) : 0;
    if (f)
        fclose(f);
    return n;
}

static void narrow_cores(void *arg, const char *folder, bool v2)
{
    double *cores = arg, quota = -1, period = 0, none;
    if (v2) /* "max" is no number */
        numbers(folder, "cpu.max", &quota, &period);
    else if (numbers(folder, "cpu.cfs_quota_us", &quota, &none) > 0) /* -1: unlimited */
        numbers(folder, "cpu.cfs_period_us", &period, &none);
    if (quota > 0 && period > 0)
        *cores = fmin(*cores, quota / period);
}

double cgroup_cores(const struct cgroup_place *at)
{
    double cores = INFINITY;
    cgroup_each(at, "cpu", narrow_cores, &cores);
    return cores;
}

/* The number after `key` in a file of "key number" lines; false: there is none. */
static bool keyed(const char *folder, const char *name, const char *key, uint64_t *out)
{
    char path[4700], line[256];
    const size_t n = strlen(key);
    unsigned long long v = 0;
    bool found = false;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = !strncmp(line, key, n) && line[n] == ' ' && sscanf(line + n, "%llu", &v) == 1;
    if (f)
        fclose(f);
    *out = v;
    return found;
}

struct tally {
    uint64_t n;
    bool known;
    double limit;
};

static void add_refusals(void *arg, const char *folder, bool v2)
{
    struct tally *t = arg;
    uint64_t n;
    double limit = INFINITY, none;
    (void)v2;
    if (!keyed(folder, "pids.events", "max", &n) || n == 0)
        return;
    t->n += n;
    numbers(folder, "pids.max", &limit, &none);
    t->limit = fmin(t->limit, limit);
}

uint64_t cgroup_refused(const struct cgroup_place *at, double *limit)
{
    struct tally t = {0, false, INFINITY};
    cgroup_each(at, "pids", add_refusals, &t);
    *limit = t.limit;
    return t.n;
}

/* The innermost group counts what is killed in it, whichever limit was reached. Version 1 has a
 * limit of nearly 2^63 bytes in place of none. */
static void add_kills(void *arg, const char *folder, bool v2)
{
    struct tally *t = arg;
    double limit = INFINITY, none;
    if (!t->known)
        t->known = keyed(folder, v2 ? "memory.events" : "memory.oom_control", "oom_kill", &t->n);
    if (numbers(folder, v2 ? "memory.max" : "memory.limit_in_bytes", &limit, &none) > 0 &&
        limit < 0x1p60)
        t->limit = fmin(t->limit, limit);
}

uint64_t cgroup_killed(const struct cgroup_place *at, double *limit)
{
    struct tally t = {0, false, INFINITY};
    cgroup_each(at, "memory", add_kills, &t);
    *limit = t.limit;
    return t.n;
}
