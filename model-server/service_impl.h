/* service_impl.h - private to service*.c: how messages become what the engine takes, and back. */
#ifndef MODEL_SERVER_SERVICE_IMPL_H
#define MODEL_SERVER_SERVICE_IMPL_H
#include "model-server/service.h"
#include "proto/generate.pb-c.h"

/* The engine's thread begins something; service_after() ends it. */
void service_begin(struct service *s, const char *what);
/* All requests of a batch; NULL without memory. What is wrong with one is in its `refusal`.
 * `warmup`: what TGI's router puts into its trial batch is taken as it comes (images, watermarks).
 */
struct seq_spec *read_requests(struct service *s, const Generate__V3__Batch *b, bool warmup,
                               struct rpc_mem *m);

Generate__V3__CachedBatch *write_batch(const struct service *s, const struct batch *b,
                                       struct rpc_mem *m);
/* Rank 0 answers for all: other ranks write none. */
int write_generations(const struct service *s, const struct stepper *st, struct rpc_mem *m,
                      Generate__V3__Generation ***out, size_t *n);

/* An engine call failed. When the ranks have lost each other this process is of no more use: it
 * answers, and ends. Always NULL. */
const ProtobufCMessage *service_failed(struct service *s, const char *rpc, const struct err *e);

/* The answer to a Prefill whose requests have been read, and which began at t0 (clock_ns); NULL
 * with `e`. */
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
/* Reads the blocks of keys[from .. peer->n) from a peer, into the tier's memory, and tells in `r`.
 * keys has at least peer->n. False: nothing new is there. */
bool fetch_from_peer(struct service *s, const Generate__V3__KvPeer *peer,
                     const uint8_t *const *keys, uint32_t from, Generate__V3__KvFetchResponse *r);
/* After a warm-up: the caches are laid out anew. */
int service_lay_out(struct service *s, struct err *e);
/* Into r->adapters; any thread. -1: no memory. */
int list_adapters(struct service *s, Generate__V3__InfoResponse *r, struct rpc_mem *m);
#endif
