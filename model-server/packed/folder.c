#include "model-server/packed/folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_DIGITS = 16, TRIES = 8 };
static const char end[] = ".packed", temp_end[] = ".packed.tmp";

bool packed_folder_make(const char *dir) { return mkdir(dir, 0700) == 0 || errno == EEXIST; }

/* ---------------------------------------------------------------- writing */

/* True if the locked file still has that name: another writer may have renamed it meanwhile, and
 * a file with its final name is never modified. */
static bool is_still(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

int packed_folder_begin(const char *temp)
{
    for (int i = 0; i < TRIES; i++) {
        const int fd = open(temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return -1;
        const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        const int why = errno;
        if (locked && is_still(fd, temp) && ftruncate(fd, 0) == 0)
            return fd;
        close(fd);
        if (!locked) {
            errno = why;
            return -1;
        }
    }
    errno = EWOULDBLOCK;
    return -1;
}

/* ---------------------------------------------------------------- the limit */

struct file {
    char *name;
    int64_t used_ns;
    uint64_t bytes;
};
struct files {
    struct file *v;
    size_t n, cap;
};

static bool ends_in(const char *s, const char *with)
{
    const size_t n = strlen(s), k = strlen(with);
    return n > k && strcmp(s + n - k, with) == 0;
}

/* LABEL-KEY.packed with any key. */
static bool has_label(const char *name, const char *label)
{
    const size_t n = strlen(label);
    return strncmp(name, label, n) == 0 && name[n] == '-' &&
           strspn(name + n + 1, "0123456789abcdef") == KEY_DIGITS &&
           strcmp(name + n + 1 + KEY_DIGITS, end) == 0;
}

/* Deletes a temporary file that no process writes any more. */
static void drop_temp(int dir, const char *name)
{
    const int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(dir, name, 0);
    if (fd >= 0)
        close(fd);
}

static void note_file(struct files *all, int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return;
    if (all->n == all->cap) {
        const size_t cap = all->cap ? 2 * all->cap : 64;
        struct file *v = realloc(all->v, cap * sizeof(*v));
        if (!v)
            return;
        all->v = v;
        all->cap = cap;
    }
    struct file *f = &all->v[all->n];
    f->used_ns = (int64_t)st.st_atim.tv_sec * 1000000000 + st.st_atim.tv_nsec;
    f->bytes = (uint64_t)st.st_blocks * 512;
    f->name = strdup(name);
    all->n += f->name != NULL;
}

static int older(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

bool packed_folder_trim(const char *dir, const char *label, const char *name, uint64_t room,
                        uint64_t most)
{
    struct files all = {0};
    uint64_t sum = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        /* it is replaced */
        if (strcmp(x->d_name, name) == 0)
            continue;
        if (ends_in(x->d_name, temp_end))
            drop_temp(dirfd(d), x->d_name);
        else if (has_label(x->d_name, label))
            (void)unlinkat(dirfd(d), x->d_name, 0);
        else if (ends_in(x->d_name, end))
            note_file(&all, dirfd(d), x->d_name);
    }
    for (size_t i = 0; i < all.n; i++)
        sum += all.v[i].bytes;
    if (all.n)
        qsort(all.v, all.n, sizeof(*all.v), older);
    for (size_t i = 0; i < all.n; i++) {
        if (d && room <= most && sum > most - room && unlinkat(dirfd(d), all.v[i].name, 0) == 0)
            sum -= all.v[i].bytes;
        free(all.v[i].name);
    }
    free(all.v);
    if (d)
        closedir(d);
    return room <= most && sum <= most - room;
}
