/* What the control groups refused is said once, and not what they refused before. */
#include "common/log/log.h"
#include "launcher/refused.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <stdio.h>

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void each_refusal_is_said_once(void **state)
{
    char folder[] = "/tmp/refused-XXXXXX", list[128];
    struct refused r;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(list, sizeof(list), "%s/list", folder);
    const struct cgroup_place at = {list, folder};
    put(folder, "list", "0::/\n");
    refused_init(&r, &at);
    assert_false(refused_look(&r, &at));
    put(folder, "pids.max", "40\n");
    put(folder, "pids.events", "max 2\n");
    assert_true(refused_look(&r, &at));
    assert_false(refused_look(&r, &at));
    refused_init(&r, &at);
    assert_false(refused_look(&r, &at));
    put(folder, "pids.events", "max 3\n");
    assert_true(refused_look(&r, &at));
    assert_int_equal(temp_folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_refusal_is_said_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
