/* impl.h - private to service*.c: conversion of messages to the engine's types, and
 * back. */
#ifndef MODEL_SERVER_SERVICE_IMPL_H
#define MODEL_SERVER_SERVICE_IMPL_H
#include "model-server/service/service.h"
#include "proto/generate.pb-c.h"

/* The engine's thread starts an operation; service_after() ends it. */
void service_begin(struct service *s, const char *what);
/* Converts all requests of a batch; NULL: out of memory. An invalid request gets a `refusal`.
 * `warmup`: the content of TGI's trial batch is accepted as it is (images, watermarks). */
struct seq_spec *read_requests(struct service *s, const Generate__V3__Batch *b, bool warmup,
                               struct rpc_mem *m);

/* The reply about a batch that the engine keeps. NULL: out of memory. */
Generate__V3__CachedBatch *write_batch(const struct service *s, const struct batch *b,
                                       struct rpc_mem *m);
/* Rank 0 answers for all: other ranks write nothing. */
int write_generations(const struct service *s, const struct stepper *st, struct rpc_mem *m,
                      Generate__V3__Generation ***out, size_t *n);

/* An engine call failed. If the ranks are out of step, the device is lost or weights are spoilt,
 * this process answers and then ends. Always NULL. */
const ProtobufCMessage *service_failed(struct service *s, const char *rpc, const struct err *e);

/* Before an answer leaves: -1 if weights have changed since the last one. The call fails as that of
 * a lost shard, and this process ends. */
int service_check_weights(struct service *s, struct rpc_call *call, struct err *e);

/* The answer to a Prefill whose requests have been converted, and which started at t0 (clock_ns);
 * NULL with `e`. */
Generate__V3__PrefillResponse *run_prefill(struct service *s, const Generate__V3__PrefillRequest *q,
                                           const struct seq_spec *specs, int64_t t0,
                                           struct rpc_call *call, struct err *e);

#define RPC_HANDLER(name)                                                                          \
    const ProtobufCMessage *name(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,     \
                                 struct err *e)
RPC_HANDLER(rpc_info);
RPC_HANDLER(rpc_health);
RPC_HANDLER(rpc_discover);
RPC_HANDLER(rpc_clear_cache);
RPC_HANDLER(rpc_filter_batch);
RPC_HANDLER(rpc_prefill);
RPC_HANDLER(rpc_decode);
RPC_HANDLER(rpc_warmup);
RPC_HANDLER(rpc_embed);
RPC_HANDLER(rpc_load_adapter);
RPC_HANDLER(rpc_unload_adapter);
RPC_HANDLER(rpc_kv_store);
RPC_HANDLER(rpc_kv_fetch);
RPC_HANDLER(rpc_kv_load);
/* Reads the blocks of keys[from .. peer->n) from a peer into the tier's memory, and reports in
 * `r`. keys has at least peer->n. False: nothing new was read. */
bool fetch_from_peer(struct service *s, const Generate__V3__KvPeer *peer,
                     const uint8_t *const *keys, uint32_t from, Generate__V3__KvFetchResponse *r);
/* Call it after a warm-up: sets the new layout of the caches. */
int service_lay_out(struct service *s, struct err *e);
/* Fills r->adapters; any thread. -1: out of memory. */
int list_adapters(struct service *s, Generate__V3__InfoResponse *r, struct rpc_mem *m);
#endif
