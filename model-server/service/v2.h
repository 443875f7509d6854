/* v2.h - generate.v2 on top of generate.v3: its messages are subsets of v3's, and missing
 * values (blocks, special tokens) are filled in. Private to service*.c. */
#ifndef MODEL_SERVER_SERVICE_V2_H
#define MODEL_SERVER_SERVICE_V2_H
#include "model-server/service/impl.h"

/* The request that owns each KV block, since a v2 router assigns none. Zeroed: not used yet. All
 * ranks see the same calls and assign the same blocks. */
struct v2_blocks {
    uint64_t *owner; /* [n] */
    bool *taken;     /* [n] */
    uint32_t n;
};
void v2_blocks_free(struct v2_blocks *b);

#define V2_METHODS(METHOD)                                                                         \
    METHOD("Info", info_request, RPC_AT_ONCE, v2_info),                                            \
        METHOD("Health", health_request, RPC_AT_ONCE, rpc_health),                                 \
        METHOD("ServiceDiscovery", service_discovery_request, RPC_AT_ONCE, rpc_discover),          \
        METHOD("ClearCache", clear_cache_request, RPC_SERIAL, rpc_clear_cache),                    \
        METHOD("FilterBatch", filter_batch_request, RPC_SERIAL, v2_filter_batch),                  \
        METHOD("Warmup", warmup_request, RPC_SERIAL, v2_warmup),                                   \
        METHOD("Prefill", prefill_request, RPC_SERIAL, v2_prefill),                                \
        METHOD("Decode", decode_request, RPC_SERIAL, v2_decode)
RPC_HANDLER(v2_info);
RPC_HANDLER(v2_filter_batch);
RPC_HANDLER(v2_warmup);
RPC_HANDLER(v2_prefill);
RPC_HANDLER(v2_decode);
#endif
