#include "model-server/adapter_list.h"
#include "common/cleanup.h"
#include "common/hub/cache.h"
#include <stdlib.h>
#include <string.h>

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
    *out = (struct adapter_source){STEAL(name), STEAL(dir)}; /* the name ends at its '@' or '=' */
    return 0;
}

int adapter_list_read(struct adapter_list *l, const struct flag_list *items, struct err *e)
{
    *l = (struct adapter_list){.v = calloc(items->n + (size_t)1, sizeof(*l->v))};
    if (!l->v)
        return err_nomem(e);
    for (; l->n < items->n; l->n++)
        if (read_item(&l->v[l->n], items->v[l->n], e))
            return -1;
    return 0;
}

void adapter_list_free(struct adapter_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        free((char *)(uintptr_t)l->v[i].name);
        free((char *)(uintptr_t)l->v[i].dir);
    }
    free(l->v);
    *l = (struct adapter_list){.n = 0};
}
