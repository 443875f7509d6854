/* fake_shard_adapters.h - adapters of a fake shard that are loaded and unloaded: names without
 * weights. See fake_shard.h. */
#ifndef TESTS_FAKE_SHARD_ADAPTERS_H
#define TESTS_FAKE_SHARD_ADAPTERS_H
#include "tests/fake_shard_model.h"

/* Index of the adapter, or -1. With the lock. */
static inline int fake_find_adapter(const struct fake_shard *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_adapters; i++)
        if (strcmp(f->adapters[i], name) == 0)
            return (int)i;
    return -1;
}

static inline const ProtobufCMessage *fake_load_adapter(void *ctx, const ProtobufCMessage *in,
                                                        struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__LoadAdapterRequest *q = (const void *)in;
    Generate__V3__LoadAdapterResponse *r = RPC_NEW(call->mem, Generate__V3__LoadAdapterResponse, 1);
    while (f->hold_adapter) {
        f->holds_adapter = true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    generate__v3__load_adapter_response__init(r);
    pthread_mutex_lock(&f->lock);
    const bool there = fake_find_adapter(f, q->name) >= 0;
    assert(there || f->n_adapters < FAKE_MAX_ADAPTERS);
    if (!there)
        snprintf(f->adapters[f->n_adapters++], sizeof(f->adapters[0]), "%s", q->name);
    pthread_mutex_unlock(&f->lock);
    if (!there)
        return &r->base;
    call->code = GRPC_STATUS_ALREADY_EXISTS;
    err_set(e, ERR_VALIDATION, "it is loaded");
    return NULL;
}

static inline const ProtobufCMessage *fake_unload_adapter(void *ctx, const ProtobufCMessage *in,
                                                          struct rpc_call *call, struct err *e)
{
    struct fake_shard *f = ctx;
    const Generate__V3__UnloadAdapterRequest *q = (const void *)in;
    Generate__V3__UnloadAdapterResponse *r =
        RPC_NEW(call->mem, Generate__V3__UnloadAdapterResponse, 1);
    generate__v3__unload_adapter_response__init(r);
    pthread_mutex_lock(&f->lock);
    const int at = fake_find_adapter(f, q->name);
    if (at >= 0 && (uint32_t)at != --f->n_adapters)
        memcpy(f->adapters[at], f->adapters[f->n_adapters], sizeof(f->adapters[0]));
    pthread_mutex_unlock(&f->lock);
    if (at >= 0)
        return &r->base;
    call->code = GRPC_STATUS_NOT_FOUND;
    err_set(e, ERR_NOT_FOUND, "it is not loaded");
    return NULL;
}

/* Only the number that can still be loaded: a fake shard starts without adapters. */
static inline void fake_adapters_info(struct fake_shard *f, Generate__V3__InfoResponse *r)
{
    pthread_mutex_lock(&f->lock);
    r->runtime_adapters = f->runtime_adapters - f->n_adapters;
    pthread_mutex_unlock(&f->lock);
}
#endif
