/* temp_folder.h - temporary folders of tests. */
#ifndef TESTS_TEMP_FOLDER_H
#define TESTS_TEMP_FOLDER_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With all its files. 0: success. */
static inline int temp_folder_remove(const char *path)
{
    char command[1024];
    if (snprintf(command, sizeof(command), "rm -rf '%s'", path) >= (int)sizeof(command))
        return -1;
    return system(command); /* NOLINT(concurrency-mt-unsafe) */
}

/* Defines `var`, the path of a folder in /tmp, and fixtures for cmocka that create and remove it:
 * temp_begin() and temp_end(), around all tests of a program or around each. */
#define TEMP_FOLDER(var, name)                                                                     \
    static char var[] = "/tmp/" name "-XXXXXX";                                                    \
    __attribute__((unused)) static int temp_begin(void **state)                                    \
    {                                                                                              \
        (void)state;                                                                               \
        memcpy(var, "/tmp/" name "-XXXXXX", sizeof(var));                                          \
        return mkdtemp(var) ? 0 : -1;                                                              \
    }                                                                                              \
    __attribute__((unused)) static int temp_end(void **state)                                      \
    {                                                                                              \
        (void)state;                                                                               \
        return temp_folder_remove(var);                                                            \
    }
#endif
