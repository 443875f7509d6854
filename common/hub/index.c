#include "common/hub/index.h"
#include "common/hub/names.h"
#include "common/json/json.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 4096, BYTES_MAX = 100 * 1000 * 1000 };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int read_names(struct hub_index *x, const char *path, struct err *e)
{
    const cJSON *map = json_get(x->json, "weight_map"), *j;
    size_t n = 0;
    if (!cJSON_IsObject(map) || !map->child)
        return err_set(e, ERR_VALIDATION, "%s: no weight_map", path);
    cJSON_ArrayForEach(j, map) n++;
    if (!(x->names = calloc(n, sizeof(*x->names))))
        return err_nomem(e);
    n = 0;
    cJSON_ArrayForEach(j, map)
    {
        if (!cJSON_IsString(j) || !hub_is_file_name(j->valuestring))
            return err_set(e, ERR_VALIDATION, "%s: weight_map names no file for `%.200s`", path,
                           j->string);
        x->names[n++] = j->valuestring;
    }
    qsort(x->names, n, sizeof(*x->names), by_text);
    for (size_t i = 0; i < n; i++)
        if (!x->n || strcmp(x->names[x->n - 1], x->names[i]) != 0)
            x->names[x->n++] = x->names[i];
    if (x->n > FILES_MAX)
        return err_set(e, ERR_VALIDATION, "%s: more than %d files", path, FILES_MAX);
    return 0;
}

int hub_index_open(struct hub_index *x, const char *dir, const char *file, struct err *e)
{
    char path[PATH_MAX];
    *x = (struct hub_index){0};
    if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    if (!(x->json = json_load(path, BYTES_MAX, e)) || read_names(x, path, e)) {
        hub_index_close(x);
        return -1;
    }
    return 0;
}

void hub_index_close(struct hub_index *x)
{
    free(x->names);
    cJSON_Delete(x->json);
    *x = (struct hub_index){0};
}
