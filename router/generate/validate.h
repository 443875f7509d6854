/* validate.h - validates a parsed request and turns it into a generation request: limits, defaults,
 * tokens.
 *
 * Checks run in TGI's order with TGI's messages (docs/decisions/http-quirks.md lists the
 * differences). Runs on worker threads and uses no shared mutable state. */
#ifndef ROUTER_GENERATE_VALIDATE_H
#define ROUTER_GENERATE_VALIDATE_H
#include "common/tokenizer/tokenizer.h"
#include "router/generate/defaults.h"
#include "router/media/media.h"
#include "router/request/ask.h"
#include "router/request/request.h"
#include "router/scheduler/adapters.h"

struct validator {
    const struct tokenizer *tokenizer;
    const struct sampling_defaults *defaults; /* NULL: none */
    uint32_t max_best_of, max_stop_sequences, max_top_n_tokens;
    uint32_t max_input_tokens, max_total_tokens, vocab_size;
    struct adapter_shelf *adapters; /* NULL: unknown */
    struct media media;
    bool has_encoder; /* an encoder reads the prompt, and the decoder begins with decoder_start */
    uint32_t decoder_start;
    bool text_only;      /* the shards read prompts as text, which ends at a NUL */
    bool takes_bias;     /* the shards support bias, bad words, min_new_tokens and stop_token_ids */
    bool takes_grammars; /* and constraints beyond JSON schemas and patterns */
    /* param_bit() of sampling parameters that router and shards both know */
    uint64_t sampling_fields;
    bool compact_json;   /* --json-whitespace compact */
    bool no_constraints; /* --disable-grammar-support */
    /* A validated request of the same call, and its ask: what the next ask shares with it, by the
     * same pointers, is neither checked nor made again. NULL: none. */
    const struct ask *like;
    const struct gen_request *like_made;
};

/* Fills params, ids, media, inputs, add_special_tokens and truncate of `r`, with memory from `a`.
 * Draws a seed if the request has none. ERR_VALIDATION, with a message that starts with "Input
 * validation error: ". */
int validate(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
             struct arena *a, struct gen_request *r, struct err *e);

uint64_t seed_draw(void); /* a random seed */

/* Tokenizes `text` with TOK_ADD_SPECIAL and TOK_GUARDED of `flags`, and keeps the last `truncate`
 * ids (0: all), as Hugging Face's left truncation does: special tokens that the tokenizer puts in
 * front stay in front. */
int encode(const struct validator *v, const char *text, size_t n, unsigned flags, uint32_t truncate,
           struct tok_scratch **scratch, struct arena *a, const uint32_t **ids, uint32_t *n_ids,
           struct err *e);
#endif
