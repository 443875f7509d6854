/* memory.c - how much memory may be used: the machine's available memory, or the control group's
 * limit, whichever is smaller. Page cache counts as free in both, because it is reclaimed. */
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
    const char *root, *limit, *usage, *file_pages[2];
};
static const struct cgroup_files cgroup_v2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};
static const struct cgroup_files cgroup_v1 = {"/sys/fs/cgroup/memory",
                                              "memory.limit_in_bytes",
                                              "memory.usage_in_bytes",
                                              {"total_inactive_file ", "total_active_file "}};

/* One group's limit, if it has one. */
static void narrow_to(const struct cgroup_files *f, const char *group, uint64_t *avail,
                      uint64_t *total)
{
    char path[512];
    uint64_t limit, usage, pages;
    snprintf(path, sizeof(path), "%s%s/%s", f->root, group, f->limit);
    if (!read_number(path, "", &limit) || limit >= *total) /* "max" is no number */
        return;
    *total = limit;
    snprintf(path, sizeof(path), "%s%s/%s", f->root, group, f->usage);
    if (!read_number(path, "", &usage))
        return;
    snprintf(path, sizeof(path), "%s%s/memory.stat", f->root, group);
    for (int i = 0; i < 2; i++)
        if (read_number(path, f->file_pages[i], &pages))
            usage -= pages < usage ? pages : usage;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (left < *avail)
        *avail = left;
}

/* This process's groups, from the innermost to the root: each of them limits it. */
static void narrow_to_cgroups(uint64_t *avail, uint64_t *total)
{
    char line[320];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        bool v2 = !strncmp(line, "0::", 3);
        char *memory = strstr(line, ":memory:");
        if (!v2 && !memory)
            continue;
        char *group = v2 ? line + 3 : memory + strlen(":memory:");
        for (char *slash; (slash = strrchr(group, '/')); *slash = '\0')
            narrow_to(v2 ? &cgroup_v2 : &cgroup_v1, group, avail, total);
        narrow_to(v2 ? &cgroup_v2 : &cgroup_v1, "", avail, total);
    }
    if (f)
        fclose(f);
}

int cpu_memory(uint64_t *free_bytes, uint64_t *total_bytes, struct err *e)
{
    uint64_t avail_kib, total_kib;
    if (!read_number("/proc/meminfo", "MemAvailable:", &avail_kib) ||
        !read_number("/proc/meminfo", "MemTotal:", &total_kib))
        return err_set(e, ERR_SYSTEM, "/proc/meminfo does not say how much memory there is");
    *free_bytes = avail_kib * 1024;
    *total_bytes = total_kib * 1024;
    narrow_to_cgroups(free_bytes, total_bytes);
    return 0;
}
