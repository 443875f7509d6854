/* memory.c - how much memory may be used: the machine's available memory, or the control group's
 * limit, whichever is smaller. Page cache counts as free in both, because it is reclaimed. */
#include "common/process/cgroup.h"
#include "model-server/backend/cpu/cpu.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` in a file of "key number" lines; the first number of the file if key is
 * "". */
static bool read_number(const char *path, const char *key, uint64_t *out)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        size_t n = strlen(key);
        found = !strncmp(line, key, n) && sscanf(line + n, "%" SCNu64, out) == 1;
    }
    fclose(f);
    return found;
}

struct cgroup_files {
    const char *limit, *usage, *file_pages[2];
};
static const struct cgroup_files cgroup_v2 = {
    "memory.max", "memory.current", {"inactive_file ", "active_file "}};
static const struct cgroup_files cgroup_v1 = {"memory.limit_in_bytes",
                                              "memory.usage_in_bytes",
                                              {"total_inactive_file ", "total_active_file "}};

struct memory {
    uint64_t avail, total;
};

/* One group's limit, if it has one. */
static void narrow_to(void *arg, const char *folder, bool v2)
{
    const struct cgroup_files *f = v2 ? &cgroup_v2 : &cgroup_v1;
    struct memory *m = arg;
    char path[4700];
    uint64_t limit, usage, pages;
    snprintf(path, sizeof(path), "%s/%s", folder, f->limit);
    if (!read_number(path, "", &limit) || limit >= m->total) /* "max" is no number */
        return;
    m->total = limit;
    snprintf(path, sizeof(path), "%s/%s", folder, f->usage);
    if (!read_number(path, "", &usage))
        return;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++)
        if (read_number(path, f->file_pages[i], &pages))
            usage -= pages < usage ? pages : usage;
    const uint64_t left = limit > usage ? limit - usage : 0;
    if (left < m->avail)
        m->avail = left;
}

int cpu_memory(uint64_t *free_bytes, uint64_t *total_bytes, struct err *e)
{
    uint64_t avail_kib, total_kib;
    if (!read_number("/proc/meminfo", "MemAvailable:", &avail_kib) ||
        !read_number("/proc/meminfo", "MemTotal:", &total_kib))
        return err_set(e, ERR_SYSTEM, "/proc/meminfo does not say how much memory there is");
    struct memory m = {avail_kib * 1024, total_kib * 1024};
    cgroup_each(&cgroup_self, "memory", narrow_to, &m);
    *free_bytes = m.avail;
    *total_bytes = m.total;
    return 0;
}
