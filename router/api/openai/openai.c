#include "router/api/openai/openai.h"
#include "common/json/json.h"
#include "router/generate/constrain.h"
#include <stdio.h>
#include <string.h>

/* llama-server's name of repetition_penalty, on its /v1 as well; of the last 0 tokens: none. */
static void read_repeat_penalty(struct body *b, struct object root, struct ask *q)
{
    const struct opt_f32 penalty = body_f32(b, root, "repeat_penalty");
    if (penalty.set && penalty.v <= 0)
        body_fail(b, root, "repeat_penalty", "`repeat_penalty` must be strictly positive");
    const bool off = json_num(root.json, "repeat_last_n", -1) == 0;
    if (!penalty.set || off || q->repetition_penalty.set)
        return;
    q->repetition_penalty = penalty;
    if (penalty.v != 1 && json_get(root.json, "repeat_last_n"))
        body_warn(b, "repeat_last_n: the penalty is on all tokens of prompt and answer");
}

/* OpenAI's newer and older name, and llama-server's. */
static const char *length_name(struct object root)
{
    if (json_get(root.json, "max_completion_tokens"))
        return "max_completion_tokens";
    return json_get(root.json, "max_tokens") || !json_get(root.json, "n_predict") ? "max_tokens"
                                                                                  : "n_predict";
}

void openai_sampling(struct body *b, struct object root, struct ask *q)
{
    body_temperature(b, root, q);
    body_cuts(b, root, "top_p", "top_k", q);
    body_params(b, root, false, q);
    read_repeat_penalty(b, root, q);
    if (q->top_n_sigma.v == -1) /* llama.cpp's: off */
        q->top_n_sigma.v = 0;
    q->style = ASK_OPENAI;
    q->seed = body_seed(b, root, "seed");
    if (!q->seed.set) /* Mistral's name */
        q->seed = body_seed(b, root, "random_seed");
    q->stop = body_strings(b, root, "stop", true, true, &q->n_stop);
    body_ending(b, root, "min_tokens", q);
    body_bias(b, root, "logit_bias", q);
    body_languages(b, root, q);
    body_logprob_ids(b, root, q);
    q->bad_words = body_strings(b, root, "bad_words", false, true, &q->n_bad_words);
    q->priority = body_i32(b, root, "priority");
    q->user = body_str(b, root, "user", false);
    q->cache_salt = body_str(b, root, "cache_salt", false);
    const char *sglang = body_str(b, root, "extra_key", false);
    if (!q->cache_salt && sglang && *sglang)
        q->cache_salt = sglang;
    if (q->cache_salt && !*q->cache_salt)
        body_fail(b, root, "cache_salt", "`cache_salt` cannot be empty");
    constrain_openai(b, root, q);
    q->length_name = length_name(root);
    q->max_new_tokens = body_length(b, root, q->length_name);
}

/* null, false, "", [] and {} request nothing; so do the neutral number, and 0 unless the neutral
 * one is negative. */
static bool asks_nothing(const cJSON *v, double neutral)
{
    if (cJSON_IsNumber(v))
        return v->valuedouble == neutral || (v->valuedouble == 0 && neutral >= 0);
    return json_is_empty(v) || (cJSON_IsString(v) && !*v->valuestring);
}

/* Refuses features of other servers that are not supported, since an answer would look as if it
 * followed them. `neutral`: a number that also requests nothing. */
static void refuse_unknown(struct body *b, struct object root)
{
    static const struct {
        const char *name;
        double neutral;
    } rows[] = {
        {"structural_tag", 0},
        {"grammar_lazy", 0},
        {"guided_whitespace_pattern", 0},
        {"audio", 0},
        {"web_search_options", 0},
        {"use_beam_search", 0},
        {"length_penalty", 1},
        {"top_a", 0},
        {"tfs", 1},
        {"mirostat", 0},
        {"mirostat_mode", 0},
        {"dynatemp_range", 0},
        {"smoothing_factor", 0},
        {"epsilon_cutoff", 0},
        {"eta_cutoff", 0},
        {"penalty_alpha", 0},
        {"guidance_scale", 1},
        {"num_beams", 1},
        {"no_repeat_ngram_size", 0},
        {"encoder_repetition_penalty", 1},
        {"thinking_token_budget", -1},
        {"repetition_detection", 0},
        {"prompt_embeds", 0},
        {"mm_processor_kwargs", 0},
        {"logits_processors", 0},
        {"vllm_xargs", 0}, /* for logits processors of plugins */
        {"stop_regex", 0}, /* SGLang's, down to input_ids */
        {"custom_logit_processor", 0},
        {"session_params", 0},
        {"return_hidden_states", 0},
        {"lora_path", 0},
        {"input_ids", 0},
        {"return_routed_experts", 0},
        {"return_cached_tokens_details", 0},
        {"return_meta_info", 0},
        {"images_config", 0},
        {"max_dynamic_patch", 0},
        {"min_dynamic_patch", 0},
        {"use_audio_in_video", 0},
        {"custom_params", 0},
        {"watermarking", 0}, /* vLLM's, down to previous_input_messages */
        {"return_prompt_text", 0},
        {"return_token_offsets", 0},
        {"ec_transfer_params", 0},
        {"media_io_kwargs", 0},
        {"previous_input_messages", 0},
        {"enable_response_messages", 0},
        {"adaptive_target", -1},      /* llama-server's */
        {"response_prefix", 0},       /* TabbyAPI's */
        {"min_completion_tokens", 0}, /* Cerebras', as min_tokens */
        {"disable_reasoning", 0},
        {"prompt_truncate_len", 0}, /* Fireworks' */
        {"mirostat_target", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const cJSON *v = json_get(root.json, rows[i].name);
        if (v && !asks_nothing(v, rows[i].neutral))
            body_fail(b, root, rows[i].name, "`%s` is not supported", rows[i].name);
    }
}

/* Names what has no effect and may change an answer only in ways that a client can do without. */
static void warn_unheeded(struct body *b, struct object root)
{
    const struct object text = {json_get(root.json, "text"), "text"};
    const char *word = json_str(root.json, "verbosity", json_str(text.json, "verbosity", "medium"));
    if (strcmp(word, "medium") != 0)
        body_warn(b, "verbosity: %.20s has no effect", word);
    if (json_get(root.json, "moderation"))
        body_warn(b, "moderation: there is none here");
    if (json_get(root.json, "web_search_options"))
        body_warn(b, "web_search_options: there is no search here");
}

/* Only text output is supported. */
static void check_modalities(struct body *b, struct object root)
{
    const cJSON *list = body_get(b, root, "modalities", false), *kid;
    if (list && !cJSON_IsArray(list))
        body_mistyped(b, root, "modalities", list, "a sequence");
    cJSON_ArrayForEach(kid, list)
    {
        if (!cJSON_IsString(kid) || strcmp(kid->valuestring, "text") != 0)
            body_fail(b, root, "modalities", "`modalities`: only `text` is supported");
    }
}

static void check_template(struct call *c, struct body *b, struct object root)
{
    const cJSON *t = body_get(b, root, "chat_template", false);
    if (t && !cJSON_IsString(t))
        body_mistyped(b, root, "chat_template", t, "a string");
    else if (t && !c->edge->config->trust_request_chat_template)
        body_fail(b, root, "chat_template",
                  "`chat_template` is only used where the server runs with "
                  "--trust-request-chat-template");
}

static uint32_t most_choices(const struct call *c)
{
    uint32_t max = c->edge->config->max_best_of;
    return max > OPENAI_MAX_N ? max : OPENAI_MAX_N;
}

void openai_choices(struct call *c, struct body *b, struct object in, const char *key,
                    struct openai *o)
{
    uint32_t max = most_choices(c);
    struct opt_u64 n = body_u32(b, in, key);
    if (n.set && (n.v == 0 || n.v > max))
        body_fail(b, in, key, "`%s` must be > 0 and <= %u. Given: %llu", key, max,
                  (unsigned long long)n.v);
    if (n.set)
        o->shown = o->each = (uint32_t)n.v;
}

void openai_best_of(struct call *c, struct body *b, struct openai *o)
{
    struct object root = body_root(b);
    uint32_t max = most_choices(c);
    struct opt_u64 n = body_u32(b, root, "best_of");
    if (!n.set)
        return;
    if (n.v < o->shown || n.v == 0 || n.v > max)
        body_fail(b, root, "best_of", "`best_of` must be >= `n` and <= %u. Given: %llu", max,
                  (unsigned long long)n.v);
    else if (o->stream && n.v > o->shown)
        body_fail(b, root, "best_of", "`best_of` greater than `n` is not supported when streaming");
    else
        o->each = (uint32_t)n.v;
}

static const struct answer *answer_at(void *gens, uint32_t i)
{
    return &((struct generation *)gens)[i].answer;
}

void openai_rank(const struct openai *o, struct call *c, uint32_t ask, uint32_t *out)
{
    struct generation *g = &c->gen[(size_t)ask * o->each];
    for (uint32_t i = 0; i < o->each; i++)
        out[i] = i;
    if (o->each > o->shown)
        answer_rank(answer_at, g, o->each, out);
}

struct openai *openai_parse(struct call *c, struct body *b, const char *id_prefix, struct err *e)
{
    struct openai *o = ARENA_NEW(&c->arena, struct openai, 1);
    bool given;
    if (!o) {
        err_nomem(e);
        return NULL;
    }
    struct object root = body_root(b);
    b->plain = true;
    const char *model = body_str(b, root, "model", false);
    o->model = model && *model && strcmp(model, "tgi") != 0 ? model : c->edge->model_id;
    snprintf(o->id, sizeof(o->id), "%s%016llx%08x", id_prefix, (unsigned long long)seed_draw(),
             (unsigned)c->created_unix);
    o->stream = body_bool(b, root, "stream", false);
    const cJSON *options = json_get(root.json, "stream_options");
    if (options) {
        struct object so = body_object(b, root, "stream_options", &given);
        o->include_usage = body_bool(b, so, "include_usage", false);
        o->continuous_usage = body_bool(b, so, "continuous_usage_stats", false);
    }
    o->special_text = !body_opt_bool(b, root, "skip_special_tokens", true);
    o->with_token_ids = body_opt_bool(b, root, "return_token_ids", false);
    o->ids_as_text = body_opt_bool(b, root, "return_tokens_as_token_ids", false);
    o->keep_stop = body_opt_bool(b, root, "include_stop_str_in_output",
                                 body_opt_bool(b, root, "no_stop_trim", false));
    o->timings = body_opt_bool(b, root, "timings_per_token", false);
    o->progress = body_opt_bool(b, root, "return_progress", false);
    o->verbose = body_opt_bool(b, root, "verbose", false);
    o->shown = o->each = 1;
    openai_choices(c, b, root, "n", o);
    refuse_unknown(b, root);
    check_modalities(b, root);
    warn_unheeded(b, root);
    check_template(c, b, root);
    openai_transfer_read(c, b, o);
    return o;
}

static void free_sequences(void *arg)
{
    struct call *c = arg;
    struct openai *o = c->state;
    for (uint32_t i = 0; i < c->n_gen; i++) {
        stop_trim_free(&o->seq[i].trim);
        buf_free(&o->seq[i].text);
        buf_free(&o->seq[i].logprobs);
        buf_free(&o->seq[i].ids);
        buf_free(&o->seq[i].prompt_logprobs);
        for (int k = 0; k < 3; k++)
            buf_free(&o->seq[i].lists[k]);
    }
}

int openai_generate(struct call *c, struct openai *o, const struct format *f, struct err *e)
{
    uint32_t n = o->n_asks * o->each;
    if (n > CALL_MAX_GENERATIONS)
        return err_set(e, ERR_VALIDATION,
                       "Input validation error: `n` times the number of prompts must be <= %d. "
                       "Given: %u",
                       CALL_MAX_GENERATIONS, n);
    c->state = o;
    c->stream = o->stream;
    c->format = f;
    o->seq = ARENA_NEW(&c->arena, struct openai_sequence, n);
    if (!o->seq || arena_defer(&c->arena, free_sequences, c) != 0)
        return err_nomem(e);
    for (uint32_t i = 0; i < o->n_asks; i++) {
        if (!o->asks[i].adapter_id)
            o->asks[i].adapter_id = edge_adapter(c->edge, o->model);
        o->asks[i].transfer = o->transfer;
    }
    for (uint32_t i = 0; i < n; i++)
        o->seq[i].trim = (struct stop_trim){
            .stop = o->asks[0].stop, .n = o->asks[0].n_stop, .keep = o->keep_stop};
    if (call_generate(c, o->asks, o->n_asks, o->each, e) != 0)
        return -1;
    for (uint32_t i = 0; o->progress && o->stream && i < c->n_gen; i++)
        c->gen[i].r.wants_progress = true;
    return 0;
}

const char *openai_finish(const struct openai *o, const struct generation *g)
{
    bool stopped = g->answer.finish != FINISH_LENGTH || o->seq[g->index].trim.matched;
    return stopped && !o->only_prompt ? "stop" : "length";
}

void openai_text(struct openai *o, const struct generation *g, const struct gen_event *ev,
                 struct buf *out)
{
    struct stop_trim *t = &o->seq[g->index].trim;
    bool eos = ev->end && ev->end->finish == FINISH_EOS;
    bool special = ev->token.special && (!o->special_text || eos);
    bool early = g->answer.n_tokens < g->r.params.min_new_tokens;
    if (o->with_token_ids)
        buf_fmt(&o->seq[g->index].ids, o->seq[g->index].ids.len ? ",%u" : "%u", ev->token.id);
    if (o->echo_text && g->answer.n_tokens == 1)
        buf_str(out, o->echo_text);
    if (!special)
        stop_trim_push(t, ev->token.text, ev->token.text_len, early, out);
    else if (ev->end && ev->end->finish == FINISH_STOP)
        buf_reset(&t->held); /* the sequence ends in a special token's text */
    if (ev->end || special)  /* no sequence continues across a special token */
        stop_trim_end(t, out);
}

void openai_token_ids(struct buf *out, struct openai *o, const struct generation *g)
{
    struct buf *ids = &o->seq[g->index].ids;
    if (!o->with_token_ids)
        return;
    buf_str(out, ",\"token_ids\":[");
    buf_add(out, ids->p ? ids->p : "", ids->len);
    buf_ch(out, ']');
    out->oom |= ids->oom;
    buf_reset(ids);
}

void openai_prompt_ids(struct buf *out, const struct openai *o, const struct generation *g)
{
    if (!o->with_token_ids)
        return;
    buf_str(out, ",\"prompt_token_ids\":[");
    for (uint32_t i = 0; i < g->r.n_ids; i++)
        buf_fmt(out, i ? ",%u" : "%u", g->r.ids[i]);
    buf_ch(out, ']');
}

void openai_token_name(struct buf *out, const struct openai *o, const struct gen_token *t)
{
    if (o->ids_as_text)
        buf_fmt(out, "\"token_id:%u\"", t->id);
    else
        buf_json_str(out, t->text, t->text_len);
}

void openai_counts(struct buf *out, uint64_t prompt, uint64_t completion, uint64_t cached)
{
    buf_fmt(out,
            "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
            "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
            (unsigned long long)prompt, (unsigned long long)completion,
            (unsigned long long)prompt + completion, (unsigned long long)cached);
}

void openai_usage(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    uint64_t prompt = 0, completion = 0, cached = 0;
    for (uint32_t i = 0; i < c->n_gen; i++) {
        bool first = i % o->each == 0; /* the others share its prompt */
        prompt += first ? c->gen[i].r.n_input : 0;
        cached += first ? c->gen[i].r.n_cached : 0;
        completion += o->only_prompt ? 0 : c->gen[i].answer.n_tokens;
    }
    openai_counts(out, prompt, completion, cached);
    if (!o->parts || out->oom)
        return;
    out->len--; /* the object goes on */
    buf_fmt(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%llu}}",
            (unsigned long long)o->thought);
}

void openai_error_event(struct call *c, const struct err *e)
{
    error_event(&c->out, c->errors, e, "");
    buf_str(&c->out, "data: [DONE]\n\n");
}

/* {"token","logprob","bytes","top_logprobs"}: OpenAI's client requires bytes. */
static void token_fields(struct buf *out, const struct openai *o, const struct gen_token *t)
{
    buf_str(out, "{\"token\":");
    openai_token_name(out, o, t);
    buf_str(out, ",\"logprob\":");
    buf_json_f32(out, t->logprob);
    buf_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < t->text_len; i++)
        buf_fmt(out, "%s%u", i ? "," : "", (unsigned char)t->text[i]);
    buf_ch(out, ']');
}

void openai_logprob(struct buf *out, const struct openai *o, const struct gen_event *ev)
{
    token_fields(out, o, &ev->token);
    buf_str(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < openai_tops(o, ev->n_top); i++) {
        if (i)
            buf_ch(out, ',');
        token_fields(out, o, &ev->top[i]);
        buf_ch(out, '}');
    }
    buf_str(out, "]}");
}
