/* file_lock.h - a lock named by a path: one process holds it, and the kernel releases it when that
 * process ends in any way. Its file may remain then, and is used again, by other users too. */
#ifndef COMMON_FILE_LOCK_H
#define COMMON_FILE_LOCK_H
#include "common/err.h"

enum { FILE_LOCK_TAKEN = -2 };
/* A descriptor that holds the lock, closed on exec. FILE_LOCK_TAKEN: another process holds it, `e`
 * is unchanged. -1: the file cannot be made. Does not wait. */
int file_lock_take(const char *path, struct err *e);
/* Removes the file and releases the lock; nothing if fd < 0. */
void file_lock_release(int fd, const char *path);
#endif
