/* validate.h - from what was asked to what is generated: limits, defaults, tokens.
 *
 * Checks run in TGI's order with TGI's messages (docs/decisions/http-quirks.md says where they
 * differ). Runs on worker threads; touches nothing shared. */
#ifndef ROUTER_GENERATE_VALIDATE_H
#define ROUTER_GENERATE_VALIDATE_H
#include "common/tokenizer/tokenizer.h"
#include "router/media/media.h"
#include "router/request/ask.h"
#include "router/request/request.h"
#include "router/scheduler/adapters.h"

struct validator {
    const struct tokenizer *tokenizer;
    uint32_t max_best_of, max_stop_sequences, max_top_n_tokens;
    uint32_t max_input_tokens, max_total_tokens, vocab_size;
    struct adapter_shelf *adapters; /* NULL: not known */
    struct media media;
    bool takes_bias;     /* the shards honour bias, bad words, min_new_tokens and stop_token_ids */
    bool takes_grammars; /* ... and constraints beyond JSON schemas and patterns */
    uint64_t sampling_fields; /* param_bit() of the sampling parameters that are ours and theirs */
    bool compact_json;        /* --json-whitespace compact */
    bool no_constraints;      /* --disable-grammar-support */
};

/* Fill params, ids, media, inputs, add_special_tokens and truncate of `r`; memory from `a`. The
 * seed of an unseeded request is drawn here. ERR_VALIDATION, message with the prefix "Input
 * validation error:
 * ". */
int validate(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
             struct arena *a, struct gen_request *r, struct err *e);

uint64_t seed_draw(void); /* random */

/* Text to ids, the last `truncate` of them (0: all) as Hugging Face's left truncation keeps them:
 * special tokens that the tokenizer puts in front stay in front. */
int encode(const struct validator *v, const char *text, size_t n, bool add_special,
           uint32_t truncate, struct tok_scratch **scratch, struct arena *a, const uint32_t **ids,
           uint32_t *n_ids, struct err *e);
#endif
