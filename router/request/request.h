/* request.h - the protocol-independent request, and the events of its answer.
 *
 * A gen_request is one generation: one prompt, one token stream, one permit. A protocol that needs
 * several (best_of, n, a list of prompts) creates several. Data goes down once as a gen_request and
 * returns as gen_events; nothing below the routes depends on a protocol.
 *
 * Ownership: everything a request points to lives in its arena. The creator owns the request.
 * Between infer_submit() and the last event the scheduler borrows it and only reads it. */
#ifndef ROUTER_REQUEST_REQUEST_H
#define ROUTER_REQUEST_REQUEST_H
#include "common/arena.h"
#include "common/constraint/constraint.h"
#include "common/err.h"
#include "common/params.h"
#include "common/rpc/trace.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Token sequences that must not be generated, concatenated. */
struct bad_words {
    const uint32_t *ids, *lengths; /* lengths: [n] tokens per sequence, at least one */
    uint32_t n_ids, n;
};

/* An image of the prompt, or the text that an encoder reads. */
struct gen_medium {
    const void *bytes; /* the encoded file as received */
    size_t n_bytes;
    const char *type;    /* "image/png" */
    const uint32_t *ids; /* [n_ids] of a text */
    uint32_t n_ids;
    uint32_t first, n; /* its placeholders are within ids [first, first + n) */
    uint64_t digest;   /* of its pixels or ids; never 0 */
};

/* Sampling and stopping parameters with defaults filled in; neutral values mean "off". */
struct gen_params {
#define PARAM(kind, type, name, ...) PARAM_C_##type name;
#include "common/params.def"
    bool do_sample, watermark;
    bool raw_logprobs;      /* logprobs of the answer are taken before temperature and filters */
    uint64_t seed;          /* always set; random if the client gave none */
    const char *constraint; /* constraint on the output; NULL: none */
    enum constraint_kind constraint_kind;
    struct constraint_front constraint_front; /* whether reasoning may precede it */
    const char *const *stop;
    uint32_t n_stop;
    uint32_t max_new_tokens, min_new_tokens;
    bool ignore_eos;
    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const uint32_t *bias_ids; /* pairs with bias, which is added to these tokens' logits */
    const float *bias;
    uint32_t n_bias;
    struct bad_words bad_words;
    const char *const *dry_breakers;
    uint32_t n_dry_breakers;
    uint32_t top_n_tokens;
    const uint32_t *logprob_ids; /* report these tokens as alternatives; then top_n_tokens is 0 */
    uint32_t n_logprob_ids;
    bool prefill_logprobs;  /* decoder_input_details */
    uint32_t logprobs_from; /* prompt logprobs before this index are not needed */
    const char *adapter_id; /* NULL: base model */
};

/* Why an answer ended: max_new_tokens; a token that ends it, of the model or of stop_token_ids; a
 * stop sequence. */
enum gen_finish { FINISH_LENGTH, FINISH_EOS, FINISH_STOP };
const char *gen_finish_name(enum gen_finish f); /* "length", "eos_token", "stop_sequence" */

/* A token of the answer or of the prompt. */
struct gen_token {
    uint32_t id;
    float logprob; /* NaN: none */
    bool special;
    const char *text;
    size_t text_len;
};

struct gen_times {                                   /* monotonic ns; 0: not reached */
    int64_t received, queued, batched, first, ended; /* first: the first token */
};

/* Events of one request, in order: PROGRESS if requested, at most one PREFILL, then TOKENs, of
 * which the last has `end` set. Or ERROR at any time, as the last event. Pointers are valid during
 * the call only. */
enum gen_event_type { GEN_PREFILL, GEN_TOKEN, GEN_ERROR, GEN_PROGRESS };
struct gen_end {
    enum gen_finish finish;
    uint32_t generated_tokens;
    const char *text; /* the whole generated text, without special tokens */
    size_t text_len;
};
struct gen_event {
    enum gen_event_type type;
    const struct gen_token *prefill; /* PREFILL: the prompt's tokens; the first has logprob NaN */
    uint32_t n_prefill;
    uint32_t n_computed;    /* PROGRESS: prompt tokens that are in the KV cache */
    struct gen_token token; /* TOKEN */
    /* TOKEN: alternatives, best first. PREFILL: n_top per prompt token, concatenated; NaN for the
     * first */
    const struct gen_token *top;
    uint32_t n_top;
    const struct gen_end *end; /* TOKEN: set on the last one */
    const struct err *err;     /* ERROR */
};

/* State of a request that resumes at another scheduler. */
struct gen_resume {
    const uint32_t *ids; /* [n] generated tokens */
    uint32_t n;
    uint32_t n_lost; /* number of shard losses while it ran */
    bool begun;      /* it has run: its times are set */
};

struct gen_request;
struct kv_transfer;
/* Receiver of events. Both functions are called on the scheduler thread and must not block. event()
 * is called for every event of a step. Then flush() is called once per owner `arg` (compared by
 * value), so that one wake-up carries a whole step. */
struct gen_sink {
    void (*event)(struct gen_request *r, const struct gen_event *ev);
    void (*flush)(void *arg);
    void *arg;
};

struct gen_request {
    struct arena arena;
    struct gen_params params;
    const uint32_t *ids; /* what the decoder reads: the prompt, truncated and validated */
    uint32_t n_ids;
    uint32_t n_input; /* prompt tokens: n_ids, or with an encoder the number of its input ids */
    const struct gen_medium *media; /* [n_media] images of the prompt, in order */
    uint32_t n_media;
    bool whole_media;   /* no step may end inside an image */
    bool whole_prompt;  /* nor inside the prompt that contains it */
    const char *inputs; /* the prompt as text, for peers that do not take ids */
    bool add_special_tokens;
    uint32_t truncate;
    struct gen_sink sink;
    uint64_t tenant; /* account for fair queueing; requests of one tenant share a turn; 0: none */
    uint64_t cache_salt;                /* see kv_key; 0: none */
    const struct kv_transfer *transfer; /* owned by the creator (transfer.h); NULL: none */
    int32_t priority;                   /* lower runs first, within the tenant */
    const struct gen_request *same;     /* an earlier request with the same prompt; NULL: none */
    bool wants_progress;    /* PROGRESS events when it is first scheduled, and after each chunk */
    uint32_t n_progress;    /* n_computed of the last one; set by the scheduler */
    bool wants_place;       /* the scheduler writes its queue position to `place` */
    _Atomic uint32_t place; /* 1: next; 0: not queued, or unknown */
    uint32_t n_cached;      /* cached prompt tokens; set by the scheduler */
    const char *cache_miss; /* why no more were (kv/miss.h), static; NULL: all were */
    uint32_t cache_miss_at; /* the first prompt token that was not cached */
    struct trace_context trace; /* the span of its prefill, for the shards; zero: none */
    void *owner;                /* owned by the creator */
    struct gen_times times;     /* received: set by the creator; the others by the scheduler */
    struct infer_seq *seq;      /* owned by the scheduler */
    struct fleet_entry *entry;  /* owned by the fleet (router/fleet/impl.h); NULL: none */
    /* set by the fleet while it is submitted again; otherwise NULL */
    const struct gen_resume *resume;
};
#endif
