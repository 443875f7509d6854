#include "router/generate/validate.h"
#include "router/generate/bad_words.h"
#include "router/generate/constrain.h"
#include "router/generate/encoder_text.h"
#include "router/generate/suppress.h"
#include <assert.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define REFUSE_AS(kind, ...) return err_set(e, kind, "Input validation error: " __VA_ARGS__)
#define REFUSE(...)          REFUSE_AS(ERR_VALIDATION, __VA_ARGS__)

/* Each breaker is searched in the text of every token. */
enum { MOST_DRY_BREAKERS = 64, LONGEST_DRY_BREAKER = 256 };

static const char *length_name(const struct ask *q)
{
    return q->length_name ? q->length_name : "max_new_tokens";
}

static const char *input_name(const struct ask *q)
{
    return q->input_name ? q->input_name : "inputs";
}

/* TGI's limit, set by a flag, or the larger one that clients of other protocols expect. */
static uint32_t limit(const struct ask *q, uint32_t tgi, uint32_t others)
{
    return q->style == ASK_TGI || tgi > others ? tgi : others;
}

static int check_ends(const struct validator *v, const struct ask *q, bool several, struct err *e)
{
    uint32_t stops = limit(q, v->max_stop_sequences, OPENAI_MAX_STOPS);
    uint32_t tops = limit(q, v->max_top_n_tokens, OPENAI_MAX_TOP);
    if (q->n_stop > stops)
        REFUSE("`stop` supports up to %u stop sequences. Given: %u", stops, q->n_stop);
    for (uint32_t i = 0; i < q->n_stop; i++)
        if (!*q->stop[i])
            REFUSE("`stop` sequences cannot be empty");
    if (q->seed.set && several)
        REFUSE("`seed` must not be set when `best_of` > 1");
    if (q->top_n_tokens.set && q->top_n_tokens.v > tops)
        REFUSE("`%s` must be >= 0 and <= %u. Given: %llu",
               q->top_name ? q->top_name : "top_n_tokens", tops,
               (unsigned long long)q->top_n_tokens.v);
    return 0;
}

static int check_params(const struct validator *known, const struct ask *q, struct err *e)
{
    const bool tgi = q->style == ASK_TGI;
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, in_tgi, in_openai,       \
              in_lmtp, number, ...)                                                                \
    {                                                                                              \
        const PARAM_V_##type v = q->name.v;                                                        \
        const char *called = in_tgi ? in_tgi : in_openai;                                          \
        if (q->name.set && !(taken) && (tgi || v != (PARAM_V_##type)neutral))                      \
            REFUSE("`%s` must be %s", called, words);                                              \
        if (q->name.set && v != (PARAM_V_##type)neutral && number >= PARAM_OWN_FIELDS &&           \
            PARAM_ACTS_##kind && !(known->sampling_fields & param_bit(number)))                    \
            REFUSE("`%s` is not supported by these shards", called);                               \
    }
#include "common/params.def"
    return 0;
}

static int check_sampling(const struct validator *v, const struct ask *q, struct err *e)
{
    bool several = q->best_of.set && q->best_of.v > 1;
    if (several && !q->do_sample && !q->sampling_implied)
        REFUSE("you must use sampling when `best_of` is > 1");
    if (check_params(v, q, e) != 0)
        return -1;
    if (q->max_new_tokens.set && q->max_new_tokens.v == 0)
        REFUSE("`%s` must be strictly positive", length_name(q));
    return check_ends(v, q, several, e);
}

static int check_breakers(const struct ask *q, struct err *e)
{
    if (q->n_dry_breakers > MOST_DRY_BREAKERS)
        REFUSE("`dry_sequence_breakers` may have at most %d entries. Given: %u", MOST_DRY_BREAKERS,
               q->n_dry_breakers);
    for (uint32_t i = 0; i < q->n_dry_breakers; i++)
        if (!*q->dry_breakers[i] || strlen(q->dry_breakers[i]) > LONGEST_DRY_BREAKER)
            REFUSE("`dry_sequence_breakers` must have 1 to %d bytes each", LONGEST_DRY_BREAKER);
    return 0;
}

static int check_logprob_ids(const struct validator *v, const struct ask *q, struct err *e)
{
    if (!q->n_logprob_ids)
        return 0;
    if (!(v->sampling_fields & param_bit(PARAM_LOGPROB_TOKEN_IDS)))
        REFUSE("`logprob_token_ids` is not supported by these shards");
    if (q->n_logprob_ids > MOST_LOGPROB_IDS)
        REFUSE("`logprob_token_ids` may have at most %d entries. Given: %u", MOST_LOGPROB_IDS,
               q->n_logprob_ids);
    if (q->decoder_input_details)
        REFUSE("`logprob_token_ids` cannot be used with log-probabilities of the prompt");
    for (uint32_t i = 0; i < q->n_logprob_ids; i++)
        if (q->logprob_ids[i] >= v->vocab_size)
            REFUSE("`logprob_token_ids`: %u is outside the vocabulary of %u", q->logprob_ids[i],
                   v->vocab_size);
    return 0;
}

/* Refuses parameters that these shards do not support: nothing is ignored silently. */
static int check_choice(const struct validator *v, const struct ask *q, struct err *e)
{
    uint64_t min = q->min_new_tokens.v;
    if (q->min_new_tokens.set && q->max_new_tokens.set && min > q->max_new_tokens.v)
        REFUSE("`min_tokens` must be <= `max_tokens`. Given: %llu", (unsigned long long)min);
    if (q->n_bias > v->vocab_size)
        REFUSE("`logit_bias` may have at most %u entries. Given: %u", v->vocab_size, q->n_bias);
    for (uint32_t i = 0; i < q->n_bias; i++) {
        if (q->bias_ids[i] >= v->vocab_size)
            REFUSE("`logit_bias`: token id %u is outside the vocabulary of %u", q->bias_ids[i],
                   v->vocab_size);
        if (!(q->bias[i] >= -100 && q->bias[i] <= 100))
            REFUSE("`logit_bias` must be between -100 and 100 (token id %u)", q->bias_ids[i]);
    }
    if (v->adapters && q->adapter_id && *q->adapter_id &&
        !adapter_shelf_has(v->adapters, q->adapter_id)) {
        if (q->style != ASK_TGI)
            return err_set(e, ERR_NO_MODEL, "The model `%.200s` does not exist", q->adapter_id);
        REFUSE("`adapter_id`: there is no adapter `%.100s`", q->adapter_id);
    }
    for (uint32_t i = 0; i < q->n_stop_token_ids; i++)
        if (q->stop_token_ids[i] >= v->vocab_size)
            REFUSE("`stop_token_ids`: %u is outside the vocabulary of %u", q->stop_token_ids[i],
                   v->vocab_size);
    for (uint32_t i = 0; i < q->n_allowed; i++)
        if (q->allowed_ids[i] >= v->vocab_size)
            REFUSE("`allowed_token_ids`: %u is outside the vocabulary of %u", q->allowed_ids[i],
                   v->vocab_size);
    if (!v->takes_bias &&
        (min || q->n_bias || q->n_stop_token_ids || q->n_allowed || q->n_bad_words))
        REFUSE("`logit_bias`, `min_tokens`, `stop_token_ids`, `allowed_token_ids` and `bad_words` "
               "are not supported by these shards");
    if (q->n_bad_words > MOST_BAD_WORDS)
        REFUSE("`bad_words` may have at most %u entries. Given: %u", MOST_BAD_WORDS,
               q->n_bad_words);
    return check_logprob_ids(v, q, e) || check_breakers(q, e) ? -1 : 0;
}

static int check_input(const struct validator *v, const struct ask *q, struct err *e)
{
    /* elsewhere the tokenizer may put special tokens around an empty text */
    if (q->ids ? q->n_ids == 0 : q->n_inputs == 0 && q->style == ASK_TGI)
        REFUSE("`%s` cannot be empty", input_name(q));
    if (v->text_only && q->inputs && memchr(q->inputs, 0, q->n_inputs))
        REFUSE("`%s`: these shards take no NUL characters", input_name(q));
    if (q->truncate.set && (q->truncate.v == 0 || q->truncate.v > v->max_input_tokens))
        REFUSE("`%s` must be strictly positive and less than %u. Given: %llu",
               q->style == ASK_TGI ? "truncate" : "truncate_prompt_tokens", v->max_input_tokens,
               (unsigned long long)q->truncate.v);
    return 0;
}

/* Checks ids from the client, or from a tokenizer with a larger vocabulary than the model. The
 * placeholders of images may be outside it (Llama 3.2 Vision): no logit is theirs. */
static int check_ids(const struct validator *v, const char *input, const struct gen_request *r,
                     struct err *e)
{
    const bool images = r->n_media > 0;
    const uint32_t placeholder = images ? vision_token(v->media.vision) : 0;
    assert(r->ids || !r->n_ids);
    for (uint32_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] >= v->vocab_size && !(images && r->ids[i] == placeholder))
            REFUSE("`%s`: token id %u is outside the vocabulary of %u", input, r->ids[i],
                   v->vocab_size);
    return 0;
}

/* How many of the n_special ids that `all` has more than `plain` are at the front. */
static uint32_t specials_in_front(const struct tok_ids *all, const struct tok_ids *plain)
{
    uint32_t extra = all->n - plain->n;
    for (uint32_t front = 0; front < extra; front++)
        if (!plain->n || !memcmp(all->id + front, plain->id, plain->n * sizeof(*plain->id)))
            return front;
    return extra;
}

/* Keeps `keep` of the ids in `all`: special tokens at both ends stay, the text is cut on the
 * left. */
static int truncate_left(const struct validator *v, const char *text, size_t n, unsigned flags,
                         uint32_t keep, struct tok_scratch **scratch, struct tok_ids *all,
                         struct err *e)
{
    struct tok_ids plain = {0};
    if (tokenizer_encode(v->tokenizer, text, n, flags & ~(unsigned)TOK_ADD_SPECIAL, scratch, &plain,
                         e) != 0)
        return -1;
    uint32_t extra = all->n > plain.n ? all->n - plain.n : 0;
    uint32_t front = extra && keep >= extra ? specials_in_front(all, &plain) : 0;
    tok_ids_free(&plain);
    memmove(all->id + front, all->id + all->n - (keep - front), (keep - front) * sizeof(*all->id));
    all->n = keep;
    return 0;
}

int encode(const struct validator *v, const char *text, size_t n, unsigned flags, uint32_t truncate,
           struct tok_scratch **scratch, struct arena *a, const uint32_t **ids, uint32_t *n_ids,
           struct err *e)
{
    struct tok_ids out = {0};
    int rc = tokenizer_encode(v->tokenizer, text, n, flags, scratch, &out, e);
    if (rc == 0 && truncate && out.n > truncate)
        rc = truncate_left(v, text, n, flags, truncate, scratch, &out, e);
    uint32_t *copy = rc == 0 ? ARENA_NEW(a, uint32_t, out.n + 1) : NULL;
    if (copy && out.n)
        memcpy(copy, out.id, out.n * sizeof(*copy));
    *ids = copy;
    *n_ids = out.n;
    tok_ids_free(&out);
    if (rc != 0)
        return err_wrap(e, "Input validation error: tokenizer error");
    return copy ? 0 : err_nomem(e);
}

/* Uses the texts that clients search for: OpenAI's and Anthropic's agents then shorten the
 * conversation. */
static int too_long(const struct validator *v, const struct ask *q, uint32_t n_ids, uint32_t most,
                    struct err *e)
{
    if (q->style == ASK_ANTHROPIC) /* as the first words: some clients compare the start */
        return err_set(e, ERR_TOO_LONG, "prompt is too long: %u tokens > %u maximum", n_ids, most);
    REFUSE_AS(
        ERR_TOO_LONG,
        "`%s` is too long: this model's maximum context length is %u tokens, %u of them for it, "
        "and it has %u. Please reduce its length",
        input_name(q), v->max_total_tokens, most, n_ids);
}

/* Clips the answer's length to the context that is left, whatever was requested. */
static int clip(const struct validator *v, const struct ask *q, uint32_t n_ids, uint32_t *out,
                struct err *e)
{
    uint32_t room = v->max_total_tokens > n_ids ? v->max_total_tokens - n_ids : 0;
    uint32_t most = v->max_total_tokens ? v->max_total_tokens - 1 : 0;
    if (most > v->max_input_tokens)
        most = v->max_input_tokens;
    if (n_ids > most)
        return too_long(v, q, n_ids, most, e);
    *out =
        q->max_new_tokens.set && q->max_new_tokens.v < room ? (uint32_t)q->max_new_tokens.v : room;
    return 0;
}

/* TGI accepts any max_new_tokens if the first 1024 fit, and ends at the limit: so do we. */
static int budget(const struct validator *v, const struct ask *q, uint32_t n_ids, uint32_t *out,
                  struct err *e)
{
    enum { CHUNK = 1024 };
    if (q->style != ASK_TGI)
        return clip(v, q, n_ids, out, e);
    uint64_t room = v->max_total_tokens > n_ids ? v->max_total_tokens - n_ids : 0;
    uint64_t want = q->max_new_tokens.set ? q->max_new_tokens.v : room;
    uint64_t chunk = want < CHUNK ? want : CHUNK;
    if (n_ids + chunk > v->max_total_tokens)
        REFUSE_AS(
            ERR_TOO_LONG,
            "`inputs` tokens + `max_new_tokens` must be <= %u. Given: %u `inputs` tokens and %llu "
            "`max_new_tokens`",
            v->max_total_tokens, n_ids, (unsigned long long)chunk);
    if (n_ids > v->max_input_tokens)
        REFUSE_AS(ERR_TOO_LONG, "`inputs` must have less than %u tokens. Given: %u",
                  v->max_input_tokens, n_ids);
    if (room == 0)
        REFUSE_AS(ERR_TOO_LONG, "`inputs` must have less than %u tokens. Given: %u",
                  v->max_total_tokens, n_ids);
    *out = (uint32_t)(want < room ? want : room);
    return 0;
}

uint64_t seed_draw(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)clock();
    return seed;
}

/* 63 bits of SHA-256, so that no client can construct a text with another's salt. */
static uint64_t salt_of(const char *text)
{
    unsigned char sum[32] = {0};
    uint64_t salt = 0;
    if (!text)
        return 0;
    gnutls_hash_fast(GNUTLS_DIG_SHA256, text, strlen(text), sum);
    memcpy(&salt, sum, sizeof(salt));
    return salt | UINT64_C(1) << 63;
}

/* As in TGI, a shard samples if any truncation of the distribution is requested. */
static void take_most_likely(struct gen_params *p)
{
    p->do_sample = false;
#define PARAM(kind, type, name, member, neutral, ...)                                              \
    if (PARAM_CUTS_##kind)                                                                         \
        p->name = neutral;
#include "common/params.def"
}

/* Does a parameter request sampling? A temperature of 1 has no effect and does not. */
static bool cuts(const struct gen_params *p)
{
    bool any = false;
#define PARAM(kind, type, name, member, neutral, ...)                                              \
    any |= PARAM_CUTS_##kind && p->name != (PARAM_C_##type)neutral;
#include "common/params.def"
    return any;
}

static void fill_params(const struct ask *q, struct gen_params *p)
{
    *p = (struct gen_params){
#define PARAM(kind, type, name, member, neutral, ...)                                              \
    .name = q->name.set ? (PARAM_C_##type)q->name.v : (PARAM_C_##type)neutral,
#include "common/params.def"
        .watermark = q->watermark,
        .seed = q->seed.set ? q->seed.v : seed_draw(),
        .stop = q->stop,
        .n_stop = q->n_stop,
        .ignore_eos = q->ignore_eos,
        .min_new_tokens = (uint32_t)q->min_new_tokens.v,
        .stop_token_ids = q->stop_token_ids,
        .n_stop_token_ids = q->n_stop_token_ids,
        .bias_ids = q->bias_ids,
        .bias = q->bias,
        .n_bias = q->n_bias,
        .top_n_tokens = q->n_logprob_ids ? 0 : (uint32_t)q->top_n_tokens.v,
        .logprob_ids = q->logprob_ids,
        .n_logprob_ids = q->n_logprob_ids,
        .constraint = q->constraint,
        .constraint_kind = q->constraint_kind,
        .constraint_front = q->constraint_front,
        .prefill_logprobs = q->decoder_input_details,
        .adapter_id = q->adapter_id,
    };
    if (p->dry_multiplier != 0) {
        static const char *const usual[] = {"\n", ":", "\"", "*"}; /* llama.cpp's defaults */
        p->dry_breakers = q->dry_breakers ? q->dry_breakers : usual;
        p->n_dry_breakers = q->dry_breakers ? q->n_dry_breakers : 4;
    }
    p->do_sample = q->do_sample || cuts(p);
    if (q->greedy)
        take_most_likely(p);
}

/* Converts the constraint to the shards' form, with the operator's white space setting. */
static int settle_kind(const struct validator *v, struct gen_params *p, struct err *e)
{
    enum constraint_kind *kind = &p->constraint_kind;
    if (!v->takes_grammars && (*kind == CONSTRAINT_GBNF || *kind == CONSTRAINT_LARK))
        REFUSE("grammars are not supported by the shards of this model");
    if (*kind == CONSTRAINT_JSON_SCHEMA && v->compact_json)
        *kind = CONSTRAINT_JSON_COMPACT;
    if (*kind == CONSTRAINT_JSON_COMPACT && !v->takes_grammars)
        *kind = CONSTRAINT_JSON_SCHEMA;
    return 0;
}

/* Gives every token except the allowed ones a bias that forbids it; allowed ones keep their
 * bias. */
static int allow_only(const struct validator *v, const struct ask *q, struct arena *a,
                      struct gen_params *p, struct err *e)
{
    enum { FORBIDS = -100 };
    uint32_t n = 0;
    uint32_t *ids = ARENA_NEW(a, uint32_t, v->vocab_size);
    float *bias = ARENA_NEW(a, float, v->vocab_size), *of = ARENA_NEW(a, float, v->vocab_size);
    if (!ids || !bias || !of)
        return err_nomem(e);
    for (uint32_t i = 0; i < v->vocab_size; i++)
        of[i] = FORBIDS;
    for (uint32_t i = 0; i < q->n_allowed; i++)
        of[q->allowed_ids[i]] = 0;
    for (uint32_t i = 0; i < q->n_bias; i++)
        if (of[q->bias_ids[i]] != FORBIDS)
            of[q->bias_ids[i]] = q->bias[i];
    for (uint32_t i = 0; i < v->vocab_size; i++)
        if (of[i] != 0) {
            ids[n] = i;
            bias[n++] = of[i];
        }
    p->bias_ids = ids;
    p->bias = bias;
    p->n_bias = n;
    return 0;
}

/* What is made of these fields may be as large as the vocabulary. */
static int make_biases(const struct validator *v, const struct ask *q, struct arena *a,
                       struct gen_params *p, struct err *e)
{
    const struct ask *l = v->like;
    if (!q->n_allowed)
        return 0;
    if (!l || l->allowed_ids != q->allowed_ids || l->bias_ids != q->bias_ids)
        return allow_only(v, q, a, p, e);
    p->bias_ids = v->like_made->params.bias_ids;
    p->bias = v->like_made->params.bias;
    p->n_bias = v->like_made->params.n_bias;
    return 0;
}

/* `never`: sequences that no answer has; may be NULL. */
static int make_bad_words(const struct validator *v, const struct ask *q,
                          const struct bad_words *never, struct tok_scratch **scratch,
                          struct arena *a, struct bad_words *out, struct err *e)
{
    if (v->like && v->like->bad_words == q->bad_words) {
        *out = v->like_made->params.bad_words;
        return 0;
    }
    if (bad_words_encode(v, q, scratch, a, out, e) != 0)
        return -1;
    return never && never->n ? suppress_join(never, v->vocab_size, a, out, e) : 0;
}

static int check_constraint(const struct validator *v, const struct ask *q, struct gen_params *p,
                            struct err *e)
{
    if (!q->constraint)
        return 0;
    if (v->no_constraints)
        REFUSE("grammar is not supported");
    if (settle_kind(v, p, e) != 0)
        return -1;
    return v->like && v->like->constraint == q->constraint ? 0 : constrain_check(q, e);
}

/* Computes the prompt's ids and the positions of its images. */
static int encode_prompt(const struct validator *v, const struct ask *q,
                         struct tok_scratch **scratch, struct arena *a, struct gen_request *r,
                         struct err *e)
{
    const uint32_t truncate = q->truncate.set ? (uint32_t)q->truncate.v : 0;
    struct media_prompt p;
    if (media_prompt(&v->media, q, a, &p, e) != 0)
        return -1;
    const unsigned flags =
        (q->add_special_tokens && !p.bare ? TOK_ADD_SPECIAL : 0) | (p.guarded ? TOK_GUARDED : 0);
    if (encode(v, p.text, p.n, flags, p.n_media ? 0 : truncate, scratch, a, &r->ids, &r->n_ids,
               e) != 0)
        return -1;
    if (p.n_media && truncate && r->n_ids > truncate)
        REFUSE("`truncate` would cut a prompt with images: it has %u tokens", r->n_ids);
    return media_places(&v->media, &p, r->ids, r->n_ids, a, r, e);
}

/* Log-probabilities of a prompt are one message of a shard, with those of all prompts that end in
 * the same step: 200 bytes each in the router. */
static int check_prompt_logprobs(const struct ask *q, uint32_t n_ids, struct err *e)
{
    enum { MOST = 1000000 };
    const uint64_t each = 1 + (q->top_n_tokens.set ? q->top_n_tokens.v : 0);
    if (q->decoder_input_details && n_ids * each > MOST)
        REFUSE("log-probabilities of the prompt: %u tokens with %llu each are more than %d. Ask "
               "for fewer alternatives or shorten the prompt",
               n_ids, (unsigned long long)each, MOST);
    return 0;
}

int validate(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
             struct arena *a, struct gen_request *r, struct err *e)
{
    struct ask whole;
    struct opt_u64 first;
    const struct bad_words *never = NULL;
    if (v->defaults && q->style != ASK_TGI && q->style != ASK_LMTP) {
        whole = *q;
        defaults_apply(v->defaults, &whole);
        if (!v->takes_bias)
            whole.min_new_tokens = q->min_new_tokens;
        q = &whole;
        never = v->takes_bias ? &v->defaults->never : NULL;
    }
    if (check_sampling(v, q, e) != 0 || check_choice(v, q, e) != 0 || check_input(v, q, e) != 0 ||
        answer_first(v, q, &first, e) != 0)
        return -1;
    r->truncate = q->truncate.set ? (uint32_t)q->truncate.v : v->max_input_tokens;
    r->add_special_tokens = q->add_special_tokens;
    r->inputs = q->inputs;
    r->priority = (int32_t)q->priority.v;
    r->cache_salt = salt_of(q->cache_salt);
    r->transfer = q->transfer;
    r->ids = q->ids;
    r->n_ids = q->n_ids;
    if (q->ids && q->truncate.set && q->n_ids > q->truncate.v) {
        r->ids += q->n_ids - (uint32_t)q->truncate.v;
        r->n_ids = (uint32_t)q->truncate.v;
    }
    if (!q->ids && encode_prompt(v, q, scratch, a, r, e) != 0)
        return -1;
    if (!r->n_ids)
        REFUSE("`%s` cannot be empty", input_name(q));
    if (text_language(v, q, a, &r->ids, r->n_ids, e) != 0)
        return -1;
    fill_params(q, &r->params);
    if (make_biases(v, q, a, &r->params, e) != 0 ||
        make_bad_words(v, q, never, scratch, a, &r->params.bad_words, e) != 0)
        return -1;
    /* the decoder's prompt may be longer than an empty text */
    const uint32_t counted = first.set && r->n_ids < 2 ? 2 : r->n_ids;
    if (check_ids(v, input_name(q), r, e) != 0 ||
        budget(v, q, counted, &r->params.max_new_tokens, e) != 0 ||
        check_prompt_logprobs(q, r->n_ids, e) != 0)
        return -1;
    r->n_input = r->n_ids;
    if (v->has_encoder && move_to_encoder(v, first, a, r, e) != 0)
        return -1;
    if (r->params.min_new_tokens > r->params.max_new_tokens) /* max_new_tokens was clipped */
        r->params.min_new_tokens = r->params.max_new_tokens;
    return check_constraint(v, q, &r->params, e);
}
