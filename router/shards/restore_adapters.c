#include "router/shards/restore_adapters.h"
#include "common/log/log.h"
#include <string.h>

enum { CHANGE_TIMEOUT_MS = 120000 };

int adapter_refusal(const struct fan *f, bool loads, struct err *e)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const char *why;
        const grpc_status_code code = fan_status(f, i, &why);
        if (code == GRPC_STATUS_OK || (!loads && code == GRPC_STATUS_NOT_FOUND))
            continue;
        return err_set(e,
                       code == GRPC_STATUS_FAILED_PRECONDITION ? ERR_OVERLOADED
                       : code == GRPC_STATUS_NOT_FOUND         ? ERR_NOT_FOUND
                       : code == GRPC_STATUS_INVALID_ARGUMENT || code == GRPC_STATUS_ALREADY_EXISTS
                           ? ERR_VALIDATION
                           : ERR_SYSTEM,
                       "%s", why);
    }
    return 0;
}

static const struct served_adapter *started_with(const struct served_adapters *list,
                                                 const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->v[i].path && strcmp(list->v[i].name, name) == 0)
            return &list->v[i];
    return NULL;
}

static int unload(struct fan *f, const char *name, struct err *e)
{
    Generate__V3__UnloadAdapterRequest q = GENERATE__V3__UNLOAD_ADAPTER_REQUEST__INIT;
    q.name = (char *)name;
    (void)fan_call_sync(f, SHARD_UNLOAD_ADAPTER, &q.base, CHANGE_TIMEOUT_MS, false, e);
    return adapter_refusal(f, false, e);
}

/* Does a rank have other files under its name than before? Streams with it would go on wrongly. */
static bool replaced(const struct fan *f, const struct served_adapter *was)
{
    bool other = false;
    struct rpc_mem mem;
    struct err unread = ERR_INIT;
    rpc_mem_init(&mem, 1u << 20);
    for (uint32_t i = 0; i < f->n; i++) {
        const Generate__V3__LoadAdapterResponse *r = (const void *)fan_reply(f, i, &mem, &unread);
        other |= r && r->adapter && other_files(r->adapter->content_hash, was->content);
    }
    rpc_mem_free(&mem);
    return other;
}

/* 1: loaded; 0: it can no longer be loaded; -1: a shard is lost. */
static int load_again(struct fan *f, const struct served_adapter *a, struct err *e)
{
    Generate__V3__LoadAdapterRequest q = GENERATE__V3__LOAD_ADAPTER_REQUEST__INIT;
    struct err none = ERR_INIT;
    q.name = a->name;
    q.path = a->path;
    if (fan_call_sync(f, SHARD_LOAD_ADAPTER, &q.base, CHANGE_TIMEOUT_MS, false, e) == 0) {
        if (!replaced(f, a))
            return 1;
        err_set(e, ERR_VALIDATION, "its files were replaced");
    }
    if (fan_lost_rank(f) >= 0)
        return -1;
    LOG(LOG_ERROR, "an adapter could not be reloaded", LOGS("adapter", a->name),
        LOGS("path", a->path), LOGS("error", e->msg));
    (void)unload(f, a->name, &none);
    return fan_lost_rank(f) >= 0 ? -1 : 0;
}

/* As load_again(), for any adapter of the list. *out: its entry in the new one. */
static int restore(struct fan *f, const struct served_adapter *was,
                   const struct served_adapters *list, const struct served_adapters *theirs,
                   bool keep, struct served_adapter *out, struct err *e)
{
    *out = *was;
    if (was->path)
        return load_again(f, was, e);
    const struct served_adapter *now = served_adapters_find(theirs, was->name);
    if (now && !served_adapters_same(list, now)) {
        LOG(LOG_ERROR, "an adapter's files were replaced", LOGS("adapter", was->name));
        if (unload(f, was->name, e))
            return -1;
        now = NULL;
    } else if (!now) {
        LOG(LOG_ERROR, "the shards came back without an adapter", LOGS("adapter", was->name));
    }
    out->leaving = !now;
    /* without the missing ones a page may be smaller; what is missing takes none, so that the
     * shards refuse requests that wait with it */
    out->pages = now ? now->pages : 0;
    out->content = now ? now->content : was->content;
    return now || keep;
}

static int restore_all(struct fan *f, const struct served_adapters *list,
                       const struct served_adapters *theirs, bool keep,
                       struct served_adapters **out, struct err *e)
{
    for (uint32_t i = 0; i < theirs->n; i++)
        if (!started_with(list, theirs->v[i].name) && unload(f, theirs->v[i].name, e) != 0)
            return -1;
    for (uint32_t i = 0; i < list->n; i++) {
        struct served_adapter a;
        const int there = restore(f, &list->v[i], list, theirs, keep, &a, e);
        struct served_adapters *next = there > 0 ? served_adapters_with(*out, &a) : NULL;
        if (there < 0)
            return -1;
        if (there && !next)
            return err_nomem(e);
        if (next) {
            served_adapters_release(*out);
            *out = next;
        }
    }
    return 0;
}

int restore_adapters(struct served_adapters *list, const struct served_adapters *theirs, bool keep,
                     struct shards *of, struct served_adapters **out, struct err *e)
{
    struct fan f;
    if (!(*out = served_adapters_none()))
        return err_nomem(e);
    int rc = fan_init(&f, of, NULL, NULL, e);
    if (rc == 0) {
        rc = restore_all(&f, list, theirs, keep, out, e);
        fan_free(&f);
    }
    if (rc != 0) {
        served_adapters_release(*out);
        *out = NULL;
    }
    return rc;
}
