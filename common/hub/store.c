#include "common/hub/store.h"
#include "common/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Creates `path` and its parents; `last`: including the last component. */
static int make_dirs(const char *path, bool last, struct err *e)
{
    char part[STORE_PATH_MAX];
    for (const char *p = path + 1;; p++) {
        if (*p && *p != '/')
            continue;
        if (!*p && !last)
            return 0;
        snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        if (mkdir(part, 0777) && errno != EEXIST)
            return err_sys(e, "cannot make the folder %.300s", part);
        if (!*p)
            return 0;
    }
}

/* Marks the cache for backup tools (https://bford.info/cachedir/), as huggingface_hub does. */
static void tag_cache(const char *root)
{
    static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n";
    char path[STORE_PATH_MAX];
    snprintf(path, sizeof(path), "%s/CACHEDIR.TAG", root);
    int fd CLEANUP(cleanup_fd) = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && write(fd, text, sizeof(text) - 1) < 0)
        unlink(path);
}

int store_open(struct store *s, const char *root, const char *id, const char *commit, struct err *e)
{
    char path[STORE_PATH_MAX];
    snprintf(s->root, sizeof(s->root), "%s", root);
    snprintf(s->commit, sizeof(s->commit), "%s", commit);
    hub_folder(id, s->folder);
    store_blob(s, "", "", path);
    if (make_dirs(path, false, e))
        return -1;
    store_snapshot(s, path);
    if (make_dirs(path, true, e))
        return -1;
    snprintf(path, sizeof(path), "%s/.locks/%s", s->root, s->folder);
    if (make_dirs(path, true, e))
        return -1;
    tag_cache(s->root);
    return 0;
}

void store_blob(const struct store *s, const char *etag, const char *suffix,
                char out[STORE_PATH_MAX])
{
    snprintf(out, STORE_PATH_MAX, "%s/%s/blobs/%s%s", s->root, s->folder, etag, suffix);
}

void store_snapshot(const struct store *s, char out[STORE_PATH_MAX])
{
    snprintf(out, STORE_PATH_MAX, "%s/%s/snapshots/%s", s->root, s->folder, s->commit);
}

bool store_has_blob(const struct store *s, const char *etag)
{
    char path[STORE_PATH_MAX];
    store_blob(s, etag, "", path);
    return access(path, F_OK) == 0;
}

/* Some tools unlink lock files when done: a lock on an unlinked file is void. */
static bool is_still_there(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

int store_lock(const struct store *s, const char *etag, struct err *e)
{
    char path[STORE_PATH_MAX];
    snprintf(path, sizeof(path), "%s/.locks/%s/%s.lock", s->root, s->folder, etag);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (fd < 0)
        return err_sys(e, "cannot open the lock %.300s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) ? errno != EWOULDBLOCK : is_still_there(fd, path))
        return fd;
    close(fd);
    return -2;
}

int store_link(const struct store *s, const char *name, const char *etag, struct err *e)
{
    char path[STORE_PATH_MAX], tmp[STORE_PATH_MAX + 32], to[HUB_ETAG_MAX + 20];
    store_snapshot(s, path);
    size_t n = strlen(path);
    snprintf(path + n, sizeof(path) - n, "/%s", name);
    const bool inner = strchr(name, '/') != NULL; /* at most one folder deep */
    if (inner && make_dirs(path, false, e))
        return -1;
    snprintf(tmp, sizeof(tmp), "%s.%ld.tmp", path, (long)getpid());
    snprintf(to, sizeof(to), "%s../../blobs/%s", inner ? "../" : "", etag);
    unlink(tmp);
    if (symlink(to, tmp) || rename(tmp, path)) {
        err_sys(e, "cannot link %.300s", path);
        unlink(tmp);
        return -1;
    }
    return 0;
}

int store_ref(const struct store *s, const char *revision, struct err *e)
{
    char path[STORE_PATH_MAX], tmp[STORE_PATH_MAX + 32];
    if (!strcmp(revision, s->commit))
        return 0;
    snprintf(path, sizeof(path), "%s/%s/refs/%s", s->root, s->folder, revision);
    snprintf(tmp, sizeof(tmp), "%s.%ld.tmp", path, (long)getpid());
    if (make_dirs(path, false, e))
        return -1;
    FILE *f = fopen(tmp, "we");
    bool ok = f && fputs(s->commit, f) >= 0; /* no newline: huggingface_hub reads the whole file */
    if (f && fclose(f))
        ok = false;
    if (!ok || rename(tmp, path)) {
        err_sys(e, "cannot write %.300s", path);
        unlink(tmp);
        return -1;
    }
    return 0;
}

int64_t store_free_bytes(const struct store *s)
{
    struct statvfs v;
    return statvfs(s->root, &v) ? -1 : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}
