/* test.h - included by every unit test: cmocka with its prerequisites, and access to test
 * data. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

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
