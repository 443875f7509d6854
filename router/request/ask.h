/* ask.h - a generation request as the client sent it, with unset fields marked.
 *
 * Every protocol parses into this; validate() turns it into a gen_request. Pointers refer to the
 * call's arena. */
#ifndef ROUTER_REQUEST_ASK_H
#define ROUTER_REQUEST_ASK_H
#include "common/constraint/constraint.h"
#include "common/params.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that a client may leave out. With `set` false `v` has no meaning. */
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

/* The types of the fields that params.def makes. Integers are wider than those of gen_params, so
 * that validate() sees what the client sent. */
#define PARAM_OPT_F32 struct opt_f32
#define PARAM_OPT_U32 struct opt_i64
#define PARAM_OPT_I32 struct opt_i64

/* Whose limits and messages apply. TGI's own routes keep TGI's limits, which are small. Elsewhere
 * the limits are those of OpenAI's API, and the answer length is clipped to the context. */
enum ask_style { ASK_TGI, ASK_OPENAI, ASK_ANTHROPIC, ASK_LMTP };
enum { OPENAI_MAX_N = 128, OPENAI_MAX_TOP = 20, OPENAI_MAX_STOPS = 16, OPENAI_MAX_PROMPTS = 2048 };

/* An image or a video as given in the body: a `data:`, `http:` or `https:` URL. */
struct ask_image {
    const char *url;
    size_t n_url;
    bool video;
    double fps;        /* frames per second of a video */
    const char *where; /* the client's name for it in error messages; NULL: none */
};
struct medium; /* router/media/media.h */
struct kv_transfer;

/* Zero-initialise: everything is then unset. */
struct ask {
    enum ask_style style;
    const char *inputs; /* NULL if ids are given */
    size_t n_inputs;
    const char *guarded; /* `inputs` with guards (router/chat/guard.h); NULL: the same text */
    size_t n_guarded;
    size_t n_chars;      /* Unicode characters the client sent as prompt */
    const uint32_t *ids; /* the prompt as token ids */
    uint32_t n_ids;
    bool add_special_tokens;
    /* [n_images] the images for the markers in `inputs`, in order */
    const struct ask_image *images;
    uint32_t n_images;
    bool inline_images;   /* `inputs` may contain TGI's ![](URL) */
    struct medium **read; /* list of images already decoded, owned by the call; NULL: not kept */
#define PARAM(kind, type, name, ...) PARAM_OPT_##type name;
#include "common/params.def"
    struct opt_u64 best_of, max_new_tokens, truncate, seed, top_n_tokens;
    bool do_sample, watermark, decoder_input_details, ignore_eos;
    bool greedy; /* take the most likely token, whatever filters are set */
    /* The client's names for the prompt, max_new_tokens and top_n_tokens in error messages. NULL:
     * these names, and `inputs`. */
    const char *input_name, *length_name, *top_name;
    bool sampling_implied;       /* a parameter that implies sampling was given */
    const char *constraint;      /* constraint on the output; NULL: none */
    const char *constraint_name; /* the client's field, a literal; NULL: several */
    enum constraint_kind constraint_kind;
    struct constraint_front constraint_front; /* whether reasoning may precede it */
    bool constraint_alone;                    /* it excludes tools: TGI's grammars */
    const char *const *stop;
    uint32_t n_stop;
    struct opt_u64 min_new_tokens;
    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const uint32_t *bias_ids; /* pairs with bias, which is added to these tokens' logits */
    const float *bias;
    uint32_t n_bias;
    const char *const *bad_words; /* words that must not be generated */
    uint32_t n_bad_words;
    const char *const *dry_breakers; /* NULL: llama.cpp's defaults */
    uint32_t n_dry_breakers;
    /* report these tokens as alternatives; NULL: the most likely ones */
    const uint32_t *logprob_ids;
    uint32_t n_logprob_ids;
    const uint32_t *allowed_ids; /* only these tokens may be generated; NULL: all */
    uint32_t n_allowed;
    /* Of models with an encoder (router/generate/encoder_text.h): the first token of the answer, or
     * the language that chooses it; the language of the prompt. Not set, NULL: the model's. */
    struct opt_u64 forced_bos;
    const char *tgt_lang, *src_lang;
    const char *adapter_id;
    struct opt_i64 priority; /* lower runs first */
    const char *cache_salt;  /* only requests with equal salts share KV blocks; NULL: none */
    const struct kv_transfer *transfer; /* router/request/transfer.h; NULL: none */
    const char *user;                   /* the end user named by the client; NULL: none */
};
#endif
