#include "model-server/model/checkpoint/checkpoint.h"
#include "common/hub/index.h"
#include "common/hub/names.h"
#include "common/json/json.h"
#include "common/model/first_module.h"
#include "model-server/model/arch.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* File names of checkpoints in a folder, in the order of the search. */
static const struct {
    const char *single, *index;
} spellings[] = {{HUB_WEIGHTS, HUB_INDEX},
                 {HUB_TORCH_WEIGHTS, HUB_TORCH_INDEX},
                 {"medusa_lm_head.safetensors", NULL},
                 {"medusa_lm_head.pt", NULL}};
enum { SPELLINGS = sizeof(spellings) / sizeof(spellings[0]) };

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
        return err_set(e, ERR_VALIDATION, "%s: missing (named by %s)", path, c->index_name);
    struct tensor_file *files = realloc(c->files, (c->n_files + 1) * sizeof(files[0]));
    if (!files)
        return err_nomem(e);
    c->files = files;
    if (tensor_file_open(&files[c->n_files], path, e))
        return -1;
    c->bytes += files[c->n_files++].map_size;
    return 0;
}

static int open_index(struct checkpoint *c, const char *file, struct err *e)
{
    struct hub_index index;
    int rc = 0;
    if (hub_index_open(&index, c->dir, file, e))
        return -1;
    c->index_name = file;
    c->index = index.json;
    for (size_t i = 0; i < index.n && rc == 0; i++)
        rc = add_file(c, index.names[i], e);
    index.json = NULL; /* ours now */
    hub_index_close(&index);
    return rc;
}

/* The model below a retriever's projection (ColPali) in files of transformers. */
static const char *find_outer(const struct checkpoint *c)
{
    static const char vlm[] = "vlm.";
    for (uint32_t f = 0; f < c->n_files; f++)
        for (uint32_t i = 0; i < c->files[f].n; i++)
            if (strncmp(c->files[f].tensors[i].name, vlm, sizeof(vlm) - 1) == 0)
                return vlm;
    return "";
}

static int open_folder(struct checkpoint *c, struct err *e)
{
    for (int i = 0; i < SPELLINGS; i++) {
        if (has(c->dir, spellings[i].single))
            return add_file(c, spellings[i].single, e);
        if (spellings[i].index && has(c->dir, spellings[i].index))
            return open_index(c, spellings[i].index, e);
    }
    return err_set(e, ERR_VALIDATION,
                   "%s: no " HUB_WEIGHTS ", no " HUB_INDEX " and no " HUB_TORCH_WEIGHTS, c->dir);
}

typedef int open_gguf(struct gguf_weights *w, const char *path, const struct arch *a,
                      struct err *e);

static int open_either(struct checkpoint *c, const char *dir, const struct arch *a, open_gguf *gguf,
                       struct err *e)
{
    int rc;
    char own[PATH_MAX];
    const bool moved = !gguf_is_file(dir) && first_module_folder(dir, own);
    *c = (struct checkpoint){.dir = strdup(moved ? own : dir)};
    if (!c->dir)
        return err_nomem(e);
    if (a && gguf_is_file(dir))
        rc = gguf(&c->gguf, dir, a, e);
    else
        rc = open_folder(c, e);
    if (rc)
        checkpoint_close(c);
    else
        c->outer = find_outer(c);
    return rc;
}

int checkpoint_open(struct checkpoint *c, const char *dir, const struct arch *a, struct err *e)
{
    return open_either(c, dir, a, gguf_weights_open, e);
}

int checkpoint_open_tower(struct checkpoint *c, const char *dir, const struct arch *a,
                          struct err *e)
{
    return open_either(c, dir, a, gguf_tower_open, e);
}

void checkpoint_close(struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_files; i++)
        tensor_file_close(&c->files[i]);
    free(c->files);
    gguf_weights_close(&c->gguf);
    cJSON_Delete(c->index);
    free(c->dir);
    *c = (struct checkpoint){0};
}

static const struct tensor *find_named(const struct checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        const struct tensor *t = tensor_file_find(&c->files[i], name);
        if (t) {
            c->files[i].tensors[t - c->files[i].tensors].found = true;
            return t;
        }
    }
    return gguf_weights_find(&c->gguf, name);
}

const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    char whole[TENSOR_NAME_CAP];
    const struct tensor *t = find_named(c, name);
    if (t || !c->outer || !*c->outer)
        return t;
    snprintf(whole, sizeof(whole), "%s%s", c->outer, name);
    return find_named(c, whole);
}

int checkpoint_missing(const struct checkpoint *c, const char *name, struct err *e)
{
    if (c->gguf.set.n)
        return err_set(e, ERR_VALIDATION, "%s: it has no tensor for `%s`", c->dir, name);
    if (!c->index)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is missing", c->files[0].path, name);
    return err_set(e, ERR_VALIDATION, "%s/%s: tensor `%s` is missing", c->dir,
                   json_str(json_get(c->index, "weight_map"), name, c->index_name), name);
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
