#include "common/hub/cache.h"
#include "common/cleanup.h"
#include "common/json.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *env(const char *name)
{
    const char *v = getenv(name); // NOLINT(concurrency-mt-unsafe): nobody here calls setenv()
    return v && *v ? v : NULL;
}

static void cache_root(char out[PATH_MAX])
{
    const char *dir = env("HUGGINGFACE_HUB_CACHE");
    dir = dir ? dir : env("HF_HUB_CACHE");
    if (dir)
        snprintf(out, PATH_MAX, "%s", dir);
    else if (env("HF_HOME"))
        snprintf(out, PATH_MAX, "%s/hub", env("HF_HOME"));
    else
        snprintf(out, PATH_MAX, "%s/.cache/huggingface/hub", env("HOME") ? env("HOME") : "");
}

/* "org/name" or "name" of harmless characters; anything else was meant as a path. */
static bool is_repository(const char *id)
{
    const char *slash = strchr(id, '/');
    return *id && *id != '.' && *id != '/' && !strstr(id, "..") &&
           !(slash && strchr(slash + 1, '/')) &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") ==
               strlen(id) &&
           id[strlen(id) - 1] != '/' && strlen(id) < 200;
}

static bool is_revision(const char *r)
{
    return *r && *r != '/' && !strstr(r, "..") && strlen(r) < 200;
}

/* The folder of one repository: slashes become "--". */
static int repository_dir(const char *root, const char *id, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/models--", root);
    for (; *id && n > 0 && n < PATH_MAX - 3; id++)
        n += snprintf(out + n, (size_t)(PATH_MAX - n), *id == '/' ? "--" : "%c", *id);
    return *id ? -1 : 0;
}

/* refs/<revision> names a commit; a commit names itself. */
static void read_ref(const char *repository, const char *revision, char out[256])
{
    char path[PATH_MAX + 300];
    struct err e = ERR_INIT;
    size_t n;
    snprintf(path, sizeof(path), "%s/refs/%s", repository, revision);
    char *text CLEANUP(cleanup_free) = file_read(path, 4096, &n, &e);
    snprintf(out, 256, "%s", text ? text : revision);
    out[strcspn(out, " \r\n")] = '\0';
}

char *hub_resolve(const char *model_id, const char *revision, struct err *e)
{
    char root[PATH_MAX], repository[PATH_MAX], commit[256], path[2 * PATH_MAX];
    if (is_dir(model_id)) {
        char *copy = strdup(model_id);
        return copy ? copy : (err_nomem(e), NULL);
    }
    if (!is_repository(model_id)) {
        err_set(e, ERR_VALIDATION, "%s: no such folder", model_id);
        return NULL;
    }
    revision = revision && *revision ? revision : "main";
    cache_root(root);
    if (!is_revision(revision) || repository_dir(root, model_id, repository)) {
        err_set(e, ERR_VALIDATION, "%s: not a revision", revision);
        return NULL;
    }
    read_ref(repository, revision, commit);
    snprintf(path, sizeof(path), "%s/snapshots/%s", repository, commit);
    if (!is_revision(commit) || !is_dir(path)) {
        err_set(e, ERR_VALIDATION,
                "%s (revision %s) is neither a folder nor in the cache %s; this version does not "
                "download: fetch it with `huggingface-cli download %s`, or give a folder",
                model_id, revision, root, model_id);
        return NULL;
    }
    char *copy = strdup(path);
    return copy ? copy : (err_nomem(e), NULL);
}

bool hub_has_file(const char *dir, const char *suffix)
{
    DIR *d = opendir(dir);
    const struct dirent *f;
    bool found = false;
    while (d && !found && (f = readdir(d))) { // NOLINT(concurrency-mt-unsafe): own stream
        size_t n = strlen(f->d_name), k = strlen(suffix);
        found = n > k && strcmp(f->d_name + n - k, suffix) == 0;
    }
    if (d)
        closedir(d);
    return found;
}
