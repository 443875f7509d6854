/* ask.h - a generation as the client asked for it: what was said, and what was left open.
 *
 * Every protocol parses into this; validate() turns it into a gen_request. Pointers live in the
 * call's arena. */
#ifndef ROUTER_REQUEST_ASK_H
#define ROUTER_REQUEST_ASK_H
#include "common/constraint/constraint.h"
#include "common/params.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct opt_f32 {
    bool set;
    float v;
};
struct opt_u64 {
    bool set;
    uint64_t v;
};
struct opt_i64 {
    bool set;
    int64_t v;
};

#define PARAM_OPT_F32 struct opt_f32
#define PARAM_OPT_U32 struct opt_i64
#define PARAM_OPT_I32 struct opt_i64

/* Whose limits and words hold: TGI's own routes keep TGI's, which are small; elsewhere the limits
 * are those of OpenAI's API, and what does not fit into the context is clipped. */
enum ask_style { ASK_TGI, ASK_OPENAI, ASK_ANTHROPIC, ASK_LMTP };
enum { OPENAI_MAX_N = 128, OPENAI_MAX_TOP = 20, OPENAI_MAX_STOPS = 16, OPENAI_MAX_PROMPTS = 2048 };

/* A picture as the body names it: `data:`, `http:` or `https:`. */
struct ask_image {
    const char *url;
    size_t n_url;
    const char *where; /* what the client calls it; NULL: nothing */
};
struct medium; /* router/media/media.h */
struct kv_transfer;

struct ask {
    enum ask_style style;
    const char *inputs; /* NULL when ids are given */
    size_t n_inputs;
    size_t n_chars;      /* Unicode characters the client sent as prompt */
    const uint32_t *ids; /* the prompt as token ids */
    uint32_t n_ids;
    bool add_special_tokens;
    const struct ask_image
        *images; /* [n_images] what the markers in `inputs` stand for, in order */
    uint32_t n_images;
    bool inline_images;   /* `inputs` may have TGI's ![](URL) where pictures stand */
    struct medium **read; /* pictures that were read already: a list, the call's; NULL: not kept */
#define PARAM(kind, type, name, ...) PARAM_OPT_##type name;
#include "common/params.def"
    struct opt_u64 best_of, max_new_tokens, truncate, seed, top_n_tokens;
    bool do_sample, watermark, decoder_input_details, ignore_eos;
    bool greedy; /* the likeliest token, whatever cuts are asked for beside it */
    /* What the client calls the prompt, max_new_tokens and top_n_tokens, in messages; NULL: so, and
     * `inputs`. */
    const char *input_name, *length_name, *top_name;
    bool sampling_implied;  /* one of the parameters that only make sense with sampling was given */
    const char *constraint; /* what the answer must look like; NULL: free */
    enum constraint_kind constraint_kind;
    enum constraint_reasoning constraint_reasoning; /* what may come before it */
    bool constraint_alone;                          /* it does not go with tools: TGI's grammars */
    const char *const *stop;
    uint32_t n_stop;
    struct opt_u64 min_new_tokens;
    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const uint32_t *bias_ids; /* pairs with bias: what is added to these tokens' logits */
    const float *bias;
    uint32_t n_bias;
    const char *const *bad_words; /* none of these may be generated */
    uint32_t n_bad_words;
    const char *const *dry_breakers; /* NULL: those of llama.cpp */
    uint32_t n_dry_breakers;
    const uint32_t *logprob_ids; /* alternatives: these tokens, not the likeliest; NULL: those */
    uint32_t n_logprob_ids;
    const uint32_t *allowed_ids; /* no other token may come; NULL: any may */
    uint32_t n_allowed;
    const char *adapter_id;
    struct opt_i64 priority; /* lower runs first */
    const char *cache_salt;  /* only requests with the same share their prompts' KV; NULL: none */
    const struct kv_transfer *transfer; /* router/request/transfer.h; NULL: none */
    const char *user;                   /* the end user that the client names; NULL: none */
};
#endif
