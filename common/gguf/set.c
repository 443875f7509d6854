#include "common/gguf/set.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 4096, TAIL = sizeof("-00001-of-00001.gguf") - 1 };

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && strcasecmp(s + n - k, end) == 0;
}

/* Parses the name of a split model's file: its number, and the count. */
static bool split_name(const char *path, unsigned *no, unsigned *of)
{
    size_t n = strlen(path);
    int end = 0;
    return n > TAIL &&
           sscanf(path + n - TAIL, "-%5u-of-%5u.gguf%n", no, of, &end) ==
               2 && // NOLINT(cert-err34-c)
           end == TAIL &&
           *no >= 1 && *no <= *of && *of <= FILES_MAX;
}

static int add(struct gguf_set *s, const char *path, struct err *e)
{
    struct gguf *g = &s->files[s->n];
    if (gguf_open(g, path, e))
        return -1;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (gguf_set_tensor(s, g->tensors[i].name)) {
            err_set(e, ERR_VALIDATION, "%s: tensor `%s` is in another file of the model too", path,
                    g->tensors[i].name);
            gguf_close(g);
            return -1;
        }
    s->n++;
    return 0;
}

/* Checks that file metadata agrees with the names, if present. */
static int check_split(const struct gguf_set *s, struct err *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        double no = i, of = s->n;
        gguf_number(&s->files[i], "split.no", &no);
        gguf_number(&s->files[i], "split.count", &of);
        if (no != i || of != s->n)
            return err_set(e, ERR_VALIDATION,
                           "%s: is file %g of %g by its metadata, and %u of %u by its name",
                           s->files[i].path, no + 1, of, i + 1, s->n);
    }
    return 0;
}

const char *gguf_projector_path(const char *path)
{
    const char *mark = strstr(path, GGUF_PROJECTOR_MARK);
    return mark ? mark + strlen(GGUF_PROJECTOR_MARK) : NULL;
}

const char *gguf_model_path(const char *path, char out[PATH_MAX])
{
    const char *projector = gguf_projector_path(path);
    if (!projector)
        return path;
    snprintf(out, PATH_MAX, "%.*s", (int)(projector - path - (long)strlen(GGUF_PROJECTOR_MARK)),
             path);
    return out;
}

bool gguf_part_name(const char *first, uint32_t no, char *out, size_t size)
{
    char model[PATH_MAX];
    unsigned is = 1, of = 1;
    first = gguf_model_path(first, model);
    const bool split = split_name(first, &is, &of);
    const int stem = split ? (int)(strlen(first) - TAIL) : (int)strlen(first);
    int n = split ? snprintf(out, size, "%.*s-%05u-of-%05u.gguf", stem, first, no, of)
                  : snprintf(out, size, "%s", first);
    return no >= 1 && no <= of && n < (int)size;
}

bool gguf_set_is_whole(const char *path)
{
    char name[PATH_MAX], model[PATH_MAX];
    unsigned no = 1, of = 1;
    path = gguf_model_path(path, model);
    split_name(path, &no, &of);
    for (uint32_t i = 1; i <= of; i++)
        if (!gguf_part_name(path, i, name, sizeof(name)) || access(name, R_OK) != 0)
            return false;
    return true;
}

static int open_projector(struct gguf_set *s, const char *path, struct err *e)
{
    if (!(s->projector = calloc(1, sizeof(*s->projector))))
        return err_nomem(e);
    if (gguf_open(s->projector, path, e) == 0)
        return 0;
    free(s->projector);
    s->projector = NULL;
    return -1;
}

int gguf_set_open(struct gguf_set *s, const char *path, struct err *e)
{
    char name[PATH_MAX], model[PATH_MAX];
    unsigned no = 1, of = 1;
    const char *projector = gguf_projector_path(path);
    path = gguf_model_path(path, model);
    const bool split = split_name(path, &no, &of);
    *s = (struct gguf_set){.files = calloc(of, sizeof(s->files[0]))};
    if (!s->files)
        return err_nomem(e);
    int rc = 0;
    for (unsigned i = 1; i <= of && rc == 0; i++)
        rc = gguf_part_name(path, i, name, sizeof(name))
                 ? add(s, name, e)
                 : err_set(e, ERR_VALIDATION, "%.200s...: path too long", path);
    if (rc == 0 && split)
        rc = check_split(s, e);
    if (rc == 0 && projector)
        rc = open_projector(s, projector, e);
    if (rc)
        gguf_set_close(s);
    return rc;
}

void gguf_set_close(struct gguf_set *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        gguf_close(&s->files[i]);
    free(s->files);
    if (s->projector)
        gguf_close(s->projector);
    free(s->projector);
    *s = (struct gguf_set){0};
}

const struct gguf_tensor *gguf_set_tensor(const struct gguf_set *s, const char *name)
{
    const struct gguf_tensor *t = NULL;
    for (uint32_t i = 0; i < s->n && !t; i++)
        t = gguf_tensor(&s->files[i], name);
    return t;
}

/* ---------------------------------------------------------------- selection */

bool gguf_is_file(const char *path)
{
    char magic[4] = "", model[PATH_MAX];
    struct stat st;
    path = gguf_model_path(path, model);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    if (ends_in(path, ".gguf"))
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, magic, sizeof(magic)) == sizeof(magic) &&
              memcmp(magic, "GGUF", sizeof(magic)) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

bool gguf_is_projector(const char *file)
{
    return ends_in(file, ".gguf") && strncasecmp(file, "mmproj", strlen("mmproj")) == 0;
}

bool gguf_is_first(const char *file)
{
    unsigned no = 1, of = 1;
    return ends_in(file, ".gguf") && !gguf_is_projector(file) &&
           (!split_name(file, &no, &of) || no == 1);
}

bool gguf_name_says(const char *file, const char *quant)
{
    const size_t n = strlen(quant);
    for (const char *p = file; n && (p = strcasestr(p, quant)); p++)
        if ((p == file || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]) &&
            p[n] != '_')
            return true;
    return false;
}

char *gguf_in_folder(const char *dir, const char *quant, struct err *e)
{
    char *found = NULL;
    DIR *d = opendir(dir);
    *e = (struct err)ERR_INIT;
    for (const struct dirent *f;
         d && (f = readdir(d));) { // NOLINT(concurrency-mt-unsafe): own stream
        if (!gguf_is_first(f->d_name) || (quant && !gguf_name_says(f->d_name, quant)))
            continue;
        if (found) {
            err_set(e, ERR_VALIDATION,
                    "%s: there are several GGUF models, %s and %s among them: name one file", dir,
                    strrchr(found, '/') + 1, f->d_name);
            free(found);
            found = NULL;
            break;
        }
        if (asprintf(&found, "%s/%s", dir, f->d_name) < 0) {
            found = NULL;
            err_nomem(e);
            break;
        }
    }
    if (d)
        closedir(d);
    return found;
}
