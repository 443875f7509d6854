#include "common/file/file_stamp.h"

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

bool file_stamp_same(const struct file_stamp *a, const struct file_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

bool file_stamp_spoilt(const struct file_stamp *was, const struct file_stamp *now)
{
    return was->inode && was->inode == now->inode && was->device == now->device &&
           !file_stamp_same(was, now);
}
