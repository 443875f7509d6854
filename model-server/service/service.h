/* service.h - the rpcs of generate.v3 and generate.v2: unpack, engine call, pack.
 *
 * Info, Health and ServiceDiscovery read only constant data and are answered at once. The others
 * run one after the other on the thread that owns the model. */
#ifndef MODEL_SERVER_SERVICE_SERVICE_H
#define MODEL_SERVER_SERVICE_SERVICE_H
#include "common/process/startup.h"
#include "common/rpc/server.h"
#include "model-server/engine/engine.h"
#include "model-server/options_words.h"
#include "model-server/packed/packed.h"
#include <pthread.h>
#include <stdatomic.h>

struct service_options {
    struct engine *engine;
    const struct model_info *model;
    struct adapters *adapters; /* NULL: none are served */
    uint32_t runtime_adapters; /* number that can be loaded at run time */
    struct kv_tier *tier;      /* KV tiers for offloaded blocks; NULL: no offloading */
    struct kv_peers *peers;    /* other services' ranks; NULL: no blocks are exchanged */
    /* where they read this rank's, without the rank's number: "host:port"; NULL: nowhere */
    const char *transfer_address;
    struct model *weights;                    /* the model, whose caches are copied */
    const struct packed *packed;              /* a file that weights are mapped from; NULL: none */
    const struct model_identity *kv_identity; /* see common/model_identity.h */
    const struct options_words *words;        /* NULL: unknown */
    const struct tokenizer *tok;
    /* Address of each rank for rank 0's machine: [world], owned by the caller. */
    char *const *addresses;
    uint32_t rank, world, block_size, speculate;
    const char *device_type;            /* "cpu", "cuda" */
    const struct model_identity *files; /* of the model; NULL: unknown */
    bool prefill_logprobs;              /* honour Request.prefill_logprobs */
    struct watermark watermark;
    const struct vision *vision;   /* image processing; NULL: no images */
    struct startup_board *startup; /* NULL: none */
};

struct service_status {          /* written on the engine's thread, read by a watchdog */
    _Atomic(const char *) doing; /* a rpc, or NULL */
    _Atomic uint32_t batches, sequences, blocks_total;
    _Atomic uint64_t calls, blocks, tokens; /* see engine_stats */
};

struct service {
    struct service_options o;
    struct service_status status;
    struct tok_scratch *scratch;
    struct v2_blocks *v2; /* KV blocks of generate.v2's requests (v2.h) */
    pthread_mutex_t adapters_lock;
    /* set by its owner before the first call: stopped when the ranks are lost */
    struct rpc_server *server;
    _Atomic uint64_t vocab_hash; /* 0: not computed so far */
    bool warm;                   /* once */
    bool offloads;               /* since the last warm-up */
    int64_t peer_logged_ns;      /* the fetching lane's */
    atomic_bool failed;          /* the process must end with an error */
};

extern const struct rpc_method service_methods[];
extern const size_t service_n_methods;

/* Before the RPC server starts; `o` is copied. */
int service_init(struct service *s, const struct service_options *o, struct err *e);
void service_free(struct service *s);
/* Fails if weights were overwritten while in use: the process must end. Engine's thread. */
int service_spoilt(const struct service *s, struct err *e);
void service_log_status(struct service *s); /* one line at level ERROR; any thread */
void service_after(void *service);          /* rpc_server_options.after */
/* rpc_server_options.failed. This process ends if its device is lost, whichever call found that, or
 * if its weights are spoilt. It also ends if it is out of step with the other ranks: one that lacks
 * memory for a call may be, because the others have run it. The call that failed then has the
 * status of a lost shard, so that the router repeats it with the next one. */
grpc_status_code service_refused(void *service, const struct rpc_method *m, grpc_status_code code,
                                 const struct err *e);
#endif
