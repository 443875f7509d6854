/* The groups that limit a process, in both versions, and the quota of all of them. */
#include "common/process/cgroup.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/cgroup-XXXXXX", list[64];
static char seen[1024];

static void put(const char *path, const char *text)
{
    char at[256];
    snprintf(at, sizeof(at), "%s/%s", root, path);
    for (char *slash = at + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(at, 0700);
    }
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void note(void *arg, const char *folder, bool v2)
{
    (void)arg;
    snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s%s;", folder + strlen(root),
             v2 ? " v2" : "");
}

static const char *groups(const char *text, const char *controller)
{
    put("list", text);
    *seen = '\0';
    cgroup_each(&(struct cgroup_place){list, root}, controller, note, NULL);
    return seen;
}

TEST(all_groups_up_to_the_root)
{
    assert_string_equal(groups("0::/\n", "cpu"), " v2;");
    assert_string_equal(groups("0::/system.slice/llm.service\n", "cpu"),
                        "/system.slice/llm.service v2;/system.slice v2; v2;");
    assert_string_equal(groups("4:memory:/a\n2:cpu,cpuacct:/b/c\n1:name=systemd:/d\n0::/\n", "cpu"),
                        "/cpu/b/c;/cpu/b;/cpu; v2;");
    assert_string_equal(groups("3:cpuset:/a\n2:cpuacct:/b\n", "cpu"), "");
    assert_string_equal(groups("no line of this kind\n:\n", "cpu"), "");
}

static double cores(const char *text)
{
    put("list", text);
    return cgroup_cores(&(struct cgroup_place){list, root});
}

TEST(the_smallest_quota_counts)
{
    put("cpu.max", "max 100000\n");
    assert_true(isinf(cores("0::/\n")));
    put("a/cpu.max", "350000 100000\n");
    put("a/b/cpu.max", "800000 100000\n");
    assert_true(cores("0::/a/b\n") == 3.5);
    assert_true(cores("0::/a/b/not-mounted\n") == 3.5);
    put("a/b/cpu.max", "50000 100000\n");
    assert_true(cores("0::/a/b\n") == 0.5);
    put("cpu/v/cpu.cfs_quota_us", "-1\n");
    put("cpu/v/cpu.cfs_period_us", "100000\n");
    assert_true(isinf(cores("2:cpu,cpuacct:/v\n")));
    put("cpu/v/cpu.cfs_quota_us", "200000\n");
    assert_true(cores("2:cpu,cpuacct:/v\n") == 2);
    assert_true(isinf(cgroup_cores(&(struct cgroup_place){"/no/such/file", root})));
}

TEST(refusals_of_all_groups_count)
{
    double limit;
    const struct cgroup_place at = {list, root};
    put("list", "0::/p/q\n");
    assert_int_equal(cgroup_refused(&at, &limit), 0);
    assert_true(isinf(limit));
    put("p/pids.events", "max 3\n");
    put("p/pids.max", "100\n");
    put("p/q/pids.events", "max 0\n");
    put("p/q/pids.max", "10\n");
    assert_int_equal(cgroup_refused(&at, &limit), 3);
    assert_true(limit == 100);
    put("p/q/pids.events", "max 2\n");
    assert_int_equal(cgroup_refused(&at, &limit), 5);
    assert_true(limit == 10);
    put("list", "8:pids:/c\n");
    put("pids/c/pids.events", "max 1\n");
    put("pids/c/pids.max", "max\n");
    assert_int_equal(cgroup_refused(&at, &limit), 1);
    assert_true(isinf(limit));
}

TEST(kills_of_the_innermost_group_count)
{
    double limit;
    const struct cgroup_place at = {list, root};
    put("list", "0::/m/n\n");
    assert_int_equal(cgroup_killed(&at, &limit), 0);
    assert_true(isinf(limit));
    put("m/memory.events", "low 0\nhigh 0\nmax 9\noom 8\noom_kill 7\noom_group_kill 6\n");
    put("m/memory.max", "4096\n");
    assert_int_equal(cgroup_killed(&at, &limit), 7); /* n has no counter */
    put("m/n/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\noom_group_kill 1\n");
    put("m/n/memory.max", "max\n");
    assert_int_equal(cgroup_killed(&at, &limit), 2); /* those of m include them */
    assert_true(limit == 4096);
    put("list", "4:memory:/c/d\n0::/\n");
    put("memory/c/d/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    put("memory/c/d/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(cgroup_killed(&at, &limit), 5);
    assert_true(isinf(limit));
    put("memory/c/memory.limit_in_bytes", "8192\n");
    assert_int_equal(cgroup_killed(&at, &limit), 5);
    assert_true(limit == 8192);
}

int main(void)
{
    if (!mkdtemp(root))
        return 1;
    snprintf(list, sizeof(list), "%s/list", root);
    const int failed = tests_run(NULL, NULL);
    char remove[64];
    snprintf(remove, sizeof(remove), "rm -rf %s", root);
    return failed || system(remove);
}
