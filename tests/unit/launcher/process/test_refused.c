/* What the control groups refused is said once, and not what they refused before. */
#include "common/log/log.h"
#include "launcher/process/refused.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <sys/resource.h>

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

TEST(each_refusal_is_said_once)
{
    char folder[] = "/tmp/refused-XXXXXX", list[128];
    struct refused r;
    assert_non_null(mkdtemp(folder));
    snprintf(list, sizeof(list), "%s/list", folder);
    const struct cgroup_place at = {list, folder};
    put(folder, "list", "0::/\n");
    refused_init(&r, &at);
    assert_false(refused_look(&r, &at, 0));
    put(folder, "pids.max", "40\n");
    put(folder, "pids.events", "max 2\n");
    assert_true(refused_look(&r, &at, 0));
    assert_false(refused_look(&r, &at, 0));
    refused_init(&r, &at);
    assert_false(refused_look(&r, &at, 0));
    put(folder, "pids.events", "max 3\n");
    assert_true(refused_look(&r, &at, 0));
    assert_int_equal(temp_folder_remove(folder), 0);
}

/* A kill that was counted belongs to the next process that SIGKILL ended, unless that takes long.
 */
TEST(kills_for_lack_of_memory_are_claimed_once)
{
    char folder[] = "/tmp/refused-XXXXXX", list[128];
    struct refused r;
    assert_non_null(mkdtemp(folder));
    snprintf(list, sizeof(list), "%s/list", folder);
    const struct cgroup_place at = {list, folder};
    put(folder, "list", "0::/\n");
    put(folder, "memory.events", "oom 3\noom_kill 2\n");
    refused_init(&r, &at);
    assert_false(refused_memory(&r, &at, 0)); /* of before */
    put(folder, "memory.events", "oom 4\noom_kill 4\n");
    assert_true(refused_look(&r, &at, 1000)); /* said before the processes have ended */
    assert_false(refused_look(&r, &at, 1000));
    assert_true(refused_memory(&r, &at, 1500));
    assert_true(refused_memory(&r, &at, 1500));
    assert_false(refused_memory(&r, &at, 1500));
    put(folder, "memory.events", "oom_kill 5\n"); /* not one of ours: a child of the router */
    assert_true(refused_look(&r, &at, 2000));
    assert_false(refused_memory(&r, &at, 2000 + REFUSED_CLAIM_MS));
    put(folder, "memory.events", "oom_kill 6\n");
    assert_true(refused_memory(&r, &at, 90000)); /* seen here first */
    assert_int_equal(temp_folder_remove(folder), 0);
}

/* A new thread would get a stack that does not fit. Sanitizers need memory for it, too. */
TEST(a_thread_that_cannot_start_is_noticed)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    struct rlimit all, few;
    assert_int_equal(getrlimit(RLIMIT_AS, &all), 0);
    few = (struct rlimit){1, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    const bool noticed = refused_try();
    assert_int_equal(setrlimit(RLIMIT_AS, &all), 0);
    assert_true(noticed);
    assert_false(refused_try());
}

int main(void) { return tests_run(NULL, NULL); }
