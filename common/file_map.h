/* file_map.h - a whole file in memory, read as it is touched. */
#ifndef COMMON_FILE_MAP_H
#define COMMON_FILE_MAP_H
#include "common/err.h"
#include <stddef.h>

/* Read-only; *size > 0. NULL: it is not there, empty, or no regular file (a pipe is refused, not
 * waited for). */
const void *file_map(const char *path, size_t *size, struct err *e);
void file_unmap(const void *map, size_t size); /* NULL is fine */
#endif
