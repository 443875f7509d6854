/* Loading and unloading of adapters at run time. Requests find adapters on the thread that owns
 * the model, where these rpcs run too; Info lists them on the server's thread, hence the lock. */
#include "common/cleanup.h"
#include "common/hub/cache.h"
#include "common/log/log.h"
#include "model-server/service/impl.h"
#include <stdlib.h>
#include <string.h>

int list_adapters(struct service *s, Generate__V3__InfoResponse *r, struct rpc_mem *m)
{
    const uint32_t n = s->o.adapters ? adapters_count(s->o.adapters) : 0;
    Generate__V3__Adapter *v = RPC_NEW(m, Generate__V3__Adapter, n + (size_t)1);
    r->adapters = RPC_NEW(m, Generate__V3__Adapter *, n + (size_t)1);
    int rc = v && r->adapters ? 0 : -1;
    pthread_mutex_lock(&s->adapters_lock);
    for (uint32_t i = 1; i <= n && !rc; i++) {
        const char *name = adapters_name(s->o.adapters, i);
        if (!*name)
            continue;
        generate__v3__adapter__init(&v[i]);
        v[i].name = rpc_mem_strdup(m, name, strlen(name));
        v[i].pages = adapters_pages(s->o.adapters, i);
        v[i].content_hash = adapters_content(s->o.adapters, i);
        rc = v[i].name ? 0 : -1;
        r->adapters[r->n_adapters++] = &v[i];
    }
    pthread_mutex_unlock(&s->adapters_lock);
    return rc;
}

static int refuse(struct rpc_call *call, grpc_status_code code)
{
    call->code = code;
    return -1;
}

static int check_enabled(const struct service *s, struct rpc_call *call, struct err *e)
{
    if (s->o.runtime_adapters)
        return 0;
    err_set(e, ERR_VALIDATION, "adapters cannot come and go: see --max-runtime-adapters");
    return refuse(call, GRPC_STATUS_FAILED_PRECONDITION);
}

static int load(struct service *s, const Generate__V3__LoadAdapterRequest *q, struct rpc_call *call,
                uint32_t *number, struct err *e)
{
    if (check_enabled(s, call, e))
        return -1;
    if (*q->name && adapters_find(s->o.adapters, q->name)) {
        err_set(e, ERR_VALIDATION, "adapter `%s` is loaded already", q->name);
        return refuse(call, GRPC_STATUS_ALREADY_EXISTS);
    }
    char *dir CLEANUP(cleanup_free) = hub_resolve(q->path, NULL, e);
    const struct adapter_source from = {q->name, dir};
    pthread_mutex_lock(&s->adapters_lock);
    *number = dir ? adapters_add(s->o.adapters, &from, e) : 0;
    pthread_mutex_unlock(&s->adapters_lock);
    return *number ? 0 : refuse(call, dir ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_NOT_FOUND);
}

const ProtobufCMessage *rpc_load_adapter(void *ctx, const ProtobufCMessage *in,
                                         struct rpc_call *call, struct err *e)
{
    const Generate__V3__LoadAdapterRequest *q = (const void *)in;
    struct service *s = ctx;
    uint32_t number;
    Generate__V3__LoadAdapterResponse *r = RPC_NEW(call->mem, Generate__V3__LoadAdapterResponse, 1);
    Generate__V3__Adapter *a = RPC_NEW(call->mem, Generate__V3__Adapter, 1);
    if (!r || !a)
        return err_nomem(e), NULL;
    if (load(s, q, call, &number, e))
        return NULL;
    generate__v3__load_adapter_response__init(r);
    generate__v3__adapter__init(a);
    a->name = q->name;
    a->pages = adapters_pages(s->o.adapters, number);
    a->content_hash = adapters_content(s->o.adapters, number);
    r->adapter = a;
    LOG(LOG_INFO, "Adapter loaded", LOGS("adapter", q->name), LOGS("path", q->path),
        LOGI("pages", a->pages));
    return &r->base;
}

/* Also without `--max-runtime-adapters`: the router unloads what has other files than before it
 * lost its shards. */
static int unload(struct service *s, const char *name, struct rpc_call *call, struct err *e)
{
    const uint32_t number = s->o.adapters ? adapters_find(s->o.adapters, name) : 0;
    if (!number) {
        err_set(e, ERR_VALIDATION, "adapter `%s` is not loaded", name);
        return refuse(call, GRPC_STATUS_NOT_FOUND);
    }
    engine_drop_answer(s->o.engine);
    pthread_mutex_lock(&s->adapters_lock);
    int rc = adapters_remove(s->o.adapters, number, e);
    pthread_mutex_unlock(&s->adapters_lock);
    return rc ? refuse(call, GRPC_STATUS_FAILED_PRECONDITION) : 0;
}

const ProtobufCMessage *rpc_unload_adapter(void *ctx, const ProtobufCMessage *in,
                                           struct rpc_call *call, struct err *e)
{
    static const Generate__V3__UnloadAdapterResponse done =
        GENERATE__V3__UNLOAD_ADAPTER_RESPONSE__INIT;
    const Generate__V3__UnloadAdapterRequest *q = (const void *)in;
    if (unload(ctx, q->name, call, e))
        return NULL;
    LOG(LOG_INFO, "Adapter unloaded", LOGS("adapter", q->name));
    return &done.base;
}
