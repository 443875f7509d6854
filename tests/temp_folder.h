/* temp_folder.h - removes the temporary folder of a test. */
#ifndef TESTS_TEMP_FOLDER_H
#define TESTS_TEMP_FOLDER_H
#include <stdio.h>
#include <stdlib.h>

/* With all its files. 0: success. */
static inline int temp_folder_remove(const char *path)
{
    char command[1024];
    if (snprintf(command, sizeof(command), "rm -rf '%s'", path) >= (int)sizeof(command))
        return -1;
    return system(command); /* NOLINT(concurrency-mt-unsafe) */
}
#endif
