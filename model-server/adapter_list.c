#include "model-server/adapter_list.h"
#include "common/cleanup.h"
#include "common/hub/cache.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/model/model_file.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 16 * 1024 * 1024 };

static void source_free(struct adapter_source *s)
{
    free((char *)(uintptr_t)s->name);
    free((char *)(uintptr_t)s->dir);
}

static int read_item(struct adapter_source *out, const char *item, struct err *e)
{
    char *name CLEANUP(cleanup_free) = strdup(item);
    if (!name)
        return err_nomem(e);
    char *revision = strchr(name, '@'), *path = strchr(name, '=');
    if (revision)
        *revision++ = '\0';
    if (path)
        *path++ = '\0';
    const char *from = path ? path : name;
    if (!*name || !*from || (revision && (!*revision || strchr(revision, '@'))) ||
        strchr(from, '='))
        return err_set(e, ERR_VALIDATION, "Invalid LoRA adapter format: %s", item);
    char *dir CLEANUP(cleanup_free) = hub_resolve(from, revision, e);
    if (!dir)
        return err_wrap(e, "--lora-adapters");
    *out = (struct adapter_source){.name = STEAL(name),
                                   .dir = STEAL(dir)}; /* the name ends at its '@' or '=' */
    return 0;
}

/* 1: read; 0: its files are missing, and that is allowed. */
static int read_or_skip(struct adapter_source *out, const char *item, bool skip_missing,
                        struct err *e)
{
    struct err missing = ERR_INIT;
    const int rc = read_item(out, item, skip_missing ? &missing : e);
    if (!skip_missing)
        return rc ? -1 : 1;
    if (rc == 0 && hub_parts(out->dir) == HUB_WHOLE) {
        out->optional = true;
        return 1;
    }
    LOG(LOG_ERROR, "an adapter is missing and is not served", LOGS("adapter", item),
        LOGS("error", rc ? missing.msg : "its folder is not complete"));
    if (rc == 0)
        source_free(out);
    return 0;
}

int adapter_list_read(struct adapter_list *l, const struct flag_list *items, bool skip_missing,
                      struct err *e)
{
    *l = (struct adapter_list){.v = calloc(items->n + (size_t)1, sizeof(*l->v))};
    if (!l->v)
        return err_nomem(e);
    for (uint32_t i = 0; i < items->n; i++) {
        const int rc = read_or_skip(&l->v[l->n], items->v[i], skip_missing, e);
        if (rc < 0)
            return -1;
        l->n += (uint32_t)rc;
    }
    return 0;
}

int adapter_list_inside(struct adapter_list *l, const char *dir, struct err *e)
{
    char path[PATH_MAX];
    const cJSON *name;
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return 0;                  /* the model reports it */
    struct err ignored = ERR_INIT; /* as this */
    cJSON *j = model_file_json(path, CONFIG_BYTES, &ignored);
    const cJSON *names = json_get(j, "lora_adaptations");
    const size_t n = cJSON_IsArray(names) ? (size_t)cJSON_GetArraySize(names) : 0;
    struct adapter_source *all = n ? realloc(l->v, (l->n + n) * sizeof(*all)) : NULL;
    int rc = n && !all ? err_nomem(e) : 0;
    if (all)
        l->v = all;
    uint32_t at = 0;
    cJSON_ArrayForEach(name, names)
    {
        struct adapter_source s = {.inside = ++at};
        if (!all || rc || !cJSON_IsString(name) || !*name->valuestring)
            continue;
        s.name = strdup(name->valuestring);
        s.dir = strdup(dir);
        l->v[l->n++] = s;
        if (!s.name || !s.dir)
            rc = err_nomem(e);
    }
    cJSON_Delete(j);
    return rc;
}

void adapter_list_free(struct adapter_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        source_free(&l->v[i]);
    free(l->v);
    *l = (struct adapter_list){.n = 0};
}
