#include "common/file/file_lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The lock's holder may unlink the file between our open() and flock(). Then we hold the lock of a
 * file that no other process finds. So check again that the path refers to the locked file. */
static bool still_named(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

/* Another user's process may have left the file in a shared folder. There Linux may refuse O_CREAT
 * for it (fs.protected_regular), so an existing file is opened without. A read-only descriptor
 * suffices for flock(), unless the folder is on NFS. */
static int open_file(const char *path)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; /* someone may have left a FIFO */
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | flags, 0644);
        if (fd >= 0)
            fchmod(fd, 0644); /* whatever the umask: the next holder may be another user */
        if (fd >= 0 || errno != EEXIST)
            return fd;
        fd = open(path, O_RDWR | flags);
        if (fd < 0 && errno == EACCES)
            fd = open(path, O_RDONLY | flags);
        if (fd >= 0 || errno != ENOENT) /* ENOENT: its holder removed it meanwhile */
            return fd;
    }
}

int file_lock_take(const char *path, struct err *e)
{
    for (;;) {
        const int fd = open_file(path);
        if (fd < 0)
            return err_sys(e, "%s", path);
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            const int rc = errno == EWOULDBLOCK ? FILE_LOCK_TAKEN : err_sys(e, "%s", path);
            close(fd);
            return rc;
        }
        if (still_named(fd, path))
            return fd;
        close(fd);
    }
}

void file_lock_release(int fd, const char *path)
{
    if (fd < 0)
        return;
    unlink(path); /* while the lock is held */
    close(fd);
}
