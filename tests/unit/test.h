/* test.h - included by every unit test: cmocka with its prerequisites, the tests of a program, and
 * access to test data. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A test of the program, known from its definition on. Tests run in the order of their lines. */
struct test_row {
    struct CMUnitTest test;
    int line;
    struct test_row *next;
};
static struct test_row *test_rows; /* by line */

static inline void test_add(struct test_row *row)
{
    struct test_row **at = &test_rows;
    while (*at && (*at)->line <= row->line)
        at = &(*at)->next;
    row->next = *at;
    *at = row;
}

/* TEST(name) { ... } is a test of the program; TEST_WITH() one between two fixtures, each of them
 * NULL or a function that gives 0. TEST_ALSO() runs a test once more, between others. */
#define TEST(f) TEST_WITH(f, NULL, NULL)
#define TEST_WITH(f, begin, end)                                                                   \
    static void f(void **state);                                                                   \
    TEST_ROW(test_add_##f, f, begin, end)                                                          \
    static void f(__attribute__((unused)) void **state)
#define TEST_ALSO(f, begin, end) TEST_ROW(test_also_##f##_##begin, f, begin, end)
#define TEST_ROW(add, f, begin, end)                                                               \
    __attribute__((constructor)) static void add(void)                                             \
    {                                                                                              \
        static struct test_row this_test = {{#f, f, begin, end, NULL}, __LINE__, NULL};            \
        test_add(&this_test);                                                                      \
    }

static inline size_t tests_count(void)
{
    size_t n = 0;
    for (const struct test_row *row = test_rows; row; row = row->next)
        n++;
    return n;
}

/* Runs all tests between two fixtures, each of them NULL or a function that gives 0; the exit
 * status: how many failed. */
static inline int tests_run(CMFixtureFunction begin, CMFixtureFunction end)
{
    struct CMUnitTest *tests = calloc(tests_count(), sizeof(*tests));
    size_t n = 0;
    for (const struct test_row *row = test_rows; tests && row; row = row->next)
        tests[n++] = row->test;
    const int failed = _cmocka_run_group_tests("tests", tests, n, begin, end);
    free(tests);
    return failed;
}

/* Path of a file of the reference data, or NULL if it does not exist. Static buffer. */
static inline const char *test_data(const char *name)
{
    static char path[1024];
    const char *dir = getenv("TEST_DATA");
    snprintf(path, sizeof(path), "%s/%s", dir && *dir ? dir : TEST_DATA, name);
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    fclose(f);
    return path;
}

/* `fixed`, so that runs are equal; with SEED in the environment (`make soak`) a number derived
 * from both. */
static inline unsigned test_seed(unsigned fixed)
{
    const char *s = getenv("SEED");
    return s ? (unsigned)((strtoull(s, NULL, 0) + fixed) * 0x9e3779b97f4a7c15ull >> 32) : fixed;
}

/* tests/run repeats these lines at the end, so that skipped cases are visible. */
#define TEST_SKIPPED(n, why) printf("skipped: %d cases (%s)\n", (int)(n), (why))
#endif
