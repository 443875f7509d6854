/* lfs.h - files that are not there: a repository that was cloned without Git LFS has a text of
 * three lines in place of each large file
 * (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md). */
#ifndef COMMON_LFS_H
#define COMMON_LFS_H
#include "common/err.h"
#include <string.h>

/* -1: the n bytes of the file at `path` are such a text (ERR_VALIDATION, with what to do). */
static inline int lfs_check(const char *path, const void *bytes, size_t n, struct err *e)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/v";
    if (n < sizeof(begin) - 1 || memcmp(bytes, begin, sizeof(begin) - 1) != 0)
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "%s: a pointer of Git LFS in place of the file; `git lfs pull` in its folder "
                   "fetches it",
                   path);
}
#endif
