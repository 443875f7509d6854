#include "common/file/file_map.h"
#include "common/file/lfs.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const void *file_map(const char *path, size_t *size, struct err *e)
{
    struct stat st;
    void *map = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0)
        err_sys(e, "open %s", path);
    else if (!S_ISREG(st.st_mode) || st.st_size == 0)
        err_set(e, ERR_VALIDATION, "%s: empty, or not a regular file", path);
    else if ((map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        err_sys(e, "mmap %s", path);
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return NULL;
    *size = (size_t)st.st_size;
    if (lfs_check(path, map, *size, e)) {
        file_unmap(map, *size);
        return NULL;
    }
    return map;
}

void file_unmap(const void *map, size_t size)
{
    if (map)
        munmap((void *)(uintptr_t)map, size);
}
