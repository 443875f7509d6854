#include "model-server/model/checkpoint.h"
#include "common/hub/index.h"
#include "common/hub/names.h"
#include "common/json.h"
#include "model-server/model/arch.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE HUB_WEIGHTS
#define INDEX  HUB_INDEX

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

static int open_index(struct checkpoint *c, struct err *e)
{
    struct hub_index index;
    int rc = 0;
    if (hub_index_open(&index, c->dir, e))
        return -1;
    c->index = index.json;
    for (size_t i = 0; i < index.n && rc == 0; i++)
        rc = add_file(c, index.names[i], e);
    index.json = NULL; /* ours now */
    hub_index_close(&index);
    return rc;
}

int checkpoint_open(struct checkpoint *c, const char *dir, const struct arch *a, struct err *e)
{
    int rc;
    *c = (struct checkpoint){.dir = strdup(dir)};
    if (!c->dir)
        return err_nomem(e);
    if (a && gguf_is_file(dir))
        rc = gguf_weights_open(&c->gguf, dir, a, e);
    else if (has(dir, SINGLE))
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
    gguf_weights_close(&c->gguf);
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
    return gguf_weights_find(&c->gguf, name);
}

int checkpoint_missing(const struct checkpoint *c, const char *name, struct err *e)
{
    if (c->gguf.set.n)
        return err_set(e, ERR_VALIDATION, "%s: it has no tensor for `%s`", c->dir, name);
    const char *file = json_str(json_get(c->index, "weight_map"), name, c->index ? INDEX : SINGLE);
    return err_set(e, ERR_VALIDATION, "%s/%s: tensor `%s` is missing", c->dir, file, name);
}

const struct tensor *checkpoint_find_weight(const struct checkpoint *c, const struct arch *a,
                                            const char *name)
{
    char spelling[TENSOR_NAME_CAP];
    const char *in_file;
    const struct tensor *t = NULL;
    for (int i = 0; !t && (in_file = arch_name_in_file(a, name, i, spelling, sizeof(spelling)));
         i++)
        t = *in_file ? checkpoint_find(c, in_file) : NULL;
    return t;
}
