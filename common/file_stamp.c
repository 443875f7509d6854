#include "common/file_stamp.h"

struct file_stamp file_stamp_of(const struct stat *st)
{
    return (struct file_stamp){.device = st->st_dev,
                               .inode = st->st_ino,
                               .bytes = (uint64_t)st->st_size,
                               .written = st->st_mtim};
}

struct file_stamp file_stamp_at(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? file_stamp_of(&st) : (struct file_stamp){0};
}

bool file_stamp_spoilt(const struct file_stamp *was, const struct file_stamp *now)
{
    return was->inode && was->inode == now->inode && was->device == now->device &&
           (was->bytes != now->bytes || was->written.tv_sec != now->written.tv_sec ||
            was->written.tv_nsec != now->written.tv_nsec);
}
