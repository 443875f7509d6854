/* openai.h - shared by /v1/chat/completions and /v1/completions. */
#ifndef ROUTER_API_OPENAI_OPENAI_H
#define ROUTER_API_OPENAI_OPENAI_H
#include "router/api/openai/stop_trim.h"
#include "router/body/body.h"
#include "router/call/call.h"

struct openai_sequence {
    struct stop_trim trim;
    struct buf text;            /* not streaming: the client's text */
    struct buf logprobs;        /* not streaming: items of the logprobs, in the route's format */
    struct buf prompt_logprobs; /* items of the list */
    struct buf ids;             /* with with_token_ids: ids not sent yet, separated by commas */
    struct buf lists[3];        /* completions: token_logprobs, top_logprobs, text_offset */
    size_t chars;               /* Unicode characters before the next token, for text_offset */
};

struct openai { /* state of a call; in its arena */
    char id[48];
    const char *model; /* model name in answers */
    bool stream, include_usage, continuous_usage;
    bool logprobs, echo;
    bool special_text;     /* special tokens are returned as text (skip_special_tokens is false) */
    bool sent_prompt;      /* streaming: the prompt's ids were sent */
    bool with_token_ids;   /* return_token_ids: choices include token ids */
    bool ids_as_text;      /* return_tokens_as_token_ids: logprobs show tokens as ids */
    bool keep_stop;        /* include_stop_str_in_output */
    bool timings;          /* timings_per_token (llama-server): every chunk has `timings` */
    bool progress;         /* return_progress (llama-server): chunks during the prefill */
    bool verbose;          /* llama-server: the answer has the prompt, in `__verbose` */
    const char *echo_text; /* chat: the text that the answer continues, sent first */
    bool prompt_logprobs;  /* vLLM's; then the answer has `answer_tops` of the alternatives */
    uint32_t prompt_tops, answer_tops;
    bool only_prompt; /* max_tokens 0 with echo: the generated token is not returned */
    uint32_t each;    /* generations per prompt */
    uint32_t shown;   /* the best of them, returned as choices */
    const struct kv_transfer *transfer; /* kv_transfer_params; NULL: none */
    struct ask *asks;
    uint32_t n_asks;
    struct openai_sequence *seq; /* one per choice */
    struct chat_part *parts;     /* chat: NULL if the text is the content */
    uint64_t thought;            /* with parts: reasoning tokens of all choices so far */
    struct responses *responses; /* state of /v1/responses */
    struct llama *llama;         /* state of llama-server's routes */
    struct ollama *ollama;       /* state of Ollama's routes */
    struct gemini *gemini;       /* state of Google's routes */
};

/* Parses the fields of both routes: sampling, limits, stop, stream, stream_options, n, model. */
struct openai *openai_parse(struct call *c, struct body *b, const char *id_prefix, struct err *e);
/* Reads the number of choices, which other protocols have under another `key`, or in an object. */
void openai_choices(struct call *c, struct body *b, struct object in, const char *key,
                    struct openai *o);
/* Reads `best_of`, after `n`, for routes that have it. */
void openai_best_of(struct call *c, struct body *b, struct openai *o);
/* Ranks the `each` generations of a prompt: out[0 .. shown) are their offsets, in choice order. */
void openai_rank(const struct openai *o, struct call *c, uint32_t ask, uint32_t *out);
/* Reads the common sampling fields into `q`. */
void openai_sampling(struct body *b, struct object root, struct ask *q);
/* Creates the generations: n_asks prompts with `each` choices. */
int openai_generate(struct call *c, struct openai *o, const struct format *f, struct err *e);

/* "stop" or "length" of an ended answer. A stop sequence completed by the last allowed token counts
 * as stop: the answer was cut there. */
const char *openai_finish(const struct openai *o, const struct generation *g);
/* Appends the text of a token event for the client: without special tokens and stop sequences. */
void openai_text(struct openai *o, const struct generation *g, const struct gen_event *ev,
                 struct buf *out);
/* OpenAI's usage object: of these counts; of all generations of a call, with reasoning tokens if
 * the answer is split. */
void openai_counts(struct buf *out, uint64_t prompt, uint64_t completion, uint64_t cached);
void openai_usage(struct buf *out, const struct call *c);
/* ,"token_ids":[..] of the tokens since the last call, if requested. */
void openai_token_ids(struct buf *out, struct openai *o, const struct generation *g);
/* ,"prompt_token_ids":[..], if requested. */
void openai_prompt_ids(struct buf *out, const struct openai *o, const struct generation *g);
/* A token's name in logprobs: its text, or "token_id:7"; quoted. */
void openai_token_name(struct buf *out, const struct openai *o, const struct gen_token *t);
/* {"token","logprob","bytes","top_logprobs"} of a token event. */
void openai_logprob(struct buf *out, const struct openai *o, const struct gen_event *ev);
/* prompt_logprobs.c: reads the field, after the asks were filled. */
void openai_prompt_logprobs_read(struct body *b, struct openai *o);
/* How many of `n` alternatives of an answer's token were requested. */
uint32_t openai_tops(const struct openai *o, uint32_t n);
void openai_prompt_logprobs_take(struct openai *o, const struct generation *g,
                                 const struct gen_event *ev);
/* ,"prompt_logprobs":[..], if requested. */
void openai_prompt_logprobs(struct buf *out, const struct openai *o, const struct generation *g);
/* timings.c, for llama-server's clients: */
/* ,"timings":{..} of a generation with `predicted` tokens so far. */
void openai_timings(struct buf *out, const struct generation *g, uint32_t predicted);
/* The same, if requested. */
void openai_told_timings(struct buf *out, const struct openai *o, const struct generation *g);
/* ,"prompt_progress":{..} of a PROGRESS event, and timings if requested. */
void openai_progress(struct buf *out, const struct openai *o, const struct generation *g,
                     const struct gen_event *ev);
/* ,"__verbose":{..} with the generation's prompt, if requested. */
void openai_verbose(struct buf *out, const struct openai *o, const struct generation *g);
/* transfer.c: reads the request's field, if the service has --kv-transfer-address; writes
 * ,"kv_transfer_params":{..} for an answer whose prompt blocks are kept for another service. */
void openai_transfer_read(struct call *c, struct body *b, struct openai *o);
void openai_transfer(struct buf *out, const struct call *c);
void openai_error_event(struct call *c, const struct err *e);
#endif
