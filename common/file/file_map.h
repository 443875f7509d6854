/* file_map.h - maps a file read-only into memory. */
#ifndef COMMON_FILE_MAP_H
#define COMMON_FILE_MAP_H
#include "common/err.h"
#include <stddef.h>

/* Maps the whole file; *size > 0. NULL: missing, empty, a pointer of Git LFS (lfs.h), or not a
 * regular file (a pipe is refused, and does not block). */
const void *file_map(const char *path, size_t *size, struct err *e);
void file_unmap(const void *map, size_t size); /* NULL is allowed */
#endif
