#include "model-server/model/checkpoint.h"
#include "common/json.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SHARDS = 4096, INDEX_MAX = 100 * 1000 * 1000 };
#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

static int path_of(char out[PATH_MAX], const char *dir, const char *name, struct err *e)
{
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    return 0;
}

static bool has(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct err e;
    return path_of(path, dir, name, &e) == 0 && access(path, F_OK) == 0;
}

static int add_file(struct checkpoint *c, const char *name, struct err *e)
{
    char path[PATH_MAX];
    if (path_of(path, c->dir, name, e))
        return -1;
    if (c->index && access(path, F_OK) != 0)
        return err_set(e, ERR_VALIDATION, "%s: missing (named by " INDEX ")", path);
    struct safetensors *files = realloc(c->files, (c->n_files + 1) * sizeof(files[0]));
    if (!files)
        return err_nomem(e);
    c->files = files;
    if (safetensors_open(&files[c->n_files], path, e))
        return -1;
    c->bytes += files[c->n_files++].map_size;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names of the index: a name stays inside the folder. */
static int add_shards(struct checkpoint *c, struct err *e)
{
    const cJSON *map = json_get(c->index, "weight_map"), *j;
    size_t n = 0, i = 0;
    int rc = 0;
    if (!cJSON_IsObject(map) || !map->child)
        return err_set(e, ERR_VALIDATION, "%s/" INDEX ": no weight_map", c->dir);
    cJSON_ArrayForEach(j, map)
    {
        if (!cJSON_IsString(j) || strchr(j->valuestring, '/') || !j->valuestring[0])
            return err_set(e, ERR_VALIDATION, "%s/" INDEX ": weight_map names no file for `%.200s`",
                           c->dir, j->string);
        n++;
    }
    const char **names = calloc(n, sizeof(*names));
    if (!names)
        return err_nomem(e);
    cJSON_ArrayForEach(j, map) names[i++] = j->valuestring;
    qsort(names, n, sizeof(*names), by_text);
    for (i = 0; i < n && rc == 0; i++) {
        if (i && strcmp(names[i], names[i - 1]) == 0)
            continue;
        rc =
            c->n_files == MAX_SHARDS
                ? err_set(e, ERR_VALIDATION, "%s/" INDEX ": more than %d files", c->dir, MAX_SHARDS)
                : add_file(c, names[i], e);
    }
    free(names);
    return rc;
}

static int open_index(struct checkpoint *c, struct err *e)
{
    char path[PATH_MAX];
    if (path_of(path, c->dir, INDEX, e) || !(c->index = json_load(path, INDEX_MAX, e)))
        return -1;
    return add_shards(c, e);
}

int checkpoint_open(struct checkpoint *c, const char *dir, struct err *e)
{
    int rc;
    *c = (struct checkpoint){.dir = strdup(dir)};
    if (!c->dir)
        return err_nomem(e);
    if (has(dir, SINGLE))
        rc = add_file(c, SINGLE, e);
    else if (has(dir, INDEX))
        rc = open_index(c, e);
    else if (has(dir, "pytorch_model.bin") || has(dir, "pytorch_model.bin.index.json"))
        rc = err_set(e, ERR_VALIDATION,
                     "%s: pytorch_model.bin is not read here: convert it to " SINGLE, dir);
    else
        rc = err_set(e, ERR_VALIDATION, "%s: no " SINGLE " and no " INDEX, dir);
    if (rc)
        checkpoint_close(c);
    return rc;
}

void checkpoint_close(struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_files; i++)
        safetensors_close(&c->files[i]);
    free(c->files);
    cJSON_Delete(c->index);
    free(c->dir);
    *c = (struct checkpoint){0};
}

const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        const struct tensor *t = safetensors_find(&c->files[i], name);
        if (t)
            return t;
    }
    return NULL;
}

int checkpoint_missing(const struct checkpoint *c, const char *name, struct err *e)
{
    const char *file = json_str(json_get(c->index, "weight_map"), name, c->index ? INDEX : SINGLE);
    return err_set(e, ERR_VALIDATION, "%s/%s: tensor `%s` is missing", c->dir, file, name);
}
