/* request.h - what every protocol parses into, and what every answer is made of.
 *
 * One gen_request is one generation: one prompt, one stream of tokens, one permit. A protocol that
 * asks for several (best_of, n, a list of prompts) makes several. Data goes down once as a
 * gen_request and comes up as gen_events; nothing below the routes knows a protocol.
 *
 * Ownership: everything a request points to lives in its arena. The creator owns the request;
 * between infer_submit() and the last event it is lent to the scheduler, which only reads it. */
#ifndef ROUTER_REQUEST_REQUEST_H
#define ROUTER_REQUEST_REQUEST_H
#include "common/arena.h"
#include "common/constraint/constraint.h"
#include "common/err.h"
#include "common/params.h"
#include "common/trace.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Token sequences, one behind the other, that must not be generated. */
struct bad_words {
    const uint32_t *ids, *lengths; /* lengths: [n] tokens of each, at least one */
    uint32_t n_ids, n;
};

/* A picture of the prompt. */
struct gen_medium {
    const void *bytes; /* the file as it came */
    size_t n_bytes;
    const char *type;  /* "image/png" */
    uint32_t first, n; /* ids [first, first + n) stand for it; others may stand between */
    uint64_t digest;   /* of its pixels; never 0 */
};

/* Sampling and stopping, defaults filled in: neutral values mean "off". */
struct gen_params {
#define PARAM(kind, type, name, ...) PARAM_C_##type name;
#include "common/params.def"
    bool do_sample, watermark;
    bool raw_logprobs;      /* of the answer: before temperature and filters */
    uint64_t seed;          /* always set: drawn at random when the client gave none */
    const char *constraint; /* what the text must look like; NULL: free */
    enum constraint_kind constraint_kind;
    enum constraint_reasoning constraint_reasoning; /* what may come before it */
    const char *const *stop;
    uint32_t n_stop;
    uint32_t max_new_tokens, min_new_tokens;
    bool ignore_eos;
    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const uint32_t *bias_ids; /* pairs with bias: what is added to these tokens' logits */
    const float *bias;
    uint32_t n_bias;
    struct bad_words bad_words;
    const char *const *dry_breakers;
    uint32_t n_dry_breakers;
    uint32_t top_n_tokens;
    const uint32_t *logprob_ids; /* the alternatives are these tokens; then top_n_tokens is 0 */
    uint32_t n_logprob_ids;
    bool prefill_logprobs;  /* decoder_input_details */
    uint32_t logprobs_from; /* those of the prompt's tokens before this one are not wanted */
    const char *adapter_id; /* NULL: base model */
};

enum gen_finish { FINISH_LENGTH, FINISH_EOS, FINISH_STOP };
const char *gen_finish_name(enum gen_finish f); /* "length", "eos_token", "stop_sequence" */

struct gen_token {
    uint32_t id;
    float logprob; /* NaN: none */
    bool special;
    const char *text;
    size_t text_len;
};

struct gen_times {                                   /* monotonic ns */
    int64_t received, queued, batched, first, ended; /* first: its first token */
};

/* Events of one request, in order: at most one PREFILL, then TOKENs; the last TOKEN has `end` set.
 * Or ERROR, at any time, which is the last event. Pointers are valid during the call only. */
enum gen_event_type { GEN_PREFILL, GEN_TOKEN, GEN_ERROR };
struct gen_end {
    enum gen_finish finish;
    uint32_t generated_tokens;
    const char *text; /* the whole generated text, without special tokens */
    size_t text_len;
};
struct gen_event {
    enum gen_event_type type;
    const struct gen_token *prefill; /* PREFILL: the prompt's tokens; logprob of the first is NaN */
    uint32_t n_prefill;
    struct gen_token token;      /* TOKEN */
    const struct gen_token *top; /* TOKEN: alternatives, best first; PREFILL: as many for each, one
                                    list behind the other, NaN for the first */
    uint32_t n_top;
    const struct gen_end *end; /* TOKEN: not NULL on the last one */
    const struct err *err;     /* ERROR */
};

/* What a request has behind it that goes on at another scheduler. */
struct gen_resume {
    const uint32_t *ids; /* [n] the tokens that were generated */
    uint32_t n;
    uint32_t n_lost; /* times that shards were lost while it ran */
    bool begun;      /* it ran: its times are set */
};

struct gen_request;
struct kv_transfer;
/* Where events go. Both are called on the scheduler thread and must not block: event() for every
 * event of a step, then flush() once per sink owner `arg` (compare by value) when the step is
 * through, so that one wake-up carries a whole step. */
struct gen_sink {
    void (*event)(struct gen_request *r, const struct gen_event *ev);
    void (*flush)(void *arg);
    void *arg;
};

struct gen_request {
    struct arena arena;
    struct gen_params params;
    const uint32_t *ids; /* the prompt, truncated and checked */
    uint32_t n_ids;
    const struct gen_medium *media; /* [n_media] pictures of the prompt, in its order */
    uint32_t n_media;
    bool whole_media;   /* a step must not end inside one of them */
    bool whole_prompt;  /* nor inside the prompt that they stand in */
    const char *inputs; /* the prompt as text (for peers that do not take ids) */
    bool add_special_tokens;
    uint32_t truncate;
    struct gen_sink sink;
    uint64_t tenant; /* whose account it is on: requests of one tenant share one turn; 0: none */
    uint64_t cache_salt;                /* see kv_key; 0: none */
    const struct kv_transfer *transfer; /* the creator's (transfer.h); NULL: none */
    int32_t priority;                   /* lower runs first, among those of the tenant */
    const struct gen_request *same;     /* submitted before, with the same prompt; NULL: none */
    bool wants_place;           /* the scheduler says in `place` where it stands in the queue */
    _Atomic uint32_t place;     /* 1: next; 0: not in it, or not said yet */
    uint32_t n_cached;          /* prompt tokens that were in the cache; set by the scheduler */
    struct trace_context trace; /* the span of its prefill, for the shards; zero: none */
    void *owner;                /* the creator's */
    struct gen_times times;     /* received: set by the creator; the others by the scheduler */
    struct infer_seq *seq;      /* the scheduler's own */
    struct fleet_entry *entry;  /* the fleet's own (router/fleet/impl.h); NULL: in none */
    const struct gen_resume *resume; /* the fleet's, while it is submitted again; else NULL */
};
#endif
