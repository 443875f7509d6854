/* infer.h - the interface between the protocols and the scheduler.
 *
 * infer_start() connects to the shards (ServiceDiscovery, ClearCache, Info, Warmup) and starts the
 * scheduler thread, which owns all scheduling state. The other functions may be called from any
 * thread. */
#ifndef ROUTER_GENERATE_INFER_H
#define ROUTER_GENERATE_INFER_H
#include "common/buf.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/model/sentence.h"
#include "common/net/peer_address.h"
#include "router/request/request.h"
#include "router/scheduler/changes.h"
#include "router/scheduler/scheduler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct infer;
struct kv_publisher;
struct watchdog; /* common/thread/watchdog.h */
struct infer_config {
    const char *shard_target; /* rank 0: "unix:/path/prefix-0" or "tcp://host:port" */
    /* 0: chosen by warm-up, within what the shards support */
    uint32_t max_input_tokens, max_total_tokens;
    uint32_t max_batch_prefill_tokens, max_batch_total_tokens, max_batch_size;
    uint32_t max_waiting_tokens;
    double waiting_served_ratio;
    uint32_t target_inter_token_ms;   /* 0: no target */
    double target_inter_token_factor; /* at most 1: no target */
    const char *draft_target;         /* rank 0 of a draft model, as shard_target; NULL: none */
    const struct cluster *cluster;    /* credentials for shards over TCP; NULL: not checked */
    const char *session;              /* this router's id at its shards; NULL: none */
    uint32_t connect_timeout_ms;
    uint32_t return_ms;      /* how long requests wait for lost shards; 0: a loss is final */
    struct metrics *metrics; /* rows of router/metrics.h */
    /* counts requests that ended because of a shard failure; NULL: not counted */
    atomic_uint *failed;
    struct watchdog *watchdog;       /* monitors the scheduler thread; NULL: not monitored */
    const struct sched_owner *owner; /* router/scheduler/scheduler.h; NULL: none; copied */
    /* publisher of KV events (router/events/publisher.h); NULL: none */
    struct kv_publisher *events;
    uint32_t events_rank; /* rank of this shard group in the events */
    bool *connected; /* set once the shards have answered, also if the start fails; may be NULL */
    bool check;      /* for tests: check all KV blocks after every turn */
};
struct infer_limits { /* the result of warm-up */
    enum model_task task;
    bool pairs_as_text;                /* a reranker that is prompted in text */
    uint32_t embed_width, hidden_size; /* floats per text, per token */
    uint32_t first_row;                /* of a text's tokens: those before it have no vector */
    float cosine_scale, cosine_plus;   /* of a text's cosine to an image: InfoResponse */
    bool cosines_each;
    bool sparse;         /* of a text: a weight of each token of the vocabulary */
    char *const *labels; /* [n_labels] of a classifier */
    uint32_t n_labels;
    uint32_t max_input_tokens, max_total_tokens, max_batch_prefill_tokens, max_batch_total_tokens;
    uint32_t vocab_size, block_size, n_shards;
    uint64_t vocab_hash;      /* 0: unknown */
    uint64_t checkpoint_hash; /* of the shards' files; 0: unknown */
    bool takes_input_ids;
    bool takes_bias;      /* also min_new_tokens and stop_token_ids */
    bool takes_reasoning; /* constraint_reasoning */
    bool takes_grammars;  /* grammars beyond JSON schemas and patterns */
    bool takes_images;
    /* an encoder reads the prompt, and the decoder begins with that token */
    bool has_encoder;
    uint32_t decoder_start;
    bool transfers; /* the shards exchange KV blocks with other services, at: */
    struct peer_hosts transfer_hosts;
    bool has_windows;         /* sliding-window layers have a separate cache */
    uint64_t sampling_fields; /* bits of param_bit() */
    char dtype[32], device[32], quantize[32], activations[16], matrices[256];
    char family[64]; /* model_type of config.json; empty: unknown */
    /* flags that answers depend on; kind of the device's products; version; empty: unknown */
    char options[SHARD_OPTIONS], products[SHARD_OPTIONS], program[32];
    uint64_t parameters, weight_bytes; /* of all shards; 0: unknown */
    bool lists_adapters;               /* false: the served adapters are unknown */
    uint32_t runtime_adapters; /* how many can be loaded at run time; 0: no loading, no unloading */
};

/* NULL: the shards do not answer in time, or cannot serve; `e` says why. */
struct infer *infer_start(const struct infer_config *c, struct err *e);
/* Immutable; valid until infer_stop(). */
const struct infer_limits *infer_limits(const struct infer *i);

/* Enqueues texts for a model that does not generate (router/embed/embedder.h). After infer_stop()
 * has begun they end at once, on the caller's thread. */
struct embed_job;
void infer_embed(struct infer *i, struct embed_job *j);
/* As infer_embed(), but returns false, without effect, if memory is short or infer_stop() has
 * begun. Only for models that embed. */
bool infer_offer_texts(struct infer *i, struct embed_job *j);
/* Enqueues a request. Its sink gets events until a TOKEN with `end` or an ERROR. */
void infer_submit(struct infer *i, struct gen_request *r);
/* infer_submit() in two parts, for an owner of several instances. infer_prepare() allocates on the
 * creator's thread; infer_offer() enqueues and sends no event itself. False: out of memory, or
 * infer_stop() has begun; nothing happened. infer_offer() may be called again after a hand-over;
 * then r->resume holds the generated tokens. */
bool infer_prepare(struct gen_request *r);
bool infer_offer(struct infer *i, struct gen_request *r);
/* The client has disconnected. No further token event is sent, and the blocks are freed within one
 * step. The sink gets exactly one last event: the normal end if that was pending, otherwise an
 * ERROR of kind ERR_INCOMPLETE. Then the creator may free the request. */
void infer_cancel(struct infer *i, struct gen_request *r);

/* True while the shards answer; cheap and non-blocking. While healthy, the scheduler thread sends a
 * Health rpc when the last answer is older than a second. After an error it tries a one-token
 * prefill. */
bool infer_healthy(struct infer *i);
/* Registers a function that is called on the scheduler thread at a final loss of shards; the router
 * then exits with this message. During return_ms before, requests wait and infer_healthy() is
 * false. */
void infer_on_lost(struct infer *i, void (*fn)(void *arg, const char *why), void *arg);

/* How long a health check has been unanswered, in ms; 0: it was answered. */
int64_t infer_silence_ms(struct infer *i);
/* Declares shards that do not answer lost, and reconnects. No effect if return_ms is 0. */
void infer_abandon(struct infer *i, const char *why); /* `why` has static lifetime */
/* From now on every loss of shards is final (infer_on_lost()). `why` goes into the errors of
 * waiting requests, as in "the server is shutting down", and has static lifetime. */
void infer_drain(struct infer *i, const char *why);
/* Ends every request with ERR_GENERATION; `why` has static lifetime. */
void infer_fail(struct infer *i, const char *why);

struct infer_stats {
    uint32_t queued, running, blocks_total, blocks_used, blocks_cached, swap_used, cells_used;
    int64_t call_ns; /* how long the current model call has run, in ns; 0: none */
};
struct infer_stats infer_stats(struct infer *i); /* as of the scheduler's last turn */
/* Appends the scheduler's audit to `out` as a JSON object (sched_audit()) and sets whether it
 * balances. Waits for the scheduler thread, at most `ms`. -1: no answer. Not callable on the
 * scheduler thread. */
int infer_audit(struct infer *i, int64_t ms, struct buf *out, bool *balanced, struct err *e);

/* The adapters served now. Valid as long as `i`. */
struct adapter_shelf *infer_adapters(const struct infer *i);
/* Loads or unloads an adapter, and takes ownership of `c` until c->done(). That runs on the
 * scheduler thread, or at once on the caller's if the scheduler is being stopped. */
void infer_change(struct infer *i, struct adapter_change *c);

/* Ends all requests with ERR_GENERATION, joins the thread and frees `i`. */
void infer_stop(struct infer *i);
#endif
