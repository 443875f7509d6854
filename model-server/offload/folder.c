#include "model-server/offload/folder.h"
#include "common/clock.h"
#include "common/log/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NAMED = 8,         /* bytes of layout.folder in its name */
    STALE_S = 600,     /* a file in progress is not older */
    SHARE_UNSEEN = 16, /* of the limit */
    SHARE_KEPT = 10,   /* a trim keeps nine tenths of what there may be */
};
#define PAUSE_NS     INT64_C(10000000000)
#define LOG_EVERY_NS INT64_C(60000000000)

struct kv_folder {
    char *dir; /* with a slash at its end */
    struct kv_layout layout;
    uint64_t limit, unseen; /* unseen: bytes written since the last scan of all files */
    bool looked;
    int64_t paused_until; /* writes */
    uint32_t n_temps;
    _Atomic int64_t logged_ns;
    _Atomic uint64_t bytes, evictions, damaged, foreign, failed_writes, written;
};

/* ------------------------------------------------------------------ names */

static void hex(char *out, const uint8_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", v[i]);
}

/* Path of a key's file, in the caller's memory. NULL: out of memory. */
static char *path_of(const struct kv_folder *f, const uint8_t *key, const char *end)
{
    char id[2 * NAMED + 1], name[2 * KV_KEY + 1], *path = NULL;
    hex(id, f->layout.folder, NAMED);
    hex(name, key, KV_KEY);
    return asprintf(&path, "%s%s/%.2s/%s%s", f->dir, id, name, name, end) < 0 ? NULL : path;
}

/* At most one line per minute. */
static void complain(struct kv_folder *f, const char *what, const char *path, int error)
{
    const int64_t now = clock_ns(), last = atomic_load(&f->logged_ns);
    if (last && now - last < LOG_EVERY_NS)
        return;
    atomic_store(&f->logged_ns, now);
    LOG(LOG_WARN, what, LOGS("file", path), LOGS("error", error ? strerrordesc_np(error) : ""));
}

/* ------------------------------------------------------------------ reading */

/* False: the file is shorter, with errno 0, or cannot be read. */
static bool read_all(int fd, char *p, size_t n)
{
    while (n > 0) {
        const ssize_t k = read(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = 0;
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Used now. */
static void touch(int fd)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    (void)futimens(fd, now); /* a read-only folder keeps its order */
}

/* *error: of the file system, which says nothing about what the file has. */
static enum kv_verdict read_record(struct kv_folder *f, int fd, const uint8_t *key, char **out,
                                   size_t *n, int *error)
{
    char head[KV_RECORD_HEAD];
    struct stat st;
    const bool found = fstat(fd, &st) == 0;
    *error = found ? 0 : errno;
    if (!found || !S_ISREG(st.st_mode) || st.st_size < KV_RECORD_HEAD)
        return KV_DAMAGED;
    if (!read_all(fd, head, sizeof(head))) {
        *error = errno;
        return KV_DAMAGED;
    }
    *n = (size_t)st.st_size;
    enum kv_verdict v = kv_record_check_head(&f->layout, head, *n, key);
    if (v != KV_FINE || !(*out = malloc(*n)))
        return v;
    memcpy(*out, head, sizeof(head));
    if (!read_all(fd, *out + sizeof(head), *n - sizeof(head))) {
        *error = errno;
        return KV_DAMAGED;
    }
    return kv_record_check(&f->layout, *out);
}

static void refuse(struct kv_folder *f, enum kv_verdict v, const char *path)
{
    atomic_fetch_add(v == KV_FOREIGN ? &f->foreign : &f->damaged, 1);
    complain(f,
             v == KV_FOREIGN ? "a KV file of another model or format is passed over"
                             : "a damaged KV file is passed over",
             path, 0);
    (void)unlink(path); /* the block is written anew */
}

void *kv_folder_read(struct kv_folder *f, const uint8_t key[KV_KEY], size_t *n)
{
    char *path = path_of(f, key, ".kv"), *record = NULL;
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
    int error = path && fd < 0 && errno != ENOENT && errno != ENOTDIR ? errno : 0;
    if (fd >= 0) {
        const enum kv_verdict v = read_record(f, fd, key, &record, n, &error);
        if (v == KV_FINE) {
            touch(fd);
        } else {
            free(record);
            record = NULL;
            if (!error)
                refuse(f, v, path);
        }
        close(fd);
    }
    if (error) /* the file may be sound, and read later or by another process */
        complain(f, "a KV file cannot be read", path, error);
    free(path);
    return record;
}

/* ------------------------------------------------------------------ writing */

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Creates missing folders of this path. */
static void make_folders(const struct kv_folder *f, char *path)
{
    for (char *p = path + strlen(f->dir); (p = strchr(p, '/')); p++) {
        *p = 0;
        (void)mkdir(path, 0700);
        *p = '/';
    }
}

static int create(const struct kv_folder *f, char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == ENOENT) {
        make_folders(f, path);
        fd = open(path, flags, 0600);
    }
    return fd;
}

/* True if a file with all of these parts exists: another process wrote it, or this one before a
 * restart. */
static bool is_there(const struct kv_folder *f, const char *path, const void *record,
                     const uint8_t *key)
{
    char head[KV_RECORD_HEAD];
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    bool same = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                read_all(fd, head, sizeof(head)) &&
                kv_record_check_head(&f->layout, head, (size_t)st.st_size, key) == KV_FINE &&
                (kv_record_parts(head) & kv_record_parts(record)) == kv_record_parts(record);
    if (same)
        touch(fd);
    if (fd >= 0)
        close(fd);
    return same;
}

static bool put_file(struct kv_folder *f, const char *path, char *temp, const void *record,
                     size_t n)
{
    const int fd = create(f, temp);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, record, n);
    int error = ok ? 0 : errno;
    if (close(fd) != 0 && ok) { /* on a network file system a full disk is reported here */
        ok = false;
        error = errno;
    }
    if (ok && rename(temp, path) != 0) {
        ok = false;
        error = errno;
    }
    if (!ok)
        (void)unlink(temp);
    errno = error;
    return ok;
}

static void trim(struct kv_folder *f, bool full);

/* On a full disk the least recently used files make room, as at the limit: otherwise those that
 * came first would stay for ever. */
static void write_failed(struct kv_folder *f, const char *path, int error)
{
    complain(f, "a KV block cannot be written", path, error);
    atomic_fetch_add(&f->failed_writes, 1);
    f->paused_until = clock_ns() + PAUSE_NS;
    if (error == ENOSPC || error == EDQUOT)
        trim(f, true);
}

bool kv_folder_write(struct kv_folder *f, const void *record, size_t n, const uint8_t key[KV_KEY])
{
    char end[64];
    if (!f->looked || f->unseen > f->limit / SHARE_UNSEEN || atomic_load(&f->bytes) > f->limit)
        kv_folder_trim(f);
    if (clock_ns() < f->paused_until || n > f->limit)
        return false;
    snprintf(end, sizeof(end), ".%ld-%u.tmp", (long)getpid(), f->n_temps++);
    char *path = path_of(f, key, ".kv"), *temp = path_of(f, key, end);
    bool ok = path && temp;
    if (ok && !is_there(f, path, record, key)) {
        ok = put_file(f, path, temp, record, n);
        if (ok) {
            atomic_fetch_add(&f->written, 1);
            atomic_fetch_add(&f->bytes, n);
            f->unseen += n;
        } else {
            write_failed(f, path, errno);
        }
    }
    free(path);
    free(temp);
    return ok;
}

/* ------------------------------------------------------------------ the limit */

struct file {
    uint8_t id[NAMED], key[KV_KEY];
    int64_t used_ns;
    uint64_t bytes;
};
struct files {
    struct file *v;
    size_t n, cap;
};

static bool read_hex(const char *s, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < 2 * n; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *d = s[i] ? strchr(digits, s[i]) : NULL;
        if (!d)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
    }
    return true;
}

static void note_file(struct files *all, const char *id, int dir, const char *name)
{
    struct file x = {0};
    struct stat st;
    const size_t len = strlen(name);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return;
    if (len > 4 && strcmp(name + len - 4, ".tmp") == 0 && len > (size_t)2 * KV_KEY) {
        /* of one that was killed */
        if (st.st_mtime < time(NULL) - STALE_S)
            (void)unlinkat(dir, name, 0);
        return;
    }
    if (len != 2 * KV_KEY + 3 || strcmp(name + (size_t)2 * KV_KEY, ".kv") != 0 ||
        !read_hex(name, x.key, KV_KEY) || !read_hex(id, x.id, NAMED))
        return; /* none of ours */
    if (all->n == all->cap) {
        const size_t cap = all->cap ? 2 * all->cap : 1024;
        struct file *v = realloc(all->v, cap * sizeof(*v));
        if (!v)
            return;
        all->v = v;
        all->cap = cap;
    }
    x.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    x.bytes = (uint64_t)st.st_size;
    all->v[all->n++] = x;
}

/* Lists the files of `dir`/`name`; with `deeper` folders of files. */
static void walk(struct files *all, int at, const char *name, const char *id, int deeper)
{
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *x; d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        if (x->d_name[0] == '.')
            continue;
        if (deeper == 0)
            note_file(all, id, fd, x->d_name);
        else if (strlen(x->d_name) == (deeper == 2 ? 2 * NAMED : 2))
            walk(all, fd, x->d_name, deeper == 2 ? x->d_name : id, deeper - 1);
    }
    if (d)
        closedir(d);
}

static int older(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static void remove_file(struct kv_folder *f, const struct file *x)
{
    struct kv_folder of = {.dir = f->dir};
    memcpy(of.layout.folder, x->id, NAMED);
    char *path = path_of(&of, x->key, ".kv");
    if (path && unlink(path) == 0)
        atomic_fetch_add(&f->evictions, 1);
    free(path);
}

/* To the limit; `full`: of the disk, which has been reached. */
static void trim(struct kv_folder *f, bool full)
{
    struct files all = {0};
    uint64_t sum = 0;
    walk(&all, AT_FDCWD, f->dir, "", 2);
    for (size_t i = 0; i < all.n; i++)
        sum += all.v[i].bytes;
    const uint64_t most = full && sum < f->limit ? sum : f->limit, keep = most - most / SHARE_KEPT;
    if (all.n > 0 && (full || sum > f->limit)) {
        qsort(all.v, all.n, sizeof(*all.v), older);
        for (size_t i = 0; i < all.n && sum > keep; i++) {
            remove_file(f, &all.v[i]);
            sum -= all.v[i].bytes;
        }
    }
    free(all.v);
    atomic_store(&f->bytes, sum);
    f->unseen = 0;
    f->looked = true;
}

void kv_folder_trim(struct kv_folder *f) { trim(f, false); }

/* ------------------------------------------------------------------ life */

struct kv_folder *kv_folder_open(const char *dir, uint64_t limit, const struct kv_layout *l,
                                 struct err *e)
{
    struct kv_folder *f = calloc(1, sizeof(*f));
    if (!f || asprintf(&f->dir, "%s/", dir) < 0) {
        free(f);
        return err_nomem(e), NULL;
    }
    f->layout = *l;
    f->limit = limit;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        LOG(LOG_WARN, "the folder of --kv-offload-dir cannot be made", LOGS("folder", dir),
            LOGS("error", strerrordesc_np(errno)));
    else if (access(dir, W_OK) != 0)
        LOG(LOG_WARN, "the folder of --kv-offload-dir is only read", LOGS("folder", dir),
            LOGS("error", strerrordesc_np(errno)));
    return f;
}

void kv_folder_close(struct kv_folder *f)
{
    if (!f)
        return;
    free(f->dir);
    free(f);
}

struct kv_folder_stats kv_folder_stats(const struct kv_folder *f)
{
    return (struct kv_folder_stats){.bytes = atomic_load(&f->bytes),
                                    .evictions = atomic_load(&f->evictions),
                                    .damaged = atomic_load(&f->damaged),
                                    .foreign = atomic_load(&f->foreign),
                                    .failed_writes = atomic_load(&f->failed_writes),
                                    .written = atomic_load(&f->written)};
}
