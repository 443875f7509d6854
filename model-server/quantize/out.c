#include "model-server/quantize/out.h"
#include "common/json/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE   "quantize-state.json"
#define SCRATCH "quantize-rows"
enum { STATE_MAX = 4096, HEAD_ALIGN = 8 };

static char *join(const char *a, const char *b, const char *c)
{
    const size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *p = malloc(n);
    if (p)
        snprintf(p, n, "%s%s%s", a, b, c);
    return p;
}

/* ---------------------------------------------------------------- the state of an earlier run */

static int read_state(struct out *o, struct err *e)
{
    char *path = join(o->partial, "/", STATE);
    char key[32];
    int rc = 0;
    if (!path)
        return err_nomem(e);
    if (access(path, F_OK) == 0) {
        cJSON *j = json_load(path, STATE_MAX, e);
        snprintf(key, sizeof(key), "%016llx", (unsigned long long)o->key);
        if (!j)
            rc = -1;
        else if (strcmp(json_str(j, "key", ""), key) != 0)
            rc = err_set(e, ERR_VALIDATION,
                         "%s: it is of a run with other options, or of another source: remove it, "
                         "or choose another name",
                         o->partial);
        else
            o->done = (uint32_t)json_int(j, "units", 0), o->resumed = o->done > 0;
        cJSON_Delete(j);
    }
    free(path);
    return rc;
}

int out_open(struct out *o, const char *path, uint64_t key, bool single, struct err *e)
{
    size_t n = strlen(path);
    *o = (struct out){.key = key, .single = single};
    while (n > 1 && path[n - 1] == '/')
        n--;
    o->path = strndup(path, n);
    o->partial = o->path ? join(o->path, ".partial", "") : NULL;
    if (!o->partial)
        return err_nomem(e);
    if (access(o->path, F_OK) == 0)
        return err_set(e, ERR_VALIDATION, "%s: it is there already", o->path);
    if (mkdir(o->partial, 0777) && errno != EEXIST)
        return err_sys(e, "mkdir %s", o->partial);
    o->ours = read_state(o, e) == 0;
    return o->ours ? 0 : -1;
}

/* ---------------------------------------------------------------- places */

int64_t out_add(struct out *o, const char *name, const char *type, int n_dims, const uint64_t *dims,
                uint64_t bytes, struct err *e)
{
    if (o->n == o->cap) {
        const uint32_t cap = o->cap ? 2 * o->cap : 512;
        struct out_tensor *more = realloc(o->tensors, cap * sizeof(*more));
        if (!more)
            return err_nomem(e);
        o->tensors = more;
        o->cap = cap;
    }
    struct out_tensor *t = &o->tensors[o->n];
    *t = (struct out_tensor){.name = strdup(name), .type = type, .n_dims = n_dims, .bytes = bytes};
    if (!t->name)
        return err_nomem(e);
    for (int i = 0; i < n_dims; i++)
        t->dims[i] = dims[i];
    return o->n++;
}

/* The space of a file is allocated first, so that a disk that is too small is an error before the
 * work. */
static int open_file(struct out *o, const char *name, uint64_t bytes, struct err *e)
{
    struct out_file *more = realloc(o->files, (o->n_files + 1) * sizeof(*more));
    char *path = join(o->partial, "/", name);
    if (!more || !path) {
        o->files = more ? more : o->files;
        free(path);
        return err_nomem(e);
    }
    o->files = more;
    struct out_file *f = &o->files[o->n_files++];
    *f = (struct out_file){strdup(name), open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), bytes};
    int rc = f->fd < 0 || !f->name ? err_sys(e, "open %s", path) : 0;
    const int no_room = rc == 0 && bytes ? posix_fallocate(f->fd, 0, (off_t)bytes) : 0;
    if (no_room) {
        errno = no_room;
        rc = err_sys(e, "%s: %llu bytes", path, (unsigned long long)bytes);
    }
    free(path);
    return rc;
}

static int put(int fd, const void *p, size_t n, uint64_t at, const char *name, struct err *e)
{
    const char *from = p;
    while (n) {
        const ssize_t k = pwrite(fd, from, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(e, "write %s", name);
        from += k, at += (uint64_t)k, n -= (size_t)k;
    }
    return 0;
}

/* Writes tensors [from, to) as a safetensors file: 8 bytes of length, the header, the tensors. */
static int safetensors(struct out *o, uint32_t from, uint32_t to, const char *name, struct err *e)
{
    struct buf head = BUF_INIT;
    uint64_t at = 0;
    buf_add(&head, "\0\0\0\0\0\0\0\0", 8);
    buf_str(&head, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = from; i < to; i++) {
        struct out_tensor *t = &o->tensors[i];
        buf_ch(&head, ',');
        buf_json_str(&head, t->name, strlen(t->name));
        buf_fmt(&head, ":{\"dtype\":\"%s\",\"shape\":[", t->type);
        for (int d = 0; d < t->n_dims; d++)
            buf_fmt(&head, "%s%llu", d ? "," : "", (unsigned long long)t->dims[d]);
        buf_fmt(&head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                (unsigned long long)at + t->bytes);
        t->at = at;
        t->file = o->n_files;
        at += t->bytes;
    }
    buf_ch(&head, '}');
    while (head.len % HEAD_ALIGN)
        buf_ch(&head, ' ');
    if (head.oom) {
        buf_free(&head);
        return err_nomem(e);
    }
    const uint64_t n = head.len - 8;
    memcpy(head.p, &n, sizeof(n));
    int rc = open_file(o, name, head.len + at, e);
    if (rc == 0)
        rc = put(o->files[o->n_files - 1].fd, head.p, head.len, 0, name, e);
    for (uint32_t i = from; i < to; i++)
        o->tensors[i].at += head.len;
    buf_free(&head);
    return rc;
}

static int write_index(const struct out *o, uint64_t bytes, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_fmt(&b, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
            (unsigned long long)bytes);
    for (uint32_t i = 0; i < o->n; i++) {
        buf_str(&b, i ? ",\n" : "\n");
        buf_json_str(&b, o->tensors[i].name, strlen(o->tensors[i].name));
        buf_fmt(&b, ": \"%s\"", o->files[o->tensors[i].file].name);
    }
    buf_str(&b, "\n}}\n");
    const int rc =
        b.oom ? err_nomem(e) : out_text(o, "model.safetensors.index.json", b.p, b.len, e);
    buf_free(&b);
    return rc;
}

/* The end of the file that begins with tensor `from`. */
static uint32_t file_end(const struct out *o, uint32_t from, uint64_t most)
{
    uint64_t bytes = o->tensors[from].bytes;
    uint32_t to = from + 1;
    while (to < o->n && bytes + o->tensors[to].bytes <= most)
        bytes += o->tensors[to++].bytes;
    return to;
}

int out_create_safetensors(struct out *o, uint64_t most, struct err *e)
{
    uint32_t files = 0, k = 0;
    uint64_t bytes = 0;
    char name[64];
    for (uint32_t i = 0; i < o->n; i++)
        bytes += o->tensors[i].bytes;
    for (uint32_t i = 0; i < o->n; i = file_end(o, i, most))
        files++;
    for (uint32_t i = 0, to; i < o->n; i = to) {
        to = file_end(o, i, most);
        snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors", ++k, files);
        if (safetensors(o, i, to, files > 1 ? name : "model.safetensors", e))
            return -1;
    }
    return files > 1 ? write_index(o, bytes, e) : 0;
}

void out_place(struct out *o, uint64_t align)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        at = (at + align - 1) / align * align;
        o->tensors[i].at = at;
        at += o->tensors[i].bytes;
    }
}

int out_create_file(struct out *o, const char *name, const struct buf *head, uint64_t align,
                    struct err *e)
{
    const uint64_t data = (head->len + align - 1) / align * align;
    out_place(o, align);
    uint64_t end = data;
    for (uint32_t i = 0; i < o->n; i++) {
        o->tensors[i].file = 0;
        o->tensors[i].at += data;
        end = o->tensors[i].at + o->tensors[i].bytes;
    }
    end = (end + align - 1) / align * align;
    if (open_file(o, name, end, e))
        return -1;
    return put(o->files[0].fd, head->p, head->len, 0, name, e);
}

/* ---------------------------------------------------------------- contents */

int out_write(const struct out *o, uint32_t i, uint64_t at, const void *p, size_t n, struct err *e)
{
    const struct out_tensor *t = &o->tensors[i];
    const struct out_file *f = &o->files[t->file];
    return put(f->fd, p, n, t->at + at, f->name, e);
}

/* Atomically: complete under its name, or absent. */
int out_text(const struct out *o, const char *name, const char *text, size_t n, struct err *e)
{
    char *path = join(o->partial, "/", name), *part = path ? join(path, ".new", "") : NULL;
    int fd = part ? open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    int rc = !part ? err_nomem(e) : fd < 0 ? err_sys(e, "open %s", part) : 0;
    if (rc == 0)
        rc = put(fd, text, n, 0, part, e);
    if (rc == 0 && fsync(fd))
        rc = err_sys(e, "fsync %s", part);
    if (fd >= 0 && close(fd) && rc == 0)
        rc = err_sys(e, "close %s", part);
    if (rc == 0 && rename(part, path))
        rc = err_sys(e, "rename %s", part);
    free(path), free(part);
    return rc;
}

char *out_scratch(const struct out *o, const char *name)
{
    return join(o->partial, "/" SCRATCH, name);
}

static int sync_files(const struct out *o, struct err *e)
{
    for (uint32_t i = 0; i < o->n_files; i++)
        if (fdatasync(o->files[i].fd))
            return err_sys(e, "fdatasync %s", o->files[i].name);
    return 0;
}

int out_done(struct out *o, uint32_t units, struct err *e)
{
    char text[128];
    const int n = snprintf(text, sizeof(text), "{\"key\": \"%016llx\", \"units\": %u}\n",
                           (unsigned long long)o->key, units);
    if (sync_files(o, e) || out_text(o, STATE, text, (size_t)n, e))
        return -1;
    o->done = units;
    return 0;
}

/* Removes files of the partial folder that are not part of the result; `all`: every one. */
static void remove_files(const struct out *o, bool all)
{
    DIR *d = opendir(o->partial);
    for (const struct dirent *x; d && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe)
        const bool ours =
            strncmp(x->d_name, SCRATCH, sizeof(SCRATCH) - 1) == 0 || strcmp(x->d_name, STATE) == 0;
        if (x->d_name[0] != '.' && (all || ours))
            unlinkat(dirfd(d), x->d_name, 0);
    }
    if (d)
        closedir(d);
}

int out_finish(struct out *o, struct err *e)
{
    if (sync_files(o, e))
        return -1;
    remove_files(o, false);
    char *from = o->single ? join(o->partial, "/", o->files[0].name) : strdup(o->partial);
    int rc = !from ? err_nomem(e) : 0;
    if (rc == 0 && rename(from, o->path))
        rc = err_sys(e, "rename %s", from);
    free(from);
    if (rc == 0 && o->single && rmdir(o->partial))
        rc = err_sys(e, "rmdir %s", o->partial);
    return rc;
}

void out_close(struct out *o, bool drop)
{
    for (uint32_t i = 0; i < o->n_files; i++) {
        if (o->files[i].fd >= 0)
            close(o->files[i].fd);
        free(o->files[i].name);
    }
    for (uint32_t i = 0; i < o->n; i++)
        free(o->tensors[i].name);
    if (drop && o->ours) {
        remove_files(o, true);
        rmdir(o->partial);
    }
    free(o->files), free(o->tensors), free(o->path), free(o->partial);
    *o = (struct out){0};
}
