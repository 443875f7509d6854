#include "common/hub/cache.h"
#include "common/cleanup.h"
#include "common/gguf/projector.h"
#include "common/gguf/set.h"
#include "common/hub/index.h"
#include "common/hub/names.h"
#include "common/hub/settings.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Resolves refs/<revision> to a commit; a commit resolves to itself. */
static void read_ref(const char *repository, const char *revision, char out[256])
{
    char path[PATH_MAX + HUB_FOLDER_MAX + 300];
    struct err e = ERR_INIT;
    size_t n;
    snprintf(path, sizeof(path), "%s/refs/%s", repository, revision);
    char *text CLEANUP(cleanup_free) = file_read(path, 4096, &n, &e);
    snprintf(out, 256, "%s", text ? text : revision);
    out[strcspn(out, " \r\n")] = '\0';
}

static char *copy(const char *path, struct err *e)
{
    char *p = strdup(path);
    return p ? p : (err_nomem(e), NULL);
}

/* A folder, or the only GGUF model in it. */
static char *folder(const char *dir, struct err *e)
{
    if (hub_has_file(dir, HUB_WEIGHTS) || hub_has_file(dir, HUB_INDEX) ||
        hub_has_file(dir, HUB_ADAPTER_CONFIG))
        return copy(dir, e);
    char *file = gguf_in_folder(dir, NULL, e);
    return file || e->kind != ERR_NONE ? file : copy(dir, e);
}

/* The model of a snapshot with this quantisation (NULL: any). Of several GGUF models Q4_K_M is the
 * default, as in llama-server. */
static char *packed(const char *dir, const char *id, const char *packing, struct err *e)
{
    char *file = packing ? gguf_in_folder(dir, packing, e) : folder(dir, e);
    struct err usual = ERR_INIT;
    if (!file && !packing)
        file = gguf_in_folder(dir, HUB_USUAL_PACKING, &usual);
    if (!file && packing && e->kind == ERR_NONE)
        err_set(e, ERR_VALIDATION,
                "%s: no GGUF file of %s is in the cache (%s); `model-server download-weights %s` "
                "fetches it from the hub",
                id, packing, dir, id);
    return file;
}

static char *absent(struct err *e, const char *path, const char *asked_by)
{
    struct stat st;
    const bool file = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    err_set(e, ERR_VALIDATION, "%s%s: %s", asked_by, path,
            file ? "not a GGUF file; of other files give the folder, with its config.json"
                 : "no such folder or GGUF file");
    e->sys = ENOENT;
    return NULL;
}

char *hub_resolve(const char *model_id, const char *revision, struct err *e)
{
    struct hub_settings s;
    char id[HUB_NAME_MAX], name[HUB_FOLDER_MAX], repository[PATH_MAX + HUB_FOLDER_MAX], commit[256];
    char path[sizeof(repository) + sizeof(commit) + 16];
    const char *packing = NULL;
    if (is_dir(model_id))
        return folder(model_id, e);
    if (gguf_is_file(model_id))
        return copy(model_id, e);
    if (hub_is_repository(model_id))
        snprintf(id, sizeof(id), "%s", model_id);
    else if (!hub_is_packed(model_id, id, &packing)) {
        return absent(e, model_id, "");
    }
    revision = revision && *revision ? revision : "main";
    if (!hub_is_revision(revision)) {
        err_set(e, ERR_VALIDATION, "%s: not a revision", revision);
        return NULL;
    }
    hub_settings_read(&s);
    hub_folder(id, name);
    snprintf(repository, sizeof(repository), "%s/%s", s.cache, name);
    read_ref(repository, revision, commit);
    snprintf(path, sizeof(path), "%s/snapshots/%s", repository, commit);
    if (!hub_is_revision(commit) || !is_dir(path)) {
        err_set(e, ERR_VALIDATION,
                "%s (revision %s) is neither a folder nor in the cache %s; "
                "`model-server download-weights %s` fetches it from the hub",
                model_id, revision, s.cache, model_id);
        e->sys = ENOENT;
        return NULL;
    }
    return packed(path, model_id, packing, e);
}

static char *resolve_given(const char *model_id, const char *revision, struct err *e)
{
    const char *instead = hub_weights_override();
    if (!instead)
        return hub_resolve(model_id, revision, e);
    if (is_dir(instead))
        return folder(instead, e);
    if (gguf_is_file(instead))
        return copy(instead, e);
    return absent(e, instead, "WEIGHTS_CACHE_OVERRIDE: ");
}

char *hub_resolve_model(const char *model_id, const char *revision, const char *mmproj,
                        struct err *e)
{
    char *path = resolve_given(model_id, revision, e);
    return path ? gguf_with_projector(path, mmproj, e) : NULL;
}

bool hub_has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < PATH_MAX && access(path, R_OK) == 0;
}

static bool has_all_shards(const char *dir, const char *file)
{
    struct err e = ERR_INIT;
    struct hub_index index;
    if (!hub_has_file(dir, file) || hub_index_open(&index, dir, file, &e))
        return false;
    bool all = true;
    for (size_t i = 0; i < index.n && all; i++)
        all = hub_has_file(dir, index.names[i]);
    hub_index_close(&index);
    return all;
}

enum hub_parts hub_parts(const char *dir)
{
    if (gguf_is_file(dir))
        return gguf_set_is_whole(dir) ? HUB_WHOLE : HUB_NO_WEIGHTS;
    if (hub_has_file(dir, HUB_ADAPTER_CONFIG) &&
        (hub_has_file(dir, HUB_ADAPTER_WEIGHTS) || hub_has_file(dir, HUB_TORCH_ADAPTER)))
        return HUB_WHOLE;
    if (!hub_has_file(dir, HUB_WEIGHTS) && !has_all_shards(dir, HUB_INDEX) &&
        !hub_has_file(dir, HUB_TORCH_WEIGHTS) && !has_all_shards(dir, HUB_TORCH_INDEX))
        return HUB_NO_WEIGHTS;
    return hub_has_file(dir, "config.json") &&
                   (hub_has_file(dir, "tokenizer.json") || tokenizer_folder_has(dir))
               ? HUB_WHOLE
               : HUB_ONLY_WEIGHTS;
}
