#include "model-server/service.h"
#include "common/rpc_std.h"
#include "model-server/service_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void service_init(struct service *s, const struct service_options *o)
{
    *s = (struct service){.o = *o};
}

void service_free(struct service *s) { tok_scratch_free(s->scratch); }

void service_address(const char *uds_path, uint32_t rank, char *out, size_t size)
{
    const char *port = strrchr(uds_path, ':');
    if (strncmp(uds_path, "tcp://", 6) == 0 && port > uds_path + 5)
        snprintf(out, size, "%.*s:%lu", (int)(port - uds_path), uds_path,
                 strtoul(port + 1, NULL, 10) + rank);
    else
        snprintf(out, size, "%s%s-%u", strncmp(uds_path, "unix://", 7) ? "unix://" : "", uds_path,
                 rank);
}

static const ProtobufCMessage *info(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                    struct err *e)
{
    const struct service *s = ctx;
    Generate__V3__InfoResponse *r = RPC_NEW(call->mem, Generate__V3__InfoResponse, 1);
    char dtype[40];
    (void)in;
    if (!r)
        return err_nomem(e), NULL;
    generate__v3__info_response__init(r);
    snprintf(dtype, sizeof(dtype), "torch.%s", dtype_name(s->o.model->dtype));
    r->dtype = rpc_mem_strdup(call->mem, dtype, strlen(dtype));
    r->quantize = (char *)quant_name(s->o.model->quant);
    r->device_type = (char *)s->o.device_type;
    r->support_chunking = true;
    r->use_prefix_caching = !s->o.model->by_length;
    r->attention_impl = (char *)"paged";
    r->block_size = s->o.block_size;
    r->vocab_size = s->o.model->vocab;
    r->max_positions = s->o.model->max_positions;
    r->world_size = s->o.world;
    r->takes_input_ids = true;
    r->copies_kv = r->takes_chunks = true;
    r->takes_edits = r->takes_bias = true;
    return r->dtype ? &r->base : (err_nomem(e), NULL);
}

static const ProtobufCMessage *health(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                      struct err *e)
{
    static const Generate__V3__HealthResponse fine = GENERATE__V3__HEALTH_RESPONSE__INIT;
    (void)ctx, (void)in, (void)call, (void)e;
    return &fine.base;
}

static const ProtobufCMessage *discover(void *ctx, const ProtobufCMessage *in,
                                        struct rpc_call *call, struct err *e)
{
    const struct service *s = ctx;
    Generate__V3__ServiceDiscoveryResponse *r =
        RPC_NEW(call->mem, Generate__V3__ServiceDiscoveryResponse, 1);
    char **urls = RPC_NEW(call->mem, char *, s->o.world), url[300];
    (void)in;
    if (!r || !urls)
        return err_nomem(e), NULL;
    generate__v3__service_discovery_response__init(r);
    r->urls = urls;
    for (uint32_t i = 0; i < s->o.world; i++) {
        service_address(s->o.uds_path, i, url, sizeof(url));
        if (!(urls[r->n_urls++] = rpc_mem_strdup(call->mem, url, strlen(url))))
            return err_nomem(e), NULL;
    }
    return &r->base;
}

static const ProtobufCMessage *clear_cache(void *ctx, const ProtobufCMessage *in,
                                           struct rpc_call *call, struct err *e)
{
    static const Generate__V3__ClearCacheResponse done = GENERATE__V3__CLEAR_CACHE_RESPONSE__INIT;
    const Generate__V3__ClearCacheRequest *q = (const void *)in;
    struct service *s = ctx;
    (void)call, (void)e;
    engine_clear(s->o.engine,
                 q->_id_case == GENERATE__V3__CLEAR_CACHE_REQUEST___ID_ID ? &q->id : NULL);
    return &done.base;
}

static const ProtobufCMessage *filter_batch(void *ctx, const ProtobufCMessage *in,
                                            struct rpc_call *call, struct err *e)
{
    const Generate__V3__FilterBatchRequest *q = (const void *)in;
    struct service *s = ctx;
    const struct batch *b;
    Generate__V3__FilterBatchResponse *r = RPC_NEW(call->mem, Generate__V3__FilterBatchResponse, 1);
    if (!r)
        return err_nomem(e), NULL;
    if (engine_filter(s->o.engine, q->batch_id, q->request_ids, q->n_request_ids, &b, e))
        return NULL;
    generate__v3__filter_batch_response__init(r);
    r->batch = write_batch(s, b, call->mem);
    return r->batch ? &r->base : (err_nomem(e), NULL);
}

#define METHOD(rpc, message, lane, fn)                                                             \
    {                                                                                              \
        "/generate.v3.TextGenerationService/" rpc, &generate__v3__##message##__descriptor, lane,   \
            fn                                                                                     \
    }
const struct rpc_method service_methods[] = {
    METHOD("Info", info_request, RPC_AT_ONCE, info),
    METHOD("Health", health_request, RPC_AT_ONCE, health),
    METHOD("ServiceDiscovery", service_discovery_request, RPC_AT_ONCE, discover),
    METHOD("ClearCache", clear_cache_request, RPC_SERIAL, clear_cache),
    METHOD("FilterBatch", filter_batch_request, RPC_SERIAL, filter_batch),
    METHOD("Warmup", warmup_request, RPC_SERIAL, rpc_warmup),
    METHOD("Prefill", prefill_request, RPC_SERIAL, rpc_prefill),
    METHOD("Decode", decode_request, RPC_SERIAL, rpc_decode),
    RPC_STD_METHODS,
};
const size_t service_n_methods = sizeof(service_methods) / sizeof(service_methods[0]);
