/* openai.h - what /v1/chat/completions and /v1/completions have in common. */
#ifndef ROUTER_API_OPENAI_OPENAI_H
#define ROUTER_API_OPENAI_OPENAI_H
#include "router/api/openai/stop_trim.h"
#include "router/body/body.h"
#include "router/call/call.h"

struct openai_sequence {
    struct stop_trim trim;
    struct buf text;            /* not streaming: what the client gets */
    struct buf logprobs;        /* not streaming: items of the logprobs, as the route wants them */
    struct buf prompt_logprobs; /* items of the list */
    struct buf ids;             /* with with_token_ids: of the tokens not told yet, with commas */
    struct buf lists[3];        /* completions: token_logprobs, top_logprobs, text_offset */
    size_t chars;               /* Unicode characters before the next token, for text_offset */
};

struct openai { /* the state of a call; in its arena */
    char id[48];
    const char *model; /* what answers call the model */
    bool stream, include_usage, continuous_usage;
    bool logprobs, echo;
    bool special_text;     /* special tokens are told as text (skip_special_tokens is false) */
    bool sent_prompt;      /* streamed: the prompt's ids have been */
    bool with_token_ids;   /* return_token_ids: choices carry the ids of their tokens */
    bool ids_as_text;      /* return_tokens_as_token_ids: logprobs name tokens by their ids */
    bool keep_stop;        /* include_stop_str_in_output */
    const char *echo_text; /* chat: what the answer goes on from, told in front of it */
    bool prompt_logprobs;  /* vLLM's; then `answer_tops` of the alternatives are the answer's */
    uint32_t prompt_tops, answer_tops;
    bool only_prompt; /* max_tokens 0 with echo: the token that was generated is not told */
    uint32_t each;    /* generations a prompt */
    uint32_t shown;   /* of them, the best: choices that the client gets */
    const struct kv_transfer *transfer; /* kv_transfer_params; NULL: none */
    struct ask *asks;
    uint32_t n_asks;
    struct openai_sequence *seq; /* one a choice */
    struct chat_part *parts;     /* chat: NULL where the text is the content, as it is */
    struct responses *responses; /* /v1/responses: its own */
    struct llama *llama;         /* llama-server's routes: their own */
};

/* Fields that both routes read: sampling, limits, stop, stream, stream_options, n, model. */
struct openai *openai_parse(struct call *c, struct body *b, const char *id_prefix, struct err *e);
/* Read `best_of`, behind `n`. For the route that has it. */
void openai_best_of(struct call *c, struct body *b, struct openai *o);
/* The `each` generations of a prompt, as offsets, in the order of the choices: out[0 .. shown). */
void openai_rank(const struct openai *o, struct call *c, uint32_t ask, uint32_t *out);
/* Copy the common sampling fields into `q`. */
void openai_sampling(struct body *b, struct object root, struct ask *q);
/* Make the generations: n_asks prompts, `each` choices of each. */
int openai_generate(struct call *c, struct openai *o, const struct format *f, struct err *e);

/* "stop" or "length" of an answer that has ended. A stop sequence in the last token allowed counts
 * as a stop: the answer was cut there. */
const char *openai_finish(const struct openai *o, const struct generation *g);
/* The text of a token event as the client reads it: without special tokens and stop sequences. */
void openai_text(struct openai *o, const struct generation *g, const struct gen_event *ev,
                 struct buf *out);
/* OpenAI's usage object: of these counts; of all generations of a call. */
void openai_counts(struct buf *out, uint64_t prompt, uint64_t completion, uint64_t cached);
void openai_usage(struct buf *out, const struct call *c);
/* ,"token_ids":[..] of the tokens since the last time, where they were asked for. */
void openai_token_ids(struct buf *out, struct openai *o, const struct generation *g);
/* ,"prompt_token_ids":[..], where they were asked for. */
void openai_prompt_ids(struct buf *out, const struct openai *o, const struct generation *g);
/* A token in logprobs: its text, or "token_id:7"; quoted. */
void openai_token_name(struct buf *out, const struct openai *o, const struct gen_token *t);
/* {"token","logprob","bytes","top_logprobs"} of a token event. */
void openai_logprob(struct buf *out, const struct openai *o, const struct gen_event *ev);
/* prompt_logprobs.c: the field, once the asks are there with their other ones. */
void openai_prompt_logprobs_read(struct body *b, struct openai *o);
/* How many of `n` alternatives of a token of the answer were asked for. */
uint32_t openai_tops(const struct openai *o, uint32_t n);
void openai_prompt_logprobs_take(struct openai *o, const struct generation *g,
                                 const struct gen_event *ev);
/* ,"prompt_logprobs":[..], where it was asked for. */
void openai_prompt_logprobs(struct buf *out, const struct openai *o, const struct generation *g);
/* transfer.c: the field that a request came with, where the service has --kv-transfer-address; and
 * ,"kv_transfer_params":{..} of an answer whose prompt's blocks are kept for another service. */
void openai_transfer_read(struct call *c, struct body *b, struct openai *o);
void openai_transfer(struct buf *out, const struct call *c);
void openai_error_event(struct call *c, const struct err *e);
#endif
