/* file_stamp.h - tells whether a mapped file has been overwritten in place, and whether a file that
 * is read again is still the same.
 *
 * A file that is replaced by another one under its name (rename) leaves the mapping as it was. One
 * that is written or shortened (`cp` over it, `rsync --inplace`) changes the mapping, too: its
 * length or its modification time differs then. */
#ifndef COMMON_FILE_STAMP_H
#define COMMON_FILE_STAMP_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct file_stamp { /* zeroed: unknown, and never spoilt */
    uint64_t device, inode, bytes;
    struct timespec written;
};

struct file_stamp file_stamp_of(const struct stat *st);
/* Of the file at `path`, or an unknown one. A descriptor would also follow a file that is renamed,
 * but there may be thousands of files. */
struct file_stamp file_stamp_at(const char *path);
/* True if both are of the same file, which was not written in between, or both are unknown. */
bool file_stamp_same(const struct file_stamp *a, const struct file_stamp *b);
/* True if the stamp `now` is of the same file, which was written since `was`. */
bool file_stamp_spoilt(const struct file_stamp *was, const struct file_stamp *now);
#endif
