/* infer.h - the entry point between the protocols above and the scheduler below.
 *
 * infer_start() connects to the shards (ServiceDiscovery, ClearCache, Info, Warmup) and starts the
 * one scheduler thread, which owns all scheduling state. The other functions may be called from any
 * thread. */
#ifndef ROUTER_GENERATE_INFER_H
#define ROUTER_GENERATE_INFER_H
#include "common/buf.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sentence.h"
#include "router/request/request.h"
#include "router/scheduler/changes.h"
#include "router/scheduler/scheduler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct infer;
struct kv_publisher;
struct watchdog; /* common/watchdog.h */
struct infer_config {
    const char *shard_target; /* "unix:/path/prefix-0" or "tcp://host:port": rank 0 */
    /* 0: decided by warm-up, as the shards allow */
    uint32_t max_input_tokens, max_total_tokens;
    uint32_t max_batch_prefill_tokens, max_batch_total_tokens, max_batch_size;
    uint32_t max_waiting_tokens;
    double waiting_served_ratio;
    uint32_t target_inter_token_ms; /* 0: none */
    const char *draft_target;       /* as shard_target, of a draft model; NULL: none */
    const struct cluster *cluster;  /* how the shards are known over TCP; NULL: not checked */
    uint32_t connect_timeout_ms;
    uint32_t return_ms; /* lost shards are waited for so long, and requests go on; 0: not at all */
    struct metrics *metrics; /* rows of router/metrics.h */
    atomic_uint *failed; /* counts the requests that a failure of the shards ended; NULL: none */
    struct watchdog *watchdog;       /* looks at the scheduler's thread; NULL: none does */
    const struct sched_owner *owner; /* router/scheduler/scheduler.h; NULL: none; copied */
    struct kv_publisher *events;     /* of KV events (router/events/publisher.h); NULL: none */
    uint32_t events_rank;            /* which of several groups of shards this is */
    bool *connected; /* set once the shards have answered, also if the start fails; NULL: fine */
    bool check;      /* for tests: walk all KV blocks after every turn */
};
struct infer_limits { /* what warm-up settled */
    enum model_task task;
    bool pairs_as_text;                /* a reranker that is asked in words */
    uint32_t embed_width, hidden_size; /* numbers of a text, of a token */
    char *const *labels;               /* [n_labels] of a classifier */
    uint32_t n_labels;
    uint32_t max_input_tokens, max_total_tokens, max_batch_prefill_tokens, max_batch_total_tokens;
    uint32_t vocab_size, block_size, n_shards;
    uint64_t vocab_hash; /* 0: not said */
    bool takes_input_ids;
    bool takes_bias;      /* also min_new_tokens and stop_token_ids */
    bool takes_reasoning; /* constraint_reasoning */
    bool takes_grammars;  /* more than JSON schemas and patterns */
    bool takes_images;
    bool transfers;           /* KV blocks are exchanged with other services */
    bool has_windows;         /* layers that see a window have a cache of their own */
    uint64_t sampling_fields; /* of param_bit() */
    char dtype[32], device[32], quantize[32], activations[16], matrices[256];
    bool lists_adapters;       /* else the shards do not say what they serve */
    uint32_t runtime_adapters; /* so many may be loaded; 0: none, and none unloaded */
};

struct infer *infer_start(const struct infer_config *c, struct err *e);
const struct infer_limits *infer_limits(const struct infer *i);

/* Queue texts, of a model whose task is not to generate: router/embed/embedder.h says what becomes
 * of them. After infer_stop() has begun they end at once, on the caller's thread. */
struct embed_job;
void infer_embed(struct infer *i, struct embed_job *j);
/* False, and nothing happened: no memory, or infer_stop() has begun. Of a model that embeds. */
bool infer_offer_texts(struct infer *i, struct embed_job *j);
/* Queue a request; its sink gets its events until a TOKEN with `end` or an ERROR. */
void infer_submit(struct infer *i, struct gen_request *r);
/* The same in two parts, for an owner of several: memory for it, on the creator's thread, and then
 * the rest, without an event. False: no memory, or infer_stop() has begun; nothing happened.
 * infer_offer() may be called again after a hand-over; r->resume says what was generated. */
bool infer_prepare(struct gen_request *r);
bool infer_offer(struct infer *i, struct gen_request *r);
/* The client has gone: no further token event; frees its blocks within one step. The sink gets
 * exactly one last event (its normal end, if that was already on its way, else an ERROR of kind
 * ERR_INCOMPLETE), after which the creator may free the request. */
void infer_cancel(struct infer *i, struct gen_request *r);

/* True while the shards answer: cheap and non-blocking. While healthy, the scheduler thread sends a
 * Health rpc when the last answer is older than a second; after an error it tries a one-token
 * prefill. */
bool infer_healthy(struct infer *i);
/* Called on the scheduler thread when a shard is lost for good: the router exits with this message.
 * Until then (return_ms) requests wait, and infer_healthy() is false. */
void infer_on_lost(struct infer *i, void (*fn)(void *arg, const char *why), void *arg);

/* How long the shards have not answered what they were asked for their health; 0: they have. */
int64_t infer_silence_ms(struct infer *i);
/* They do not answer: they are lost, and looked for again. Nothing where return_ms is 0. */
void infer_abandon(struct infer *i, const char *why); /* `why` is static */
/* From now on a lost shard is not waited for (infer_on_lost()). `why`, for its requests, is static:
 * "the server is shutting down". */
void infer_drain(struct infer *i, const char *why);
/* Ends every request with ERR_GENERATION; `why` is static. */
void infer_fail(struct infer *i, const char *why);

struct infer_stats {
    uint32_t queued, running, blocks_total, blocks_used, blocks_cached, swap_used, cells_used;
    int64_t call_ns; /* how long a model call is out; 0: none is */
};
struct infer_stats infer_stats(struct infer *i);
/* What the scheduler knows: a JSON object, appended to `out`, and whether what it holds balances.
 * Waits for its thread, `ms` at most; -1: it did not answer. Not from the scheduler's thread. */
int infer_audit(struct infer *i, int64_t ms, struct buf *out, bool *balanced, struct err *e);

/* The adapters that are served now: lasts as long as `i`. */
struct adapter_shelf *infer_adapters(const struct infer *i);
/* Load or unload one: c->done() on the scheduler's thread, or at once on the caller's when the
 * scheduler is being stopped. Until then the change is not the caller's. */
void infer_change(struct infer *i, struct adapter_change *c);

void infer_stop(struct infer *i); /* joins the thread; requests still alive get ERR_GENERATION */
#endif
